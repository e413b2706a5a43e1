//! The execution context and the memory it is bound to.

use super::super::abi::Raw;
use super::super::callbacks::{self, Callback, LayerTimes};
use super::super::result;
use super::Owned;
use super::run::Engine;
use super::tensor::TensorFacts;
use crate::error::{Error, Result};
use crate::ffi::cuda::{DeviceBuffer, Stream};
use crate::units::Bytes;
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

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
    one_thread_at_a_time: PhantomData<std::cell::Cell<()>>,
}

// SAFETY: a context may move between threads as long as one uses it at a time (NVIDIA's Developer Guide, "Thread Safety"); every
// call needs `&mut self` or is made by the owner.
unsafe impl Send for Context {}

impl Context {
    pub(super) fn new(raw: Raw<result::Context>, engine: &Arc<Engine>) -> Context {
        Context {
            raw: Owned(raw),
            memory: None,
            bound: vec![],
            profiler: None,
            last_stream: None,
            engine: Arc::clone(engine),
            one_thread_at_a_time: PhantomData,
        }
    }

    /// The engine it runs.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Gives activation memory: `bytes` from `offset` of a buffer that the context keeps alive. 512-byte aligned (TensorRT 8.6 refuses less, at the first run).
    ///
    /// # Errors
    /// Less than [`Engine::context_memory`], not aligned, or outside of the buffer.
    pub fn set_memory(&mut self, buffer: &Arc<DeviceBuffer>, offset: usize, bytes: usize) -> Result<()> {
        const ALIGNMENT: u64 = 512;
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
        if !self.engine.tensors().contains(tensor) {
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
        let unbound = self.engine.tensors().len().saturating_sub(self.bound.len());
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
        let errors = self.engine.runtime().take_errors();
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
            let profiler = callbacks::profiler(self.engine.runtime().library().abi().family);
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
