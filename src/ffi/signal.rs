//! SIGHUP as a request: the handler sets a flag and does nothing else.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_hang_up(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Release);
}

/// From now on SIGHUP does not end the process; [`take_hang_up`] tells that it came.
///
/// # Errors
/// Those of [`sigaction`](https://man7.org/linux/man-pages/man2/sigaction.2.html).
pub fn catch_hang_up() -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is a valid value: no flags, an empty mask, no handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_hang_up as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is whole and outlives the call; its handler has the signature that a handler without SA_SIGINFO has
    // and only stores into an atomic, which is allowed inside a signal handler. The old action is not asked for.
    let status = unsafe { libc::sigaction(libc::SIGHUP, &raw const action, std::ptr::null_mut()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether SIGHUP has come since this was last asked.
pub fn take_hang_up() -> bool {
    ASKED.swap(false, Ordering::AcqRel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_once() {
        catch_hang_up().unwrap();
        let number = std::process::id().to_string();
        assert!(std::process::Command::new("kill").args(["-HUP", &number]).status().unwrap().success());
        let since = std::time::Instant::now();
        while !take_hang_up() {
            assert!(since.elapsed().as_secs() < 10, "the signal did not come");
            std::thread::yield_now();
        }
        assert!(!take_hang_up());
    }
}
