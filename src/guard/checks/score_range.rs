//! Scores outside 0..1: a layout mistaken, a missing sigmoid, memory overwritten.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::ScoreRange,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "every score with 0..1",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector gives impossible scores.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器给出不可能的置信度。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct ScoreRange;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(ScoreRange)
}

impl Check for ScoreRange {
    fn reason(&self) -> Reason {
        Reason::ScoreRange
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| {
            answer.stats.scores_out_of_range > 0
                || answer.detections.iter().any(|found| found.score < 0.0 || found.score > 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    #[test]
    fn a_score_of_seven_is_a_fault() {
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(stream.see(|frame| frame.output.scores_out_of_range = 1).reasons, [Reason::ScoreRange]);
        let verdict = stream.see(|frame| frame.boxes = boxes(1, 7.28));
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::ScoreRange][..]));
    }

    #[test]
    fn zero_and_one_are_scores() {
        for score in [0.0, 1.0] {
            assert_eq!(
                Scene::with_reference().stream(live()).see(|frame| frame.boxes = boxes(1, score)).trust,
                Trust::Trusted
            );
        }
    }
}
