//! Runtime, engine, context, inspector.

use super::super::abi::{Raw, call};
use super::super::sys::{self, Object, enums};
use super::{Context, Engine, Inspector, Runtime, by_dims, null, sizes32, sizes64, text_of};
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_void};

impl Raw<Runtime> {
    pub(in super::super) unsafe fn logger(self) -> Result<Object> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::RuntimeGetLogger) })
    }

    /// The public object again; `None` where the method is missing (8.5).
    pub(in super::super) unsafe fn itself(self) -> Result<Option<Object>> {
        if !self.abi().has::<sys::RuntimeGetPimpl>() {
            return Ok(None);
        }
        // SAFETY: the caller's, see the module.
        Ok(Some(unsafe { call!(self, sys::RuntimeGetPimpl) }))
    }

    pub(in super::super) unsafe fn set_error_recorder(self, recorder: Object) -> Result<()> {
        // SAFETY: the caller's; the recorder outlives the runtime and its engines.
        unsafe { call!(self, sys::RuntimeSetErrorRecorder, recorder) };
        Ok(())
    }

    pub(in super::super) unsafe fn set_allocator(self, allocator: Object) -> Result<()> {
        // SAFETY: the caller's; the allocator outlives the runtime and its engines.
        unsafe { call!(self, sys::RuntimeSetGpuAllocator, allocator) };
        Ok(())
    }

    /// Whether the library would take this plan on this machine; `None` where it cannot say.
    pub(in super::super) unsafe fn accepts(self, plan: &[u8]) -> Result<Option<bool>> {
        if !self.abi().has::<sys::RuntimeGetEngineValidity>() {
            return Ok(None);
        }
        let mut diagnostics = 0_u64;
        let length = i64::try_from(plan.len()).unwrap_or(i64::MAX);
        // SAFETY: the caller's; the plan is only read, and the diagnostics are written, during the call.
        let validity = unsafe {
            call!(self, sys::RuntimeGetEngineValidity, plan.as_ptr().cast::<c_void>(), length, &raw mut diagnostics)
        };
        Ok(Some((0..=enums::ENGINE_SUBOPTIMAL).contains(&validity)))
    }

    /// `None` when the plan is refused; the reason is with the error recorder.
    pub(in super::super) unsafe fn deserialize(self, plan: &[u8]) -> Result<Option<Raw<Engine>>> {
        let start = plan.as_ptr().cast::<c_void>();
        let object = if self.abi().has::<sys::RuntimeDeserializeCudaEngine8>() {
            let no_plugin_factory = std::ptr::null_mut();
            // SAFETY: the caller's; the plan is only read during the call.
            unsafe { call!(self, sys::RuntimeDeserializeCudaEngine8, start, plan.len(), no_plugin_factory) }
        } else {
            // SAFETY: the caller's; the plan is only read during the call.
            unsafe { call!(self, sys::RuntimeDeserializeCudaEngine, start, plan.len()) }
        };
        Ok(Raw::new(object, self.abi()))
    }
}

impl Raw<Engine> {
    pub(in super::super) unsafe fn layers(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::CudaEngineGetNbLayers) })
    }

    pub(in super::super) unsafe fn tensors(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::CudaEngineGetNbIoTensors) })
    }

    pub(in super::super) unsafe fn tensor_name(self, index: i32) -> Result<CString> {
        // SAFETY: the caller's, see the module.
        let name = unsafe { call!(self, sys::CudaEngineGetIoTensorName, index) };
        if name.is_null() {
            return Err(null("getIOTensorName"));
        }
        // SAFETY: the name belongs to the engine, ends in 0 and does not change.
        Ok(unsafe { CStr::from_ptr(name) }.to_owned())
    }

    pub(in super::super) unsafe fn tensor_sizes(self, name: &CStr) -> Result<Vec<i64>> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { by_dims!(self, sys::CudaEngineGetTensorShape8, sys::CudaEngineGetTensorShape, name.as_ptr()) })
    }

    pub(in super::super) unsafe fn tensor_type(self, name: &CStr) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::CudaEngineGetTensorDataType, name.as_ptr()) })
    }

    pub(in super::super) unsafe fn tensor_mode(self, name: &CStr) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::CudaEngineGetTensorIoMode, name.as_ptr()) })
    }

    /// Bytes of device memory that a context needs for activations.
    pub(in super::super) unsafe fn context_bytes(self) -> Result<u64> {
        if self.abi().has::<sys::CudaEngineGetDeviceMemorySizeV2>() {
            // SAFETY: the caller's, see the module.
            let bytes = unsafe { call!(self, sys::CudaEngineGetDeviceMemorySizeV2) };
            return u64::try_from(bytes).map_err(|_| Error::unexpected(format!("TensorRT wants {bytes} bytes")));
        }
        // SAFETY: the caller's, see the module.
        Ok(crate::units::count(unsafe { call!(self, sys::CudaEngineGetDeviceMemorySize) }))
    }

    /// A context whose activation memory the caller provides.
    pub(in super::super) unsafe fn create_context(self) -> Result<Option<Raw<Context>>> {
        let object = if self.abi().has::<sys::CudaEngineCreateExecutionContext8>() {
            // SAFETY: the caller's, see the module.
            unsafe { call!(self, sys::CudaEngineCreateExecutionContextWithoutDeviceMemory) }
        } else {
            // SAFETY: the caller's, see the module.
            unsafe { call!(self, sys::CudaEngineCreateExecutionContext, enums::CONTEXT_MEMORY_USER_MANAGED) }
        };
        Ok(Raw::new(object, self.abi()))
    }

    pub(in super::super) unsafe fn create_inspector(self) -> Result<Raw<Inspector>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::CudaEngineCreateEngineInspector) };
        Raw::new(object, self.abi()).ok_or_else(|| null("createEngineInspector"))
    }
}

impl Raw<Context> {
    /// Gives the activation memory.
    pub(in super::super) unsafe fn set_memory(self, address: *mut c_void, bytes: i64) -> Result<()> {
        if self.abi().has::<sys::ExecutionContextSetDeviceMemoryV2>() {
            // SAFETY: the caller's; the memory outlives the context's use of it.
            unsafe { call!(self, sys::ExecutionContextSetDeviceMemoryV2, address, bytes) };
        } else {
            // SAFETY: the caller's; the memory outlives the context's use of it.
            unsafe { call!(self, sys::ExecutionContextSetDeviceMemory, address) };
        }
        Ok(())
    }

    pub(in super::super) unsafe fn set_address(self, name: &CStr, address: *mut c_void) -> Result<bool> {
        // SAFETY: the caller's; the memory outlives the context's use of it.
        Ok(unsafe { call!(self, sys::ExecutionContextSetTensorAddress, name.as_ptr(), address) } != 0)
    }

    pub(in super::super) unsafe fn set_input_sizes(self, name: &CStr, sizes: &[i64]) -> Result<bool> {
        let accepted = if self.abi().has::<sys::ExecutionContextSetInputShape8>() {
            let sizes = sizes32(sizes)?;
            // SAFETY: the caller's; the sizes are only read during the call.
            unsafe { call!(self, sys::ExecutionContextSetInputShape8, name.as_ptr(), &raw const sizes) }
        } else {
            let sizes = sizes64(sizes)?;
            // SAFETY: the caller's; the sizes are only read during the call.
            unsafe { call!(self, sys::ExecutionContextSetInputShape, name.as_ptr(), &raw const sizes) }
        };
        Ok(accepted != 0)
    }

    /// Number of inputs whose sizes or addresses are missing.
    pub(in super::super) unsafe fn infer_shapes(self) -> Result<i32> {
        // SAFETY: the caller's; with 0 names wanted TensorRT writes none.
        Ok(unsafe { call!(self, sys::ExecutionContextInferShapes, 0, std::ptr::null_mut()) })
    }

    pub(in super::super) unsafe fn enqueue(self, stream: *mut c_void) -> Result<bool> {
        // SAFETY: the caller's; the stream belongs to the context's device.
        Ok(unsafe { call!(self, sys::ExecutionContextEnqueueV3, stream) } != 0)
    }

    pub(in super::super) unsafe fn set_profiler(self, profiler: Object) -> Result<()> {
        // SAFETY: the caller's; the profiler outlives the context.
        unsafe { call!(self, sys::ExecutionContextSetProfiler, profiler) };
        Ok(())
    }
}

impl Raw<Inspector> {
    /// The engine's layers as JSON.
    pub(in super::super) unsafe fn engine_information(self) -> Result<String> {
        // SAFETY: the caller's; the text belongs to the inspector.
        let text =
            unsafe { text_of(call!(self, sys::EngineInspectorGetEngineInformation, enums::LAYER_INFORMATION_JSON)) };
        if text.is_empty() { Err(null("getEngineInformation")) } else { Ok(text) }
    }
}
