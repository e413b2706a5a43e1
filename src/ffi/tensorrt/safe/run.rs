//! Runtime, engine, execution context, inspector.

use super::super::abi::Raw;
use super::super::callbacks::{self, Callback, DeviceAllocator, LayerTimes, Recorder, ReportedError};
use super::super::result;
use super::super::sys::enums;
use super::Owned;
use super::library::Library;
use crate::error::{Error, Result};
use crate::ffi::cuda::{DeviceBuffer, Stream};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// Type of a tensor's elements. The numbers are the same in every family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataType {
    /// 32-bit floating point.
    Float,
    /// IEEE 16-bit floating point.
    Half,
    /// Signed 8-bit integer, a quantised value.
    Int8,
    /// Signed 32-bit integer.
    Int32,
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    Uint8,
    /// 8-bit floating point.
    Fp8,
    /// Brain 16-bit floating point.
    Bfloat16,
    /// Signed 64-bit integer.
    Int64,
    /// Two signed 4-bit integers a byte.
    Int4,
    /// Two 4-bit floating-point numbers a byte.
    Fp4,
    /// 8-bit exponent of a block scale.
    E8m0,
}

impl DataType {
    const ALL: [DataType; 12] = [
        DataType::Float,
        DataType::Half,
        DataType::Int8,
        DataType::Int32,
        DataType::Bool,
        DataType::Uint8,
        DataType::Fp8,
        DataType::Bfloat16,
        DataType::Int64,
        DataType::Int4,
        DataType::Fp4,
        DataType::E8m0,
    ];

    /// The type with TensorRT's number.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a number that is not known.
    pub(super) fn of(value: i32) -> Result<DataType> {
        usize::try_from(value).ok().and_then(|index| DataType::ALL.get(index).copied()).ok_or_else(|| {
            Error::refused(format!(
                "found tensor type {value}, expected one of TensorRT's 0 to {}",
                DataType::ALL.len() - 1
            ))
        })
    }

    /// TensorRT's number.
    pub(super) fn value(self) -> i32 {
        DataType::ALL
            .iter()
            .position(|&data_type| data_type == self)
            .and_then(|index| i32::try_from(index).ok())
            .unwrap_or(-1)
    }

    /// Whether layers compute in this type, rather than carry it (indices, shapes, masks).
    pub fn computes(self) -> bool {
        matches!(self, DataType::Float | DataType::Half | DataType::Int8 | DataType::Fp8 | DataType::Bfloat16)
    }

    /// Bits of one element.
    pub fn bits(self) -> u64 {
        match self {
            DataType::Float | DataType::Int32 => 32,
            DataType::Half | DataType::Bfloat16 => 16,
            DataType::Int8 | DataType::Bool | DataType::Uint8 | DataType::Fp8 | DataType::E8m0 => 8,
            DataType::Int64 => 64,
            DataType::Int4 | DataType::Fp4 => 4,
        }
    }
}

/// An input or output of a network or an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorFacts {
    /// Name in the graph.
    pub name: String,
    /// Sizes, outermost first; -1 where one is dynamic.
    pub sizes: Vec<i64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// Input, else output.
    pub input: bool,
}

impl TensorFacts {
    pub(super) fn new(name: CString, sizes: Vec<i64>, data_type: i32, input: bool) -> Result<TensorFacts> {
        let name = name.to_string_lossy().into_owned();
        let data_type = DataType::of(data_type).map_err(|error| error.at(format!("tensor `{name}`")))?;
        Ok(TensorFacts { name, sizes, data_type, input })
    }

    /// Length in bytes, dense; `None` when a size is dynamic or the product overflows.
    pub fn bytes(&self) -> Option<u64> {
        let elements =
            self.sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(u64::try_from(size).ok()?))?;
        elements.checked_mul(self.data_type.bits()).map(|bits| bits.div_ceil(8))
    }
}

/// Reads plans. Its error recorder and allocator serve its engines and their contexts too.
pub struct Runtime {
    raw: Owned<result::Runtime>,
    recorder: Callback<Recorder>,
    _allocator: Option<Callback<Arc<dyn DeviceAllocator>>>,
    deserializing: Mutex<()>,
    library: Arc<Library>,
}

// SAFETY: everything that modifies the runtime happens in `new`; afterwards it only deserialises, which NVIDIA's Developer Guide
// ("Thread Safety") lists as thread-safe, and that is serialised by a lock besides.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// A runtime that has passed its self-tests. `allocator` serves TensorRT's own device memory.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`]: no driver where one is needed, no object, or a library whose layout is not the known
    /// one.
    pub fn new(library: &Arc<Library>, allocator: Option<Arc<dyn DeviceAllocator>>) -> Result<Arc<Runtime>> {
        let object = library.create_runtime()?;
        let raw =
            Owned(Raw::<result::Runtime>::new(object, library.abi()).ok_or_else(|| library.no_object("runtime"))?);
        // SAFETY: the object was just made. The first calls are those whose answers are known.
        let known =
            unsafe { raw.0.logger()? == library.logger() && raw.0.itself()?.is_none_or(|itself| itself == object) };
        if !known {
            std::mem::forget(raw);
            return Err(library.mismatch("runtime"));
        }
        let family = library.abi().family;
        let recorder = callbacks::recorder(family);
        // SAFETY: the recorder has this family's layout and is dropped after the runtime (field order), which every engine and
        // context holds.
        unsafe { raw.0.set_error_recorder(recorder.object()) }?;
        let allocator = allocator.map(|memory| callbacks::allocator(family, memory));
        if let Some(allocator) = &allocator {
            // SAFETY: as for the recorder.
            unsafe { raw.0.set_allocator(allocator.object()) }?;
        }
        let library = Arc::clone(library);
        Ok(Arc::new(Runtime { raw, recorder, _allocator: allocator, deserializing: Mutex::new(()), library }))
    }

    /// The library it came from.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Reads a plan. The CUDA context of the device that is to run it must be current on this thread.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`]: TensorRT does not take it (wrong version, wrong device, damaged);
    /// [`crate::ErrorKind::MachineLacks`]: there is no working driver or device.
    pub fn deserialize(self: &Arc<Self>, plan: &[u8]) -> Result<Arc<Engine>> {
        if plan.is_empty() {
            return Err(Error::refused("found an empty plan, expected the bytes that a build gave"));
        }
        let _one_at_a_time = self.deserializing.lock().unwrap_or_else(PoisonError::into_inner);
        self.recorder.payload().take();
        // SAFETY: the runtime lives, the bytes are only read during the call, and deserialising is thread-safe.
        match unsafe { self.raw.0.deserialize(plan) }? {
            Some(raw) => {
                let raw = Owned(raw);
                let tensors = tensors_of(raw.0)?;
                Ok(Arc::new(Engine { raw, tensors, runtime: Arc::clone(self) }))
            }
            None => Err(self.plan_refused(plan)),
        }
    }

    fn plan_refused(&self, plan: &[u8]) -> Error {
        let errors = self.recorder.payload().take();
        let reason = errors.first().map_or("it gave no reason".to_owned(), |error| error.text.clone());
        let product = self.library.flavour().product();
        let version = self.library.version();
        if errors.first().is_some_and(|error| says_no_driver(&error.text)) {
            return Error::machine_lacks(format!(
                "{product} {version} needs a GPU and its driver to read a plan: {reason}"
            ))
            .hint("run this on the device that the plan is for");
        }
        let length = Bytes(crate::units::count(plan.len()));
        Error::refused(format!("{product} {version} does not take this plan of {length}: {reason}"))
            .hint("a plan runs on the TensorRT version and compute capability it was built for: build it again for this machine")
    }

    /// What TensorRT reported to this runtime, its engines and contexts since the last call.
    pub fn take_errors(&self) -> Vec<ReportedError> {
        self.recorder.payload().take()
    }

    /// Whether the library would take this plan on this machine; `None` where it cannot say (all but TensorRT-RTX).
    ///
    /// # Errors
    /// None in a known version.
    pub fn accepts(&self, plan: &[u8]) -> Result<Option<bool>> {
        let _one_at_a_time = self.deserializing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the runtime lives and the bytes are only read during the call.
        unsafe { self.raw.0.accepts(plan) }
    }
}

/// `cudaErrorInsufficientDriver` (35), `cudaErrorNoDevice` (100): TensorRT has only the CUDA runtime's number to tell.
fn says_no_driver(text: &str) -> bool {
    ["CUDA error 35", "error: 35", "error 35", "CUDA error 100", "error: 100", "no CUDA-capable device", "insufficient"]
        .iter()
        .any(|sign| text.contains(sign))
}

fn tensors_of(engine: Raw<result::Engine>) -> Result<Vec<TensorFacts>> {
    // SAFETY: the caller's engine lives; so below.
    let count = unsafe { engine.tensors() }?;
    (0..count)
        .map(|index| {
            // SAFETY: the index is below the count.
            let name = unsafe { engine.tensor_name(index) }?;
            // SAFETY: the name is one of the engine's.
            let (sizes, data_type, mode) =
                unsafe { (engine.tensor_sizes(&name)?, engine.tensor_type(&name)?, engine.tensor_mode(&name)?) };
            let input = match mode {
                enums::TENSOR_IO_INPUT => true,
                enums::TENSOR_IO_OUTPUT => false,
                _ => return Err(Error::refused(format!("found tensor direction {mode}, expected input or output"))),
            };
            TensorFacts::new(name, sizes, data_type, input)
        })
        .collect()
}

/// A plan that was read. May be asked from several threads.
pub struct Engine {
    raw: Owned<result::Engine>,
    tensors: Vec<TensorFacts>,
    runtime: Arc<Runtime>,
}

// SAFETY: only non-modifying calls and context creation, which NVIDIA's Developer Guide ("Thread Safety") lists as thread-safe.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

impl Engine {
    /// The runtime that read it.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Number of layers after fusion.
    ///
    /// # Errors
    /// None in a known version.
    pub fn layers(&self) -> Result<u32> {
        // SAFETY: the engine lives; so in every call below.
        Ok(u32::try_from(unsafe { self.raw.0.layers() }?).unwrap_or(0))
    }

    /// Inputs and outputs in the engine's order.
    pub fn tensors(&self) -> &[TensorFacts] {
        &self.tensors
    }

    /// Device memory that one context needs for activations.
    ///
    /// # Errors
    /// None in a known version.
    pub fn context_memory(&self) -> Result<Bytes> {
        // SAFETY: as in `layers`.
        unsafe { self.raw.0.context_bytes() }.map(Bytes)
    }

    /// The layers as TensorRT's inspector describes them: JSON, in full when the plan was built with
    /// [`super::ProfilingVerbosity::Detailed`].
    ///
    /// # Errors
    /// TensorRT gives none.
    pub fn layer_information(&self) -> Result<String> {
        // SAFETY: the engine lives, and the inspector until the end of this function.
        let inspector = Owned(unsafe { self.raw.0.create_inspector() }?);
        // SAFETY: as above.
        unsafe { inspector.0.engine_information() }
    }

    /// A context whose activation memory is given with [`Context::set_memory`].
    ///
    /// # Errors
    /// TensorRT gives none; its reason is in the message.
    pub fn create_context(self: &Arc<Self>) -> Result<Context> {
        // SAFETY: the engine lives; creating contexts is thread-safe.
        let Some(raw) = unsafe { self.raw.0.create_context() }? else {
            let errors = self.runtime.take_errors();
            let reason = errors.first().map_or("it gave no reason", |error| error.text.as_str());
            return Err(Error::new(crate::ErrorKind::Device, format!("TensorRT gave no execution context: {reason}")));
        };
        Ok(Context {
            raw: Owned(raw),
            memory: None,
            bound: vec![],
            profiler: None,
            last_stream: None,
            engine: Arc::clone(self),
            one_thread_at_a_time: std::marker::PhantomData,
        })
    }
}

/// The state of one execution. Belongs to one thread at a time:
///
/// ```
/// fn must_be_send<T: Send>() {}
/// must_be_send::<edge_trt::ffi::tensorrt::Context>();
/// must_be_send::<std::sync::Arc<edge_trt::ffi::tensorrt::Engine>>();
/// ```
///
/// and is not shared between threads:
///
/// ```compile_fail,E0277
/// fn must_be_sync<T: Sync>() {}
/// must_be_sync::<edge_trt::ffi::tensorrt::Context>();
/// ```
///
/// A context keeps its engine; the engine cannot be taken from under it:
///
/// ```compile_fail,E0505
/// use edge_trt::ffi::tensorrt::Context;
/// fn steal(context: Context) {
///     let engine = context.engine();
///     drop(context);
///     println!("{:?}", engine.layers());
/// }
/// ```
pub struct Context {
    raw: Owned<result::Context>,
    memory: Option<Arc<DeviceBuffer>>,
    bound: Vec<(CString, Arc<DeviceBuffer>)>,
    profiler: Option<Callback<LayerTimes>>,
    last_stream: Option<Arc<Stream>>,
    engine: Arc<Engine>,
    one_thread_at_a_time: std::marker::PhantomData<std::cell::Cell<()>>,
}

// SAFETY: a context may move between threads as long as one uses it at a time (NVIDIA's Developer Guide, "Thread Safety"); every
// call needs `&mut self` or is made by the owner.
unsafe impl Send for Context {}

impl Context {
    /// The engine it runs.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Gives activation memory: `bytes` from `offset` of a buffer that the context keeps alive. 256-byte aligned.
    ///
    /// # Errors
    /// Less than [`Engine::context_memory`], not aligned, or outside of the buffer.
    pub fn set_memory(&mut self, buffer: &Arc<DeviceBuffer>, offset: usize, bytes: usize) -> Result<()> {
        const ALIGNMENT: u64 = 256;
        let (address, needed) = (buffer.part(offset, bytes)?, self.engine.context_memory()?);
        if crate::units::count(bytes) < needed.0 || !address.is_multiple_of(ALIGNMENT) {
            let found = Bytes(crate::units::count(bytes));
            return Err(Error::unexpected(format!(
                "found {found} of activation memory at {address:#x}, expected {needed} aligned to {ALIGNMENT} bytes"
            )));
        }
        self.finish()?;
        let length = i64::try_from(bytes).unwrap_or(i64::MAX);
        // SAFETY: the range was checked, the buffer is kept by `self`, and no work is under way.
        unsafe { self.raw.0.set_memory(pointer(address), length) }?;
        self.memory = Some(Arc::clone(buffer));
        Ok(())
    }

    /// Binds a tensor to memory from `offset` of a buffer that the context keeps alive.
    ///
    /// # Errors
    /// No such tensor, a dynamic one, or one that does not fit behind `offset`.
    pub fn bind(&mut self, tensor: &TensorFacts, buffer: &Arc<DeviceBuffer>, offset: usize) -> Result<()> {
        let at = |error: Error| error.at(format!("tensor `{}`", tensor.name));
        let bytes = tensor.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes =
            bytes.ok_or_else(|| at(Error::refused(format!("found sizes {:?}, expected fixed ones", tensor.sizes))))?;
        if !self.engine.tensors.contains(tensor) {
            return Err(at(Error::unexpected("found a tensor that is not the engine's")));
        }
        let address = buffer.part(offset, bytes).map_err(at)?;
        let name =
            CString::new(tensor.name.as_str()).map_err(|_| at(Error::refused("found a name with a zero byte")))?;
        self.finish()?;
        // SAFETY: the range was checked, the buffer is kept by `self`, and no work is under way.
        if !unsafe { self.raw.0.set_address(&name, pointer(address)) }? {
            return Err(at(Error::refused("TensorRT does not take this address")));
        }
        if tensor.input {
            self.set_input_sizes(&name, &tensor.sizes).map_err(at)?;
        }
        self.bound.retain(|entry| entry.0 != name);
        self.bound.push((name, Arc::clone(buffer)));
        Ok(())
    }

    fn set_input_sizes(&mut self, name: &CStr, sizes: &[i64]) -> Result<()> {
        // SAFETY: the context lives and no work is under way.
        if unsafe { self.raw.0.set_input_sizes(name, sizes) }? {
            Ok(())
        } else {
            Err(Error::refused(format!("TensorRT does not take the sizes {sizes:?}")))
        }
    }

    /// Checks that everything is bound; to be called once before the first [`Context::enqueue`].
    ///
    /// # Errors
    /// Activation memory or a tensor's address is missing.
    pub fn check(&self) -> Result<()> {
        // SAFETY: the context lives.
        let missing = unsafe { self.raw.0.infer_shapes() }?;
        let unbound = self.engine.tensors.len().saturating_sub(self.bound.len());
        match (missing, unbound, &self.memory) {
            (0, 0, Some(_)) => Ok(()),
            (_, _, None) => Err(Error::unexpected("found no activation memory, expected `set_memory` first")),
            _ => Err(Error::unexpected(format!(
                "found {unbound} tensors unbound and {missing} without sizes, expected none"
            ))),
        }
    }

    /// Enqueues one run on a stream. The buffers stay the context's until the stream is done.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Device`] with TensorRT's reason.
    pub fn enqueue(&mut self, stream: &Arc<Stream>) -> Result<()> {
        if self.memory.is_none() {
            return Err(Error::unexpected("found no activation memory, expected `set_memory` first"));
        }
        if !self.last_stream.as_ref().is_some_and(|last| Arc::ptr_eq(last, stream)) {
            self.finish()?;
            self.last_stream = Some(Arc::clone(stream));
        }
        stream.context().make_current()?;
        // SAFETY: context and stream live, memory and tensors are bound to buffers that `self` keeps, and drop waits for the stream.
        if unsafe { self.raw.0.enqueue(stream.handle()) }? {
            return Ok(());
        }
        let errors = self.engine.runtime.take_errors();
        let reason = errors.first().map_or("it gave no reason", |error| error.text.as_str());
        Err(Error::new(crate::ErrorKind::Device, format!("TensorRT did not run the network: {reason}")))
    }

    /// Measures every layer of later runs; such runs wait for the GPU and are slow.
    ///
    /// # Errors
    /// None in a known version.
    pub fn profile_layers(&mut self) -> Result<&LayerTimes> {
        self.finish()?;
        if self.profiler.is_none() {
            let profiler = callbacks::profiler(self.engine.runtime.library.abi().family);
            // SAFETY: the profiler has this family's layout and is dropped after the context (field order).
            unsafe { self.raw.0.set_profiler(profiler.object()) }?;
            self.profiler = Some(profiler);
        }
        self.profiler
            .as_ref()
            .map(Callback::payload)
            .ok_or_else(|| Error::unexpected("the profiler was set and is gone"))
    }

    /// Waits for the work enqueued last.
    fn finish(&mut self) -> Result<()> {
        match self.last_stream.take() {
            Some(stream) => stream.synchronize(),
            None => Ok(()),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            log::warn!("while freeing an execution context: {}", error.message());
        }
    }
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_tensor_count_bits_and_refuse_dynamic_sizes() {
        let tensor =
            |sizes: &[i64], data_type| TensorFacts { name: "t".into(), sizes: sizes.into(), data_type, input: true };
        assert_eq!(tensor(&[1, 3, 640, 640], DataType::Half).bytes(), Some(2 * 3 * 640 * 640));
        assert_eq!(tensor(&[3], DataType::Int4).bytes(), Some(2));
        assert_eq!(tensor(&[], DataType::Float).bytes(), Some(4));
        assert_eq!(tensor(&[-1, 3], DataType::Float).bytes(), None);
        assert_eq!(tensor(&[i64::MAX, i64::MAX], DataType::Float).bytes(), None);
        for (number, data_type) in (0..).zip(DataType::ALL) {
            assert_eq!(data_type.value(), number);
            assert_eq!(DataType::of(number).unwrap(), data_type);
        }
        assert!(DataType::of(12).is_err() && DataType::of(-1).is_err());
    }

    #[test]
    fn a_missing_driver_is_told_from_a_bad_plan() {
        assert!(says_no_driver("CUDA initialization failure with error: 35 In checkCudaInstallation"));
        assert!(!says_no_driver("Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed"));
    }
}
