//! Slot and signature of every method that is called, by family. Made by `tools/tensorrt_slots.py`; not edited by hand.
//!
//! One line a method and signature. The five numbers are the slots in the virtual table of TensorRT 8, 10, 11, TensorRT-RTX 1.3
//! and 1.5. `NONE`: the family has no such method with this signature; `since(slot, minor)`: appended by that minor version,
//! an older library holds something else there. A name that ends in 8 is the same method with TensorRT 8's signature.

use super::{Dims32, Dims64, NONE, Object, methods, since};
use std::ffi::{c_char, c_void};

methods! {
    BuilderCreateBuilderConfig = "VBuilder::createBuilderConfig" fn() -> Object [9, 7, 5, 7, 5];
    BuilderCreateNetworkV2 = "VBuilder::createNetworkV2" fn(u32) -> Object [11, 8, 6, 8, 6];
    BuilderBuildSerializedNetwork = "VBuilder::buildSerializedNetwork" fn(Object, Object) -> Object [17, 14, 11, 14, 11];
    BuilderGetLogger = "VBuilder::getLogger" fn() -> Object [19, 16, 13, 16, 13];
    BuilderSetErrorRecorder = "VBuilder::setErrorRecorder" fn(Object) [13, 10, 8, 10, 8];
    BuilderConfigSetFlag = "VBuilderConfig::setFlag" fn(i32) [15, 11, 9, 9, 9];
    BuilderConfigGetFlag = "VBuilderConfig::getFlag" fn(i32) -> u8 [16, 12, 10, 10, 10];
    BuilderConfigSetMemoryPoolLimit = "VBuilderConfig::setMemoryPoolLimit" fn(i32, usize) [47, 43, 32, 32, 32];
    BuilderConfigGetMemoryPoolLimit = "VBuilderConfig::getMemoryPoolLimit" fn(i32) -> usize [48, 44, 33, 33, 33];
    BuilderConfigSetProgressMonitor = "VBuilderConfig::setProgressMonitor" fn(Object) [NONE, 56, 45, 45, 45];
    BuilderConfigCreateTimingCache = "VBuilderConfig::createTimingCache" fn(*const c_void, usize) -> Object [44, 40, 29, 29, 29];
    BuilderConfigSetTimingCache = "VBuilderConfig::setTimingCache" fn(Object, u8) -> u8 [45, 41, 30, 30, 30];
    BuilderConfigSetProfilingVerbosity = "VBuilderConfig::setProfilingVerbosity" fn(i32) [31, 27, 25, 25, 25];
    BuilderConfigSetBuilderOptimizationLevel = "VBuilderConfig::setBuilderOptimizationLevel" fn(i32) [since(51, 6), 47, 36, 36, 36];
    BuilderConfigGetBuilderOptimizationLevel = "VBuilderConfig::getBuilderOptimizationLevel" fn() -> i32 [since(52, 6), 48, 37, 37, 37];
    BuilderConfigSetNbComputeCapabilities = "VBuilderConfig::setNbComputeCapabilities" fn(i32) -> u8 [NONE, NONE, NONE, 55, 55];
    BuilderConfigSetComputeCapability = "VBuilderConfig::setComputeCapability" fn(i32, i32) -> u8 [NONE, NONE, NONE, 57, 57];
    NetworkDefinitionGetNbLayers = "VNetworkDefinition::getNbLayers" fn() -> i32 [17, 12, 12, 12, 12];
    NetworkDefinitionGetLayer = "VNetworkDefinition::getLayer" fn(i32) -> Object [18, 13, 13, 13, 13];
    NetworkDefinitionGetNbInputs = "VNetworkDefinition::getNbInputs" fn() -> i32 [19, 14, 14, 14, 14];
    NetworkDefinitionGetInput = "VNetworkDefinition::getInput" fn(i32) -> Object [20, 15, 15, 15, 15];
    NetworkDefinitionGetNbOutputs = "VNetworkDefinition::getNbOutputs" fn() -> i32 [21, 16, 16, 16, 16];
    NetworkDefinitionGetOutput = "VNetworkDefinition::getOutput" fn(i32) -> Object [22, 17, 17, 17, 17];
    TensorGetName = "VTensor::getName" fn() -> *const c_char [3, 3, 3, 3, 3];
    TensorGetDimensions8 = "VTensor::getDimensions" fn() -> Dims32 [5, NONE, NONE, NONE, NONE];
    TensorGetDimensions = "VTensor::getDimensions" fn() -> Dims64 [NONE, 5, 5, 5, 5];
    TensorGetType = "VTensor::getType" fn() -> i32 [7, 7, 6, 7, 6];
    LayerGetNbOutputs = "VLayer::getNbOutputs" fn() -> i32 [7, 7, 7, 7, 7];
    LayerGetOutput = "VLayer::getOutput" fn(i32) -> Object [8, 8, 8, 8, 8];
    LayerSetPrecision = "VLayer::setPrecision" fn(i32) [10, 10, NONE, 10, NONE];
    LayerSetOutputType = "VLayer::setOutputType" fn(i32, i32) [14, 14, NONE, 14, NONE];
    HostMemoryData = "VHostMemory::data" fn() -> *mut c_void [2, 2, 2, 2, 2];
    HostMemorySize = "VHostMemory::size" fn() -> usize [3, 3, 3, 3, 3];
    TimingCacheSerialize = "VTimingCache::serialize" fn() -> Object [2, 2, 2, 2, 2];
    RuntimeDeserializeCudaEngine8 = "VRuntime::deserializeCudaEngine" fn(*const c_void, usize, *mut c_void) -> Object [2, NONE, NONE, NONE, NONE];
    RuntimeDeserializeCudaEngine = "VRuntime::deserializeCudaEngine" fn(*const c_void, usize) -> Object [NONE, 3, 3, 3, 3];
    RuntimeGetLogger = "VRuntime::getLogger" fn() -> Object [9, 11, 10, 11, 10];
    RuntimeGetPimpl = "VRuntime::getPImpl" fn() -> Object [since(16, 6), 2, 2, 2, 2];
    RuntimeSetErrorRecorder = "VRuntime::setErrorRecorder" fn(Object) [7, 9, 8, 9, 8];
    RuntimeSetGpuAllocator = "VRuntime::setGpuAllocator" fn(Object) [6, 8, 7, 8, 7];
    RuntimeGetEngineValidity = "VRuntime::getEngineValidity" fn(*const c_void, i64, *mut u64) -> i32 [NONE, NONE, NONE, 25, 24];
    CudaEngineGetNbLayers = "VCudaEngine::getNbLayers" fn() -> i32 [9, 3, 3, 3, 3];
    CudaEngineGetNbIoTensors = "VCudaEngine::getNbIOTensors" fn() -> i32 [45, 30, 26, 28, 26];
    CudaEngineGetIoTensorName = "VCudaEngine::getIOTensorName" fn(i32) -> *const c_char [46, 31, 27, 29, 27];
    CudaEngineGetTensorShape8 = "VCudaEngine::getTensorShape" fn(*const c_char) -> Dims32 [34, NONE, NONE, NONE, NONE];
    CudaEngineGetTensorShape = "VCudaEngine::getTensorShape" fn(*const c_char) -> Dims64 [NONE, 19, 15, 17, 15];
    CudaEngineGetTensorDataType = "VCudaEngine::getTensorDataType" fn(*const c_char) -> i32 [35, 20, 16, 18, 16];
    CudaEngineGetTensorIoMode = "VCudaEngine::getTensorIOMode" fn(*const c_char) -> i32 [38, 23, 19, 21, 19];
    CudaEngineGetDeviceMemorySize = "VCudaEngine::getDeviceMemorySize" fn() -> usize [14, 7, NONE, NONE, NONE];
    CudaEngineGetDeviceMemorySizeV2 = "VCudaEngine::getDeviceMemorySizeV2" fn() -> i64 [NONE, since(52, 3), 44, 50, 44];
    CudaEngineCreateExecutionContext8 = "VCudaEngine::createExecutionContext" fn() -> Object [11, NONE, NONE, NONE, NONE];
    CudaEngineCreateExecutionContext = "VCudaEngine::createExecutionContext" fn(i32) -> Object [NONE, 5, 5, 5, 5];
    CudaEngineCreateExecutionContextWithoutDeviceMemory = "VCudaEngine::createExecutionContextWithoutDeviceMemory" fn() -> Object [13, 6, NONE, NONE, NONE];
    CudaEngineCreateEngineInspector = "VCudaEngine::createEngineInspector" fn() -> Object [33, 18, 14, 16, 14];
    ExecutionContextSetInputShape8 = "VExecutionContext::setInputShape" fn(*const c_char, *const Dims32) -> u8 [29, NONE, NONE, NONE, NONE];
    ExecutionContextSetInputShape = "VExecutionContext::setInputShape" fn(*const c_char, *const Dims64) -> u8 [NONE, 21, 20, 21, 20];
    ExecutionContextSetTensorAddress = "VExecutionContext::setTensorAddress" fn(*const c_char, *mut c_void) -> u8 [32, 24, 23, 24, 23];
    ExecutionContextSetDeviceMemory = "VExecutionContext::setDeviceMemory" fn(*mut c_void) [11, 10, 10, 10, 10];
    ExecutionContextSetDeviceMemoryV2 = "VExecutionContext::setDeviceMemoryV2" fn(*mut c_void, i64) [NONE, since(49, 3), 48, 49, 48];
    ExecutionContextInferShapes = "VExecutionContext::inferShapes" fn(i32, *mut *const c_char) -> i32 [35, 28, 27, 28, 27];
    ExecutionContextEnqueueV3 = "VExecutionContext::enqueueV3" fn(*mut c_void) -> u8 [44, 37, 36, 37, 36];
    ExecutionContextSetProfiler = "VExecutionContext::setProfiler" fn(Object) [6, 5, 5, 5, 5];
    EngineInspectorGetEngineInformation = "VEngineInspector::getEngineInformation" fn(i32) -> *const c_char [5, 6, 6, 6, 6];
    ParserParse = "IParser::parse" fn(*const c_void, usize, *const c_char) -> u8 [0, 0, 0, 0, 0];
    ParserGetNbErrors = "IParser::getNbErrors" fn() -> i32 [6, 5, 3, 5, 3];
    ParserGetError = "IParser::getError" fn(i32) -> Object [7, 6, 4, 6, 4];
    ParserDelete = "IParser::~D0" fn() [10, 9, 7, 9, 7];
    ParserErrorCode = "IParserError::code" fn() -> i32 [0, 0, 0, 0, 0];
    ParserErrorDesc = "IParserError::desc" fn() -> *const c_char [1, 1, 1, 1, 1];
    ParserErrorNode = "IParserError::node" fn() -> i32 [5, 5, 5, 5, 5];
    ParserErrorNodeName = "IParserError::nodeName" fn() -> *const c_char [NONE, 6, 6, 6, 6];
    ParserErrorNodeOperator = "IParserError::nodeOperator" fn() -> *const c_char [NONE, 7, 7, 7, 7];
}
