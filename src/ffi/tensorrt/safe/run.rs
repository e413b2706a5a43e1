//! Runtime, engine, inspector.

use super::super::abi::Raw;
use super::super::callbacks::{self, Callback, DeviceAllocator, Recorder, ReportedError};
use super::super::result;
use super::super::sys::enums;
use super::Owned;
use super::context::Context;
use super::library::Library;
use super::tensor::TensorFacts;
use crate::error::{Error, ErrorKind, Result};
use crate::units::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// [`crate::ErrorKind::Budget`]: there is no memory for it;
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
        if errors.iter().any(|error| says_no_memory(&error.text)) {
            return Error::new(
                ErrorKind::Budget,
                format!("{product} {version} found no device memory for this plan of {length}: {reason}"),
            )
            .hint("`edge-run doctor` says how much of the device is free and who holds the rest");
        }
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

/// The device is full, or an allocator of ours has refused.
fn says_no_memory(text: &str) -> bool {
    ["out of memory", "OutOfMemory", "OUT_OF_MEMORY"].iter().any(|sign| text.contains(sign))
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
        Ok(Context::new(raw, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_told_from_a_bad_plan() {
        assert!(says_no_driver("CUDA initialization failure with error: 35 In checkCudaInstallation"));
        assert!(!says_no_driver("Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed"));
    }
}
