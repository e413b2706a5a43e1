//! When the known answers are asked for in service: in turn, at a bounded share of the engine's time.

use std::time::{Duration, Instant};

/// How often proofs run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProofLimits {
    /// The interval while proofs are cheap.
    pub every: Duration,
    /// The longest interval, whatever a proof costs.
    pub at_most: Duration,
    /// Largest share of the engine's time, 0..1.
    pub share: f64,
}

impl Default for ProofLimits {
    fn default() -> Self {
        ProofLimits { every: Duration::from_secs(2), at_most: Duration::from_secs(40), share: 0.01 }
    }
}

/// The timetable of proofs.
#[derive(Debug, Clone)]
pub struct ProofSchedule {
    limits: ProofLimits,
    interval: Duration,
    last: Instant,
}

impl ProofSchedule {
    /// A timetable from `now` on; `cost` is what one golden frame takes.
    pub fn new(limits: ProofLimits, cost: Duration, now: Instant) -> Self {
        let mut schedule = ProofSchedule { limits, interval: limits.every, last: now };
        schedule.done(cost, now);
        schedule
    }

    /// A proof of one golden frame took `cost` and ended at `now`.
    pub fn done(&mut self, cost: Duration, now: Instant) {
        let affordable = Duration::try_from_secs_f64(cost.as_secs_f64() / self.limits.share.max(1e-6));
        let affordable = affordable.unwrap_or(self.limits.at_most);
        // Half of the old interval stays, so that one slow run does not change the stated bound much.
        let wanted = affordable.clamp(self.limits.every, self.limits.at_most.max(self.limits.every));
        self.interval = if wanted > self.interval { wanted } else { (self.interval + wanted) / 2 };
        self.last = now;
    }

    /// The present interval: the bound within which a silent drift is seen is this, times the golden frames that are blind
    /// to it.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Time until the next proof; zero when it is due.
    pub fn due_in(&self, now: Instant) -> Duration {
        self.interval.saturating_sub(now.saturating_duration_since(self.last))
    }

    /// Whether a proof is so late that a waiting frame must wait for it.
    pub fn is_overdue(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= self.interval + self.interval / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_proofs_run_every_two_seconds_and_dear_ones_take_one_percent() {
        let start = Instant::now();
        for (cost_ms, interval_s) in [(5, 2.0), (20, 2.0), (100, 10.0), (1000, 40.0)] {
            let cost = Duration::from_millis(cost_ms);
            let schedule = ProofSchedule::new(ProofLimits::default(), cost, start);
            assert!((schedule.interval().as_secs_f64() - interval_s).abs() < 1e-6, "{cost_ms} ms: {schedule:?}");
        }
    }

    #[test]
    fn it_is_due_after_the_interval_and_overdue_a_quarter_later() {
        let start = Instant::now();
        let mut schedule = ProofSchedule::new(ProofLimits::default(), Duration::from_millis(1), start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(schedule.due_in(at(500)), Duration::from_millis(1500));
        assert!(schedule.due_in(at(2000)).is_zero() && !schedule.is_overdue(at(2000)));
        assert!(schedule.is_overdue(at(2500)));
        schedule.done(Duration::from_millis(1), at(2600));
        assert!(!schedule.due_in(at(2601)).is_zero());
    }
}
