#!/usr/bin/env python3
"""Prints src/ffi/tensorrt/sys/slots.rs from a table of facts: header version, class, slot, method, signature.

usage: tools/tensorrt_slots.py SLOTS.csv > src/ffi/tensorrt/sys/slots.rs

One row a method and signature, one column a family. A slot that a later minor version appended carries that minor version;
where the facts skip versions the next known one counts, which switches the method off on versions that were not seen.
"""
import csv, re, sys

FAMILIES = [  # column title, header versions in the facts with their minor version
    ("8", {"8.5": 5, "8.6": 6}),
    ("10", {"10.0": 0, "10.3": 3, "10.7": 7, "10.8": 8, "10.9": 9, "10.13.3": 13, "10.15": 15, "10.16": 16}),
    ("11", {"11.0": 0, "11.4": 4}),
    ("RTX 1.3", {"rtx1.3": 3, "rtx1.4": 4}),
    ("RTX 1.5", {"rtx1.5": 5, "rtx1.7": 7}),
]
# (class, method[, text that the signature must hold, to choose among overloads])
METHODS = """
VBuilder createBuilderConfig
VBuilder createNetworkV2
VBuilder buildSerializedNetwork
VBuilder getLogger
VBuilder setErrorRecorder
VBuilderConfig setFlag
VBuilderConfig getFlag
VBuilderConfig setMemoryPoolLimit
VBuilderConfig getMemoryPoolLimit
VBuilderConfig setProgressMonitor
VBuilderConfig createTimingCache
VBuilderConfig setTimingCache
VBuilderConfig setProfilingVerbosity
VBuilderConfig setBuilderOptimizationLevel
VBuilderConfig getBuilderOptimizationLevel
VBuilderConfig setNbComputeCapabilities
VBuilderConfig setComputeCapability
VNetworkDefinition getNbLayers
VNetworkDefinition getLayer
VNetworkDefinition getNbInputs
VNetworkDefinition getInput
VNetworkDefinition getNbOutputs
VNetworkDefinition getOutput
VTensor getName
VTensor getDimensions
VTensor getType
VLayer getNbOutputs
VLayer getOutput
VLayer setPrecision
VLayer setOutputType
VHostMemory data
VHostMemory size
VTimingCache serialize
VRuntime deserializeCudaEngine size_t
VRuntime getLogger
VRuntime getPImpl
VRuntime setErrorRecorder
VRuntime setGpuAllocator
VRuntime getEngineValidity
VCudaEngine getNbLayers
VCudaEngine getNbIOTensors
VCudaEngine getIOTensorName
VCudaEngine getTensorShape
VCudaEngine getTensorDataType
VCudaEngine getTensorIOMode
VCudaEngine getDeviceMemorySize
VCudaEngine getDeviceMemorySizeV2
VCudaEngine createExecutionContext
VCudaEngine createExecutionContextWithoutDeviceMemory
VCudaEngine createEngineInspector
VExecutionContext setInputShape
VExecutionContext setTensorAddress
VExecutionContext setDeviceMemory
VExecutionContext setDeviceMemoryV2
VExecutionContext inferShapes
VExecutionContext enqueueV3
VExecutionContext setProfiler
VEngineInspector getEngineInformation
IParser parse
IParser getNbErrors
IParser getError
IParser ~D0
IParserError code
IParserError desc
IParserError node
IParserError nodeName
IParserError nodeOperator
"""

SCALARS = {
    "bool": "u8", "int": "i32", "int32_t": "i32", "int64_t": "i64", "float": "f32", "size_t": "usize", "std::size_t": "usize",
    "uint64_t *": "*mut u64", "const char *": "*const c_char", "const char **": "*mut *const c_char", "const void *": "*const c_void",
    "void *": "*mut c_void", "cudaStream_t": "*mut c_void", "NetworkDefinitionCreationFlags": "u32", "IPluginFactory *": "*mut c_void",
}
ENUMS = {"BuilderFlag", "MemoryPoolType", "ProfilingVerbosity", "ComputeCapability", "DataType",
         "TensorIOMode", "EngineValidity", "ExecutionContextAllocationStrategy",
         "LayerInformationFormat", "ErrorCode"}


def rust_type(text, dims):
    """The Rust type of a C++ parameter or result; `dims` is Dims32 in TensorRT 8 and Dims64 elsewhere."""
    text = text.strip()
    if text == "Dims":
        return dims
    if text == "const Dims &":
        return f"*const {dims}"
    if text in SCALARS:
        return SCALARS[text]
    if text in ENUMS:
        return "i32"
    if re.fullmatch(r"(const )?(nvinfer1::)?I\w+ (\*(const)?|&)", text):
        return "Object"
    sys.exit(f"no Rust type for `{text}`")


def rust_signature(signature, family):
    """`bool (int32_t) const noexcept` → `fn(i32) -> u8`."""
    if signature == "destructor deleting":
        return "fn()"
    result, arguments = re.fullmatch(r"(.*?) \((.*)\)(?: const)?(?: noexcept)?", signature).groups()
    dims = "Dims32" if family == "8" else "Dims64"
    arguments = ", ".join(rust_type(a, dims) for a in arguments.split(",") if a.strip())
    return f"fn({arguments})" + ("" if result.strip() == "void" else f" -> {rust_type(result, dims)}")


def main():
    facts = {}  # (header version, class, method) -> [(slot, signature)]
    for row in csv.DictReader(open(sys.argv[1], encoding="utf-8")):
        name = row["class"].split("::")[-1]
        facts.setdefault((row["header_version"], name, row["method"]), []).append((int(row["slot"]), row["signature"]))
    print("//! Slot and signature of every method that is called, by family. Made by `tools/tensorrt_slots.py`; not edited by hand.")
    print("//!")
    print("//! One line a method and signature. The five numbers are the slots in the virtual table of TensorRT 8, 10, 11, TensorRT-RTX 1.3")
    print("//! and 1.5. `NONE`: the family has no such method with this signature; `since(slot, minor)`: appended by that minor version,")
    print("//! an older library holds something else there. A name that ends in 8 is the same method with TensorRT 8's signature.")
    print()
    print("use super::{Dims32, Dims64, NONE, Object, methods, since};")
    print("use std::ffi::{c_char, c_void};")
    print()
    print("methods! {")
    for line in METHODS.strip().splitlines():
        cls, method, *needle = line.split(maxsplit=2)
        by_signature = {}  # Rust signature -> one cell a family
        for column, (title, versions) in enumerate(FAMILIES):
            slots, signatures = {}, set()
            for version, minor in versions.items():
                found = [f for f in facts.get((version, cls, method), []) if not needle or needle[0] in f[1]]
                if len(found) > 1:
                    sys.exit(f"{version} {cls}::{method} has overloads: {found}")
                if found:
                    slots[minor] = found[0][0]
                    signatures.add(rust_signature(found[0][1], title))
            if not slots:
                continue
            if len(set(slots.values())) > 1 or len(signatures) > 1:
                sys.exit(f"{title} {cls}::{method} changes inside the family: {slots} {signatures}")
            since = min(slots)
            missing = {m for m in versions.values() if m >= since} - set(slots)
            if missing - ({13} if cls.startswith("IParser") else set()):  # the parser's header is not known for 10.13
                sys.exit(f"{title} {cls}::{method} is missing in {missing}")
            slot = next(iter(slots.values()))
            cell = str(slot) if since == min(versions.values()) else f"since({slot}, {since})"
            by_signature.setdefault(signatures.pop(), ["NONE"] * len(FAMILIES))[column] = cell
        for signature, cells in by_signature.items():
            only_8 = len(by_signature) > 1 and cells[0] != "NONE"
            name = camel(cls) + camel("delete" if method == "~D0" else method) + ("8" if only_8 else "")
            print(f'    {name} = "{cls}::{method}" {signature} [{", ".join(cells)}];')
    print("}")


def camel(name):
    if name[0] == "V":
        name = name[1:]
    if name[0] == "I" and name[1].isupper():
        name = name[1:]
    return name[0].upper() + name[1:].replace("IO", "Io").replace("DLA", "Dla").replace("PImpl", "Pimpl")


main()
