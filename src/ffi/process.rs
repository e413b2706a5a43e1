//! The end of a process in which a thread was left inside a vendor's library.
//!
//! Returning from `main` runs what libraries do at exit: TensorRT, NVRTC and the driver take their state down. A thread that still works
//! with it faults then: seen on an H200, where a build of TensorRT 8.6.1 that was out of time ended in `corrupted double-linked list`
//! and SIGABRT in place of exit code 9.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static LEFT_BEHIND: AtomicBool = AtomicBool::new(false);

/// Says that a thread was left inside a library and may still be there when the process ends.
pub fn left_behind() {
    LEFT_BEHIND.store(true, Ordering::Release);
}

/// Ends the process with `code` when a thread was [`left_behind`], without what libraries do at exit; returns otherwise. To be called last:
/// nothing of Rust is dropped either. Standard output is flushed.
pub fn end_if_left_behind(code: u8) {
    if LEFT_BEHIND.load(Ordering::Acquire) {
        let _unwritable = std::io::stdout().flush();
        // SAFETY: `_exit` has no conditions on memory or threads; it takes any number and does not return.
        unsafe { libc::_exit(libc::c_int::from(code)) }
    }
}
