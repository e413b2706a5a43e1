//! Scores that are spread otherwise than on good frames: an engine whose numbers have moved as a whole.

use super::{About, Advice, Check, NOT_LEARNT, NOT_LIVE, SetUp, Setup};
use crate::error::Result;
use crate::guard::reference::score_bin;
use crate::guard::{Observation, Reason, Reference, SCORE_BINS, Severity, Side};
use crate::units::{float64, length};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::ScoreShift,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "the distribution of scores over the last frames with the anchor's and with the rolling baseline's",
    limits: &["score_shift", "score_shift_frames", "score_shift_boxes"],
    off_when: "no distribution is known or learnt yet, or the source is not live",
    english: Advice {
        seen: "The detector is more or less sure than usual.",
        what_to_do: "Check light, focus and product; accept a new baseline if the change was wanted, else call service.",
    },
    chinese: Advice {
        seen: "检测器的置信度与平时不同。",
        what_to_do: "请检查光照、对焦和产品；若为有意更改，请接受新基线，否则请联系维护人员。",
    },
};

#[derive(Debug)]
struct ScoreShift {
    anchor: [f64; SCORE_BINS],
    rolling: Option<[f64; SCORE_BINS]>,
    limit: f64,
    least_boxes: f64,
    fade: f64,
    wanted: f64,
    frames: u64,
    present: [f64; SCORE_BINS],
}

/// The bins as shares; `None` without boxes.
fn shares(bins: &[u64]) -> Option<[f64; SCORE_BINS]> {
    let total = float64(bins.iter().sum());
    let bins: &[u64; SCORE_BINS] = bins.try_into().ok()?;
    (total > 0.0).then(|| bins.map(|count| float64(count) / total))
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    if !setup.traits.live {
        return SetUp::off(NOT_LIVE);
    }
    let Some(reference) = setup.distributions else { return SetUp::off(NOT_LEARNT) };
    let Some(anchor) = shares(&reference.score_bins) else {
        return SetUp::off("the reference has no distribution of scores");
    };
    let limits = setup.limits;
    SetUp::on(ScoreShift {
        anchor,
        rolling: setup.rolling.and_then(|rolling| shares(&rolling.score_bins)),
        limit: limits.score_shift,
        least_boxes: limits.score_shift_boxes,
        fade: 1.0 - 1.0 / limits.score_shift_frames.max(1.0),
        wanted: limits.score_shift_frames,
        frames: 0,
        present: [0.0; SCORE_BINS],
    })
}

/// Earth mover's distance between two distributions over the bins, as a difference of score.
fn distance(one: &[f64; SCORE_BINS], other: &[f64; SCORE_BINS]) -> f64 {
    let (mut ahead, mut sum) = (0.0, 0.0);
    for (left, right) in one.iter().zip(other) {
        ahead += left - right;
        sum += f64::abs(ahead);
    }
    sum / length(SCORE_BINS)
}

impl Check for ScoreShift {
    fn reason(&self) -> Reason {
        Reason::ScoreShift
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(answer) = seen.answer else { return false };
        self.frames = self.frames.saturating_add(1);
        self.present.iter_mut().for_each(|bin| *bin *= self.fade);
        for found in answer.detections {
            self.present[score_bin(found.score)] += 1.0;
        }
        let boxes: f64 = self.present.iter().sum();
        if float64(self.frames) < self.wanted || boxes < self.least_boxes.max(1.0) {
            return false;
        }
        let present = self.present.map(|bin| bin / boxes);
        let apart = |baseline: &[f64; SCORE_BINS]| distance(&present, baseline) >= self.limit;
        apart(&self.anchor) || self.rolling.as_ref().is_some_and(apart)
    }

    fn roll(&mut self, rolling: &Reference) {
        self.rolling = shares(&rolling.score_bins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, Stream, boxes, live};

    /// Scores as in the fixture's reference, moved by `by`.
    fn scored(stream: &mut Stream, frames: u16, by: f32) -> Option<u16> {
        (0..frames).find(|number| {
            let score = 0.5 + 0.45 * f32::from(number % 40) / 39.0;
            let verdict = stream.see_boxes(&boxes(2 + usize::from(number % 5), score + by));
            verdict.reasons.contains(&Reason::ScoreShift)
        })
    }

    #[test]
    fn scores_that_have_moved_are_suspect_and_come_back() {
        for by in [-0.3_f32, 0.25] {
            let mut stream = Scene::with_reference().stream(live());
            assert_eq!(scored(&mut stream, 1200, 0.0), None);
            let seen = scored(&mut stream, 2000, by).unwrap();
            assert!((100..1500).contains(&seen), "{by}: {seen}");
            let again = (0..3000_u16).find(|number| {
                let score = 0.5 + 0.45 * f32::from(number % 40) / 39.0;
                stream.see_boxes(&boxes(2 + usize::from(number % 5), score)).trust == Trust::Trusted
            });
            assert!(again.is_some(), "{by}");
        }
    }

    #[test]
    fn a_small_shift_few_boxes_and_a_short_burst_are_not() {
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(scored(&mut stream, 2000, -0.1), None);
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(scored(&mut stream, 1000, 0.0), None);
        assert_eq!(scored(&mut stream, 150, -0.3), None);
        let mut few = Scene::with_reference().stream(live());
        for number in 0..1000 {
            let verdict = few.see_boxes(&boxes(usize::from(number % 20 == 0), 0.3));
            assert_eq!(verdict.trust, Trust::Trusted, "{number}");
        }
    }

    #[test]
    fn the_distance_is_the_mean_movement() {
        let at = |bin: usize| std::array::from_fn(|other| f64::from(u8::from(other == bin)));
        assert!((distance(&at(3), &at(9)) - 6.0 / 20.0).abs() < 1e-12);
        assert_eq!(distance(&at(3), &at(3)), 0.0);
        assert_eq!(shares(&[0; 20]), None);
        assert_eq!(shares(&[1; 3]), None);
    }
}
