//! Infinite values, in the raw output or in a box: a half-precision overflow.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Infinite,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "the raw output and every box with numbers: no value may be infinite",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector computes infinite numbers.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器计算出无穷大数值。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct Infinite;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(Infinite)
}

impl Check for Infinite {
    fn reason(&self) -> Reason {
        Reason::Infinite
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| {
            answer.stats.infinite > 0
                || answer.detections.iter().any(|found| {
                    found.score.is_infinite() || <[f32; 4]>::from(found.unclipped).iter().any(|edge| edge.is_infinite())
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    #[test]
    fn both_signs_are_a_fault_in_output_and_box() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.output.infinite = 2);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::Infinite][..]));
        for value in [f32::INFINITY, f32::NEG_INFINITY] {
            let verdict = Scene::with_reference().stream(live()).see(|frame| {
                frame.boxes = boxes(1, 0.9);
                frame.boxes[0].unclipped.left_px = value;
            });
            assert!(verdict.reasons.contains(&Reason::Infinite), "{value}");
        }
    }

    #[test]
    fn large_finite_boxes_are_not() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| {
            frame.boxes = boxes(1, 0.9);
            frame.boxes[0].unclipped.right_px = 65_504.0;
        });
        assert!(!verdict.reasons.contains(&Reason::Infinite));
    }
}
