//! The kernel's view of a thread: how important it is.

/// Steps by which [`be_nice`] lowers the calling thread.
const NICER_BY: libc::c_int = 10;

/// Lowers the importance of the calling thread alone, so that work which can wait takes no time from work which cannot.
/// A kernel that refuses leaves everything as it was.
///
/// On Linux [`setpriority`](https://man7.org/linux/man-pages/man2/setpriority.2.html) of "process" 0 is about the calling
/// thread, not about the whole process.
pub fn be_nice() {
    // SAFETY: `setpriority` takes three numbers and touches no memory of this process.
    let _refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICER_BY) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority() -> libc::c_int {
        // SAFETY: `getpriority` takes two numbers and touches no memory of this process.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn only_the_calling_thread_steps_back() {
        let before = priority();
        let other = std::thread::spawn(|| {
            be_nice();
            priority()
        });
        assert!(other.join().unwrap() >= NICER_BY.max(before));
        assert_eq!(priority(), before);
    }
}
