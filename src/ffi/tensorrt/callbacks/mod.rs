//! Objects that TensorRT calls: logger, error recorder, progress monitor, GPU allocator, profiler.
//!
//! TensorRT sees `{ pointer to a table of functions, … }`. A table is `[offset to top = 0, type information = null, slots…,
//! spare slots]`; the spare slots answer calls of methods that a later interface version adds. The type information may be
//! null: no library looks at it. Nothing here lets a panic out: each function catches it and answers the harmless default.

mod allocator;
mod log;
mod profiler;
mod progress;
mod recorder;

pub(super) use self::log::logger;
pub use allocator::DeviceAllocator;
pub(super) use allocator::allocator;
pub use log::{FoldedLine, LogCollector, Severity, collect_log};
pub(super) use profiler::profiler;
pub use profiler::{LayerTime, LayerTimes};
pub(super) use progress::{Monitor, monitor};
pub use progress::{Phase, ProgressMonitor};
pub use recorder::ReportedError;
pub(super) use recorder::{Recorder, recorder};

use super::sys::Object;
use super::version::Family;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// Slots after the last known one.
const SPARE_SLOTS: usize = 8;

/// What TensorRT points at: it reads the first word, the rest is ours.
#[repr(C)]
pub(super) struct Shape<T> {
    table: *const usize,
    kind: *const c_char,
    payload: T,
}

/// One of our objects with its table of functions; frees both.
///
/// Whoever hands its address to TensorRT keeps it until every TensorRT object that saw it is gone.
pub(super) struct Callback<T: Send + Sync> {
    object: NonNull<Shape<T>>,
    table: NonNull<[usize]>,
}

// SAFETY: the table is never written after creation, and the payload may be used from any thread at once (`T: Send + Sync`),
// which TensorRT does: "called from multiple internal threads".
unsafe impl<T: Send + Sync> Send for Callback<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Callback<T> {}

impl<T: Send + Sync> Callback<T> {
    /// Lays out an object with these functions in slot order.
    ///
    /// # Safety
    /// Each entry is the address of an `extern "C"` function with the signature of the C++ method in that slot of the interface
    /// `kind`, whose `this` is `*const Shape<T>`.
    unsafe fn new(kind: &'static CStr, slots: &[usize], payload: T) -> Self {
        let table: Vec<usize> = [0, 0]
            .into_iter()
            .chain(slots.iter().copied())
            .chain(std::iter::repeat_n(address!(unexpected), SPARE_SLOTS))
            .collect();
        let table = Box::leak(table.into_boxed_slice());
        let first_slot = &raw const table[2];
        let object = Box::leak(Box::new(Shape { table: first_slot, kind: kind.as_ptr(), payload }));
        Callback { object: NonNull::from(object), table: NonNull::from(table) }
    }

    /// The address that TensorRT is given.
    pub(super) fn object(&self) -> Object {
        self.object.as_ptr().cast()
    }

    /// Our data.
    pub(super) fn payload(&self) -> &T {
        // SAFETY: the object lives until drop and only shared references to it are ever made.
        unsafe { &(*self.object.as_ptr()).payload }
    }
}

impl<T: Send + Sync> Drop for Callback<T> {
    fn drop(&mut self) {
        // SAFETY: both came from a leaked box in `new`, are freed once, and the owner kept this value until TensorRT had let go.
        unsafe {
            drop(Box::from_raw(self.object.as_ptr()));
            drop(Box::from_raw(self.table.as_ptr()));
        }
    }
}

/// The address of a function for a slot.
macro_rules! address {
    ($function:expr) => {
        $function as *const () as usize
    };
}
use address;

/// `nvinfer1::InterfaceInfo`, returned in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
struct InterfaceInfo {
    kind: *const c_char,
    major: i32,
    minor: i32,
}

const _: () = assert!(size_of::<InterfaceInfo>() == 16);

/// The four slots in front of every `IVersionedInterface`.
fn versioned_prefix<T>() -> [usize; 4] {
    [address!(api_language), address!(interface_info::<T>), address!(destructor), address!(destructor)]
}

/// The slots before the methods: two destructors in TensorRT 8, the versioned interface's four elsewhere.
fn prefix<T>(family: Family) -> Vec<usize> {
    if family == Family::TensorRt8 {
        vec![address!(destructor), address!(destructor)]
    } else {
        versioned_prefix::<T>().to_vec()
    }
}

/// Whether `ILogger` and `IProfiler` are versioned interfaces: since TensorRT 11 and TensorRT-RTX 1.5.
fn logger_is_versioned(family: Family) -> bool {
    matches!(family, Family::TensorRt11 | Family::Rtx15)
}

/// TensorRT never owns our objects: both destructors do nothing.
extern "C" fn destructor(_: *const Shape<()>) {}

extern "C" fn api_language(_: *const Shape<()>) -> i32 {
    const CPP: i32 = 0;
    CPP
}

unsafe extern "C" fn interface_info<T>(this: *const Shape<T>) -> InterfaceInfo {
    // SAFETY: TensorRT passes back the address that `Callback::object` gave it, and the object lives.
    InterfaceInfo { kind: unsafe { (*this).kind }, major: 1, minor: 0 }
}

/// A slot past the ones that this interface version has.
extern "C" fn unexpected(_: *const Shape<()>) -> usize {
    guarded(0, || {
        ::log::error!(target: "tensorrt", "TensorRT called a method of ours that is not known; it was answered with 0");
        0
    })
}

/// Runs `body`; a panic becomes `default`, as it must not cross into C++.
fn guarded<R>(default: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(default)
}

/// Locks; a poisoned lock still guards data that are whole, as each critical section is one push or one read.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
