//! Class ids that the model does not have.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::count32;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::ClassRange,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "every class id with the model's classes",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector names classes that do not exist.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器给出不存在的类别。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct ClassRange {
    classes: u32,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(ClassRange { classes: count32(setup.classes.len()) })
}

impl Check for ClassRange {
    fn reason(&self) -> Reason {
        Reason::ClassRange
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| {
            answer.stats.class_ids_out_of_range > 0
                || answer.detections.iter().any(|found| found.class_id >= self.classes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    #[test]
    fn an_unknown_class_is_a_fault() {
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(stream.see(|frame| frame.output.class_ids_out_of_range = 1).reasons, [Reason::ClassRange]);
        let verdict = stream.see(|frame| {
            frame.boxes = boxes(1, 0.9);
            frame.boxes[0].class_id = 2;
        });
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::ClassRange][..]));
    }

    #[test]
    fn the_last_class_is_known() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| {
            frame.boxes = boxes(1, 0.9);
            frame.boxes[0].class_id = 1;
        });
        assert_eq!(verdict.trust, Trust::Trusted);
    }
}
