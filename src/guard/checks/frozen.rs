//! A camera that repeats itself: one picture, or the last few in a circle, although frames go on arriving.
//!
//! A line at rest is not frozen: the sensor's noise changes every frame.

use super::{About, Advice, Check, NOT_LIVE, SetUp, Setup, UNRELATED};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::{float64, index, milliseconds, round_px};
use std::collections::VecDeque;
use std::time::Instant;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Frozen,
    severity: Severity::Hard,
    side: Side::Picture,
    compares: "the hash of the picture with those of the last few",
    limits: &["frozen_frames", "frozen_ms", "frozen_cycle_frames"],
    off_when: "the source is not live, is triggered, or the pictures do not follow each other",
    english: Advice {
        seen: "The camera repeats one picture.",
        what_to_do: "Check the camera; it is opened again by itself. Unplug it if that does not help.",
    },
    chinese: Advice {
        seen: "相机画面冻结。", what_to_do: "请检查相机；程序会自动重新打开相机，若无效请拔插相机。"
    },
};

#[derive(Debug)]
struct Frozen {
    frames: f64,
    least_ms: f64,
    remembered: usize,
    lately: VecDeque<u64>,
    repeated: u64,
    last_new: Option<Instant>,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let limits = setup.limits;
    if !setup.traits.live {
        return SetUp::off(NOT_LIVE);
    }
    if setup.traits.triggered {
        return SetUp::off("frames come by trigger, so two of them may well be the same");
    }
    if !setup.traits.related_frames {
        return SetUp::off(UNRELATED);
    }
    let remembered = index(round_px(limits.frozen_cycle_frames.clamp(1.0, 1000.0)));
    SetUp::on(Frozen {
        frames: limits.frozen_frames,
        least_ms: limits.frozen_ms,
        remembered,
        lately: VecDeque::with_capacity(remembered + 1),
        repeated: 0,
        last_new: None,
    })
}

impl Check for Frozen {
    fn reason(&self) -> Reason {
        Reason::Frozen
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(stats) = seen.stats() else { return false };
        if !self.lately.contains(&stats.hash) {
            self.lately.push_back(stats.hash);
            if self.lately.len() > self.remembered {
                self.lately.pop_front();
            }
            self.repeated = 0;
            self.last_new = Some(seen.arrived);
            return false;
        }
        self.repeated = self.repeated.saturating_add(1);
        let lasted = self.last_new.map(|since| seen.arrived.saturating_duration_since(since));
        // The picture that is repeated counts as the first of the row.
        float64(self.repeated) + 1.0 >= self.frames && lasted.map_or(0.0, milliseconds) >= self.least_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, Stream, live, noisy_scene};

    use crate::units::SizePx;
    fn repeat(stream: &mut Stream, frames: u64, cycle: u64, gap_ms: u64) -> Vec<bool> {
        stream.gap_ms = gap_ms;
        (0..frames)
            .map(|number| {
                let picture = noisy_scene(SizePx::new(640, 480), 1_000_000 + number % cycle, 3);
                stream.see(|frame| frame.picture = picture).reasons.contains(&Reason::Frozen)
            })
            .collect()
    }

    #[test]
    fn ten_equal_frames_over_half_a_second_are_a_fault_and_a_new_one_clears_it() {
        let mut stream = Scene::with_reference().stream(live());
        stream.clean();
        let fired = repeat(&mut stream, 12, 1, 100);
        assert_eq!(fired.iter().position(|&fired| fired), Some(9));
        assert!(fired[9..].iter().all(|&fired| fired));
        assert_eq!(stream.clean().trust, Trust::Trusted);
    }

    #[test]
    fn both_limits_must_be_reached() {
        let fast = repeat(&mut Scene::with_reference().stream(live()), 30, 1, 20);
        assert_eq!(fast.iter().position(|&fired| fired), Some(25), "500 ms at 20 ms a frame");
        let slow = repeat(&mut Scene::with_reference().stream(live()), 9, 1, 1000);
        assert!(slow.iter().all(|&fired| !fired), "nine frames");
    }

    #[test]
    fn the_same_three_frames_in_a_circle_are_frozen_too() {
        let fired = repeat(&mut Scene::with_reference().stream(live()), 20, 3, 100);
        assert!(fired[15]);
    }

    #[test]
    fn a_line_at_rest_whose_sensor_makes_noise_is_not_frozen() {
        let mut stream = Scene::with_reference().stream(live());
        stream.gap_ms = 100;
        for number in 0..200 {
            let picture = noisy_scene(SizePx::new(640, 480), number, 1);
            assert_eq!(stream.see(|frame| frame.picture = picture).trust, Trust::Trusted, "{number}");
        }
    }

    #[test]
    fn triggered_streams_and_files_may_repeat() {
        let triggered = crate::guard::StreamTraits { triggered: true, ..live() };
        for traits in [triggered, crate::guard::fixture::unrelated()] {
            let fired = repeat(&mut Scene::with_reference().stream(traits), 30, 1, 100);
            assert!(fired.iter().all(|&fired| !fired));
        }
    }
}
