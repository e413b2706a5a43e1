//! How a run ends: one flag that every thread looks at, with the first reason kept.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StopReason {
    /// Every source came to its end, or the count or time asked for was reached.
    Done = 1,
    /// Ctrl-C or SIGTERM.
    Interrupted = 2,
    /// Something failed; the error is reported by whoever saw it.
    Failed = 3,
}

/// Shared by all threads of a run; cloning gives another handle to the same flag.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    reason: AtomicU8,
    lock: Mutex<()>,
    raised: Condvar,
}

impl StopFlag {
    /// Asks every thread to stop. The first reason is kept.
    pub fn raise(&self, reason: StopReason) {
        let _ = self.shared.reason.compare_exchange(0, reason as u8, Ordering::AcqRel, Ordering::Acquire);
        let _held = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.raised.notify_all();
    }

    /// Whether the run ends.
    pub fn is_raised(&self) -> bool {
        self.shared.reason.load(Ordering::Acquire) != 0
    }

    /// Why the run ends, once it does.
    pub fn reason(&self) -> Option<StopReason> {
        match self.shared.reason.load(Ordering::Acquire) {
            1 => Some(StopReason::Done),
            2 => Some(StopReason::Interrupted),
            3 => Some(StopReason::Failed),
            _ => None,
        }
    }

    /// Sleeps for `duration` or until the flag is raised; returns whether it is.
    pub fn sleep(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        let mut held = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_raised() {
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            held = self.shared.raised.wait_timeout(held, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_kept_and_sleepers_wake() {
        let flag = StopFlag::default();
        let sleeper = std::thread::spawn({
            let flag = flag.clone();
            move || flag.sleep(Duration::from_secs(60))
        });
        flag.raise(StopReason::Interrupted);
        flag.raise(StopReason::Done);
        assert!(sleeper.join().unwrap());
        assert_eq!(flag.reason(), Some(StopReason::Interrupted));
    }

    #[test]
    fn sleep_ends_by_itself() {
        assert!(!StopFlag::default().sleep(Duration::from_millis(1)));
    }
}
