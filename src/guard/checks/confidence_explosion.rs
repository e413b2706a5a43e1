//! Scores far above those of good pictures: seen in the field under memory pressure, before boxes go wrong.

use super::{About, Advice, Check, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::{count, float64, index, round_px};
use std::collections::VecDeque;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::ConfidenceExplosion,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "scores of the boxes in a window of frames with max(`confidence_score`, the reference's maximum)",
    limits: &["confidence_score", "confidence_share", "confidence_boxes", "confidence_frames"],
    off_when: "the limit is 1 because good pictures have scores of 1, or the recipe switches it off",
    english: Advice {
        seen: "The detector is far too sure of itself.",
        what_to_do: "Have the parts checked by hand; if it stays, call service.",
    },
    chinese: Advice {
        seen: "检测器置信度异常高。", what_to_do: "请人工检查零件；若持续出现，请联系维护人员。"
    },
};

#[derive(Debug)]
struct ConfidenceExplosion {
    limit: f64,
    share: f64,
    least_boxes: f64,
    frames: usize,
    window: VecDeque<Frame>,
    above: u64,
    boxes: u64,
    alarmed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    above: u64,
    boxes: u64,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let limits = setup.limits;
    let usual = setup.reference.map_or(0.0, |reference| reference.scores.maximum);
    let limit = limits.confidence_score.max(usual);
    if limit >= 1.0 {
        return SetUp::off("good pictures have scores of 1, so no score is too high");
    }
    let frames = index(round_px(limits.confidence_frames.clamp(1.0, 10_000.0)));
    SetUp::on(ConfidenceExplosion {
        limit,
        share: limits.confidence_share,
        least_boxes: limits.confidence_boxes,
        frames,
        window: VecDeque::with_capacity(frames + 1),
        above: 0,
        boxes: 0,
        alarmed: false,
    })
}

impl ConfidenceExplosion {
    fn forget(&mut self) {
        self.window.clear();
        (self.above, self.boxes, self.alarmed) = (0, 0, false);
    }
}

impl Check for ConfidenceExplosion {
    fn reason(&self) -> Reason {
        Reason::ConfidenceExplosion
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(answer) = seen.answer else { return false };
        let above = count(answer.detections.iter().filter(|found| f64::from(found.score) > self.limit).count());
        let now = Frame { above, boxes: count(answer.detections.len()) };
        let quiet = float64(now.above) < self.share * float64(now.boxes) || now.above == 0;
        if self.alarmed && quiet {
            self.forget();
        }
        self.window.push_back(now);
        self.above += now.above;
        self.boxes += now.boxes;
        if self.window.len() > self.frames
            && let Some(oldest) = self.window.pop_front()
        {
            self.above -= oldest.above;
            self.boxes -= oldest.boxes;
        }
        let enough = float64(self.boxes) >= self.least_boxes;
        self.alarmed = !quiet && enough && float64(self.above) >= self.share * float64(self.boxes);
        self.alarmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    #[test]
    fn climbing_scores_are_suspect_and_a_quiet_frame_clears_it() {
        let mut stream = Scene::with_reference().stream(live());
        for _ in 0..30 {
            stream.clean();
        }
        let mut seen_after = None;
        for frame in 1..=60 {
            if stream.see(|frame| frame.boxes = boxes(4, 0.998)).reasons.contains(&Reason::ConfidenceExplosion) {
                seen_after = seen_after.or(Some(frame));
            }
        }
        assert!(seen_after.is_some_and(|frames| frames <= 30), "{seen_after:?}");
        assert_eq!(stream.clean().trust, Trust::Trusted);
        assert_eq!(stream.see(|frame| frame.boxes = boxes(4, 0.998)).trust, Trust::Trusted, "the window begins anew");
    }

    #[test]
    fn few_boxes_or_few_high_ones_are_not() {
        let mut stream = Scene::with_reference().stream(live());
        for number in 0..100 {
            let verdict = stream.see(|frame| {
                frame.boxes = boxes(4, 0.9);
                frame.boxes[0].score = 0.999;
            });
            assert_eq!(verdict.trust, Trust::Trusted, "{number}");
        }
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(stream.see(|frame| frame.boxes = boxes(9, 0.999)).trust, Trust::Trusted);
    }

    #[test]
    fn scores_up_to_the_references_maximum_are_not() {
        let mut scene = Scene::with_reference();
        scene.spec.reference.as_mut().unwrap().scores.maximum = 0.997;
        let mut stream = scene.stream(live());
        for _ in 0..60 {
            assert_eq!(stream.see(|frame| frame.boxes = boxes(5, 0.996)).trust, Trust::Trusted);
        }
    }
}
