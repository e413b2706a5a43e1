//! `IProgressMonitor`: phases of a build, and the only way to cancel one. TensorRT 8 has none.

use super::{Callback, Shape, address, guarded, lock, versioned_prefix};
use std::ffi::{CStr, c_char};
use std::sync::Mutex;

/// A phase that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// TensorRT's name of it.
    pub name: String,
    /// Steps done.
    pub done: u32,
    /// Steps in all.
    pub steps: u32,
}

/// Watches a build.
pub trait ProgressMonitor: Send + Sync {
    /// The phases under way, outermost first, after one of them began, stepped or ended. `false` cancels the build.
    fn progress(&self, phases: &[Phase]) -> bool;
}

/// The state behind a progress monitor.
pub(in super::super) struct Monitor {
    phases: Mutex<Vec<Phase>>,
    watcher: std::sync::Arc<dyn ProgressMonitor>,
}

/// A progress monitor; the layout is the same in every family that has one.
pub(in super::super) fn monitor(watcher: std::sync::Arc<dyn ProgressMonitor>) -> Callback<Monitor> {
    let mut slots = versioned_prefix::<Monitor>().to_vec();
    slots.extend([address!(phase_start), address!(step_complete), address!(phase_finish)]);
    // SAFETY: the order of IProgressMonitor: the versioned interface's four, phaseStart, stepComplete, phaseFinish.
    unsafe { Callback::new(c"IProgressMonitor", &slots, Monitor { phases: Mutex::default(), watcher }) }
}

/// # Safety
/// `text` is null or a string that ends in 0 and lives during the call.
unsafe fn name_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, the rest is the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn phase_start(this: *const Shape<Monitor>, name: *const c_char, _parent: *const c_char, steps: i32) {
    // SAFETY: TensorRT passes back the live object that it was given.
    let state = unsafe { &(*this).payload };
    guarded((), || {
        // SAFETY: TensorRT's text ends in 0 and lives during the call.
        let name = unsafe { name_of(name) };
        let phases = {
            let mut phases = lock(&state.phases);
            phases.push(Phase { name, done: 0, steps: u32::try_from(steps).unwrap_or(0) });
            phases.clone()
        };
        state.watcher.progress(&phases);
    });
}

unsafe extern "C" fn step_complete(this: *const Shape<Monitor>, name: *const c_char, step: i32) -> u8 {
    // SAFETY: TensorRT passes back the live object that it was given.
    let state = unsafe { &(*this).payload };
    let go_on = guarded(false, || {
        // SAFETY: TensorRT's text ends in 0 and lives during the call.
        let name = unsafe { name_of(name) };
        let phases = {
            let mut phases = lock(&state.phases);
            if let Some(phase) = phases.iter_mut().rev().find(|phase| phase.name == name) {
                phase.done = u32::try_from(step).unwrap_or(0).saturating_add(1);
            }
            phases.clone()
        };
        state.watcher.progress(&phases)
    });
    u8::from(go_on)
}

unsafe extern "C" fn phase_finish(this: *const Shape<Monitor>, name: *const c_char) {
    // SAFETY: TensorRT passes back the live object that it was given.
    let state = unsafe { &(*this).payload };
    guarded((), || {
        // SAFETY: TensorRT's text ends in 0 and lives during the call.
        let name = unsafe { name_of(name) };
        let phases = {
            let mut phases = lock(&state.phases);
            if let Some(index) = phases.iter().rposition(|phase| phase.name == name) {
                phases.remove(index);
            }
            phases.clone()
        };
        state.watcher.progress(&phases);
    });
}
