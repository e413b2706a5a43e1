//! `IProfiler`: time per layer of one run.

use super::{Callback, Shape, address, destructor, guarded, lock, logger_is_versioned, versioned_prefix};
use crate::ffi::tensorrt::version::Family;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;

/// One layer of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerTime {
    /// TensorRT's name of the layer.
    pub name: String,
    /// Milliseconds on the GPU.
    pub milliseconds: f32,
}

/// The state behind a profiler: layers in the order they ran.
#[derive(Default)]
pub struct LayerTimes(Mutex<Vec<LayerTime>>);

impl LayerTimes {
    /// Takes what was reported since the last call.
    pub fn take(&self) -> Vec<LayerTime> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A profiler in the layout of `family`.
pub(in super::super) fn profiler(family: Family) -> Callback<LayerTimes> {
    let slots = if logger_is_versioned(family) {
        let mut slots = versioned_prefix::<LayerTimes>().to_vec();
        slots.push(address!(report));
        slots
    } else {
        vec![address!(report), address!(destructor), address!(destructor)]
    };
    // SAFETY: the order of IProfiler: `reportLayerTime` and two destructors, or the versioned interface's four before it.
    unsafe { Callback::new(c"IProfiler", &slots, LayerTimes::default()) }
}

unsafe extern "C" fn report(this: *const Shape<LayerTimes>, name: *const c_char, milliseconds: f32) {
    // SAFETY: TensorRT passes back the live object that it was given.
    let state = unsafe { &(*this).payload };
    guarded((), || {
        if name.is_null() {
            return;
        }
        // SAFETY: not null; TensorRT's text ends in 0 and lives during the call.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        lock(&state.0).push(LayerTime { name, milliseconds });
    });
}
