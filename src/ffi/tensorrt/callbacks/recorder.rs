//! `IErrorRecorder`: the errors of one builder or runtime. Once set, they come here and no longer to the logger.

use super::{Callback, Shape, address, guarded, lock, prefix};
use crate::ffi::tensorrt::version::Family;
use std::ffi::{CStr, CString, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Errors kept; more only set the overflow mark.
const MOST_ERRORS: usize = 64;

/// `nvinfer1::ErrorCode`, the values that mean something to us.
const CODE_BUILD_CANCELLED: i32 = 7;

/// One error that TensorRT reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedError {
    /// `nvinfer1::ErrorCode`.
    pub code: i32,
    /// TensorRT's text.
    pub text: String,
}

impl ReportedError {
    /// Whether it only says that the build was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.code == CODE_BUILD_CANCELLED && self.text.contains("ancel")
    }
}

/// The state behind an error recorder.
#[derive(Default)]
pub(in super::super) struct Recorder {
    errors: Mutex<Vec<(i32, CString)>>,
    overflowed: AtomicBool,
    references: AtomicI32,
}

impl Recorder {
    /// Takes what was reported since the last call. TensorRT must not be in a call on the object at the time, as it may hold a
    /// text of ours.
    pub(in super::super) fn take(&self) -> Vec<ReportedError> {
        self.overflowed.store(false, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.errors))
            .into_iter()
            .map(|(code, text)| ReportedError { code, text: text.to_string_lossy().into_owned() })
            .collect()
    }
}

/// An error recorder in the layout of `family`.
pub(in super::super) fn recorder(family: Family) -> Callback<Recorder> {
    let mut slots = prefix::<Recorder>(family);
    slots.extend([
        address!(count),
        address!(code),
        address!(description),
        address!(overflowed),
        address!(clear),
        address!(report),
        address!(add_reference),
        address!(drop_reference),
    ]);
    // SAFETY: the order of IErrorRecorder in every family, after the family's prefix.
    unsafe { Callback::new(c"IErrorRecorder", &slots, Recorder::default()) }
}

unsafe extern "C" fn count(this: *const Shape<Recorder>) -> i32 {
    // SAFETY: TensorRT passes back the live object that it was given; so in every function below.
    let state = unsafe { &(*this).payload };
    guarded(0, || i32::try_from(lock(&state.errors).len()).unwrap_or(i32::MAX))
}

unsafe extern "C" fn code(this: *const Shape<Recorder>, index: i32) -> i32 {
    // SAFETY: see `count`.
    let state = unsafe { &(*this).payload };
    guarded(0, || {
        usize::try_from(index).ok().and_then(|i| lock(&state.errors).get(i).map(|error| error.0)).unwrap_or(0)
    })
}

unsafe extern "C" fn description(this: *const Shape<Recorder>, index: i32) -> *const c_char {
    // SAFETY: see `count`.
    let state = unsafe { &(*this).payload };
    let none = c"".as_ptr();
    guarded(none, || {
        usize::try_from(index)
            .ok()
            .and_then(|i| lock(&state.errors).get(i).map(|error| error.1.as_ptr()))
            .unwrap_or(none)
    })
}

unsafe extern "C" fn overflowed(this: *const Shape<Recorder>) -> u8 {
    // SAFETY: see `count`.
    u8::from(unsafe { &(*this).payload }.overflowed.load(Ordering::Relaxed))
}

unsafe extern "C" fn clear(this: *const Shape<Recorder>) {
    // SAFETY: see `count`.
    let state = unsafe { &(*this).payload };
    guarded((), || lock(&state.errors).clear());
}

unsafe extern "C" fn report(this: *const Shape<Recorder>, code: i32, text: *const c_char) -> u8 {
    // SAFETY: see `count`.
    let state = unsafe { &(*this).payload };
    guarded((), || {
        // SAFETY: checked for null; TensorRT's text ends in 0 and lives during the call.
        let text = if text.is_null() { CString::default() } else { unsafe { CStr::from_ptr(text) }.to_owned() };
        ::log::debug!(target: "tensorrt", "error {code}: {}", text.to_string_lossy());
        let mut errors = lock(&state.errors);
        if errors.len() < MOST_ERRORS {
            errors.push((code, text));
        } else {
            state.overflowed.store(true, Ordering::Relaxed);
        }
    });
    1
}

unsafe extern "C" fn add_reference(this: *const Shape<Recorder>) -> i32 {
    // SAFETY: see `count`. The count is only told: the owner keeps the recorder longer than TensorRT's objects.
    unsafe { &(*this).payload }.references.fetch_add(1, Ordering::Relaxed) + 1
}

unsafe extern "C" fn drop_reference(this: *const Shape<Recorder>) -> i32 {
    // SAFETY: see `count`.
    unsafe { &(*this).payload }.references.fetch_sub(1, Ordering::Relaxed) - 1
}
