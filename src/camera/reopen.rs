//! How long to wait before a lost source is opened again: longer each time up to a cap, never for ever, spread by chance so
//! that many cameras of one failed switch do not come back in the same instant.

use super::replay::split_mix;
use crate::units::float64;
use std::time::Duration;

/// Waits between openings, without end. Call [`Backoff::reset`] once frames flow again.
///
/// ```
/// use edge_trt::camera::reopen::Backoff;
/// use std::time::Duration;
///
/// let mut waits = Backoff::for_cameras(7);
/// assert!(waits.next().is_some_and(|wait| wait <= Duration::from_millis(250)));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
    state: u64,
}

impl Backoff {
    /// Waits from `first`, doubled each time, at most `cap`; each shortened by up to half, by chance from `seed`.
    pub fn new(first: Duration, cap: Duration, seed: u64) -> Self {
        Backoff { first, cap, next: first.min(cap), state: seed }
    }

    /// From 250 ms to 10 s, as used for cameras.
    pub fn for_cameras(seed: u64) -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(10), seed)
    }

    /// Starts again with the shortest wait.
    pub fn reset(&mut self) {
        self.next = self.first.min(self.cap);
    }
}

/// Never ends.
impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let chance = float64(split_mix(&mut self.state) >> 11) / float64(1 << 53);
        let wait = self.next.mul_f64(1.0 - chance / 2.0);
        self.next = self.next.saturating_mul(2).min(self.cap);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_with_jitter_and_start_again() {
        let mut waits = Backoff::for_cameras(1);
        let first: Vec<Duration> = waits.by_ref().take(200).collect();
        for (wait, whole_ms) in first.iter().zip([250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]) {
            let whole = Duration::from_millis(whole_ms);
            assert!(*wait <= whole && *wait >= whole / 2, "{wait:?} of {whole:?}");
        }
        assert!(first[7..].iter().all(|wait| *wait <= Duration::from_secs(10)));
        assert!(first[7] != first[8] && first[8] != first[9]);
        assert_ne!(first[..8], Backoff::for_cameras(2).take(8).collect::<Vec<_>>()[..]);
        waits.reset();
        assert!(waits.next().unwrap() <= Duration::from_millis(250));
    }

    #[test]
    fn a_first_wait_above_the_cap_is_capped() {
        let longest = Duration::from_millis(10);
        assert!(Backoff::new(Duration::from_secs(9), longest, 0).take(9).all(|wait| wait <= longest));
    }
}
