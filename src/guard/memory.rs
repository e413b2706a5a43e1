//! Memory: alarm and all-clear with a gap between them, and growth that does not stop. It decides from figures alone.

use crate::units::{Bytes, float64, length};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Limits of the memory watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLimits {
    /// Alarm from this share in use on, 0..1.
    pub alarm_share: f64,
    /// The alarm ends below this share, 0..1.
    pub clear_share: f64,
    /// Device memory that must be free before another engine is loaded beside the running one, share of all, 0..1.
    pub margin_share: f64,
    /// Growth is looked for after this time.
    pub warm_up: Duration,
    /// The time over which growth is judged.
    pub window: Duration,
    /// Growth counts from this on, and from a fiftieth of what was in use.
    pub least_growth: Bytes,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits {
            alarm_share: 0.85,
            clear_share: 0.80,
            margin_share: 0.20,
            warm_up: Duration::from_secs(300),
            window: Duration::from_secs(1800),
            least_growth: Bytes::mib(32),
        }
    }
}

/// What a look at the figures has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryNews {
    /// More is in use than allowed.
    Alarm,
    /// Enough is free again.
    Clear,
}

/// Alarm and all-clear for one kind of memory.
#[derive(Debug, Clone)]
pub struct MemoryAlarm {
    limits: MemoryLimits,
    alarmed: bool,
    share: f64,
}

impl MemoryAlarm {
    /// No alarm yet.
    pub fn new(limits: MemoryLimits) -> Self {
        MemoryAlarm { limits, alarmed: false, share: 0.0 }
    }

    /// Whether the alarm stands.
    pub fn stands(&self) -> bool {
        self.alarmed
    }

    /// Whether the margin is free, by the last look.
    pub fn has_margin(&self) -> bool {
        self.share <= 1.0 - self.limits.margin_share
    }

    /// Looks at `used` of `total`; news when the alarm begins or ends.
    pub fn look(&mut self, used: Bytes, total: Bytes) -> Option<MemoryNews> {
        let share = float64(used.0) / float64(total.0.max(1));
        self.share = share;
        let alarmed = share >= if self.alarmed { self.limits.clear_share } else { self.limits.alarm_share };
        if alarmed == std::mem::replace(&mut self.alarmed, alarmed) {
            return None;
        }
        Some(if alarmed { MemoryNews::Alarm } else { MemoryNews::Clear })
    }
}

/// Looks for growth that does not stop.
#[derive(Debug, Clone)]
pub struct GrowthWatch {
    limits: MemoryLimits,
    started: Instant,
    samples: VecDeque<(Instant, u64)>,
}

impl GrowthWatch {
    const MOST_SAMPLES: usize = 180;
    const PARTS: usize = 4;

    /// Starts to watch.
    pub fn new(limits: MemoryLimits, now: Instant) -> Self {
        GrowthWatch { limits, started: now, samples: VecDeque::with_capacity(Self::MOST_SAMPLES) }
    }

    /// Takes a sample; the growth over the window, once, when every quarter of it lies above the one before and the whole
    /// is more than allowed. A level that was reached in one step is no growth.
    pub fn look(&mut self, used: Bytes, now: Instant) -> Option<Bytes> {
        if now.saturating_duration_since(self.started) < self.limits.warm_up {
            return None;
        }
        let every = self.limits.window / u32::try_from(Self::MOST_SAMPLES).unwrap_or(180);
        if self.samples.back().is_some_and(|(at, _)| now.saturating_duration_since(*at) < every) {
            return None;
        }
        if self.samples.len() >= Self::MOST_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, used.0));
        if self.samples.len() < Self::MOST_SAMPLES {
            return None;
        }
        let quarter = Self::MOST_SAMPLES / Self::PARTS;
        let means: Vec<f64> = (0..Self::PARTS)
            .map(|part| {
                let samples = self.samples.iter().skip(part * quarter).take(quarter);
                samples.map(|(_, used)| float64(*used)).sum::<f64>() / length(quarter)
            })
            .collect();
        let whole = means[Self::PARTS - 1] - means[0];
        let limit = float64(self.limits.least_growth.0).max(means[0] / 50.0);
        // Each quarter carries at least a tenth of the whole: a step is flat before and after.
        let steady = means.windows(2).all(|pair| pair[1] - pair[0] > whole / 10.0);
        if whole <= limit || !steady {
            return None;
        }
        self.samples.clear();
        Some(Bytes(whole as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_begins_at_85_percent_and_ends_below_80() {
        let mut alarm = MemoryAlarm::new(MemoryLimits::default());
        let mut look = |percent| alarm.look(Bytes::mib(percent), Bytes::mib(100));
        assert_eq!(look(84), None);
        assert_eq!(look(85), Some(MemoryNews::Alarm));
        assert_eq!(look(99), None);
        assert_eq!(look(81), None, "no flicker between the limits");
        assert_eq!(look(79), Some(MemoryNews::Clear));
        assert_eq!(look(84), None);
    }

    #[test]
    fn the_margin_is_asked_for_apart_from_the_alarm() {
        let mut alarm = MemoryAlarm::new(MemoryLimits { margin_share: 0.3, ..MemoryLimits::default() });
        assert!(alarm.has_margin());
        alarm.look(Bytes::mib(69), Bytes::mib(100));
        assert!(alarm.has_margin() && !alarm.stands());
        alarm.look(Bytes::mib(71), Bytes::mib(100));
        assert!(!alarm.has_margin() && !alarm.stands());
    }

    fn grown(level_mib: impl Fn(u64) -> f64) -> Option<Bytes> {
        let start = Instant::now();
        let mut watch = GrowthWatch::new(MemoryLimits::default(), start);
        (0..600_u64).find_map(|step| {
            let used = Bytes((level_mib(step) * 1048576.0) as u64);
            watch.look(used, start + Duration::from_secs(step * 10))
        })
    }

    #[test]
    fn steady_growth_is_seen_and_steps_noise_and_warm_up_are_not() {
        let seen = grown(|step| 400.0 + float64(step) * 0.5).unwrap();
        assert!((50.0..100.0).contains(&(float64(seen.0) / 1048576.0)), "{seen}");
        assert_eq!(grown(|_| 400.0), None);
        assert_eq!(grown(|step| if step < 100 { 400.0 } else { 700.0 }), None, "one step");
        assert_eq!(grown(|step| 400.0 + float64(step % 7) * 3.0), None, "noise");
        assert_eq!(grown(|step| 400.0 + float64(step.min(30)) * 10.0), None, "growth during warm-up alone");
    }
}
