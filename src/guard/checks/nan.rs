//! Values that are not a number, in the raw output or in a box: comparisons with NaN are false, so a box may carry
//! one past any threshold.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Nan,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "the raw output and every box with numbers: no value may be NaN",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector computes invalid numbers (NaN).",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器计算出无效数值（NaN）。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct Nan;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(Nan)
}

impl Check for Nan {
    fn reason(&self) -> Reason {
        Reason::Nan
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| {
            answer.stats.nan > 0
                || answer.detections.iter().any(|found| {
                    found.score.is_nan() || <[f32; 4]>::from(found.unclipped).iter().any(|edge| edge.is_nan())
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
    fn one_value_in_the_raw_output_is_a_fault() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.output.nan = 1);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::Nan][..]));
    }

    #[test]
    fn a_box_with_nan_is_a_fault_whichever_field_holds_it() {
        for field in 0..2 {
            let verdict = Scene::with_reference().stream(live()).see(|frame| {
                frame.boxes = boxes(3, 0.5);
                match field {
                    0 => frame.boxes[1].score = f32::NAN,
                    _ => frame.boxes[1].unclipped.right_px = f32::NAN,
                }
            });
            assert!(verdict.reasons.contains(&Reason::Nan), "{field}");
        }
    }

    #[test]
    fn ordinary_numbers_are_not() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.output.minimum_score = 0.0);
        assert_eq!(verdict.trust, Trust::Trusted);
    }
}
