//! An output of nothing but zeros. Raw layouts only: end-to-end rows that are not used are zero.

use super::{About, Advice, Check, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::AllZero,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "the raw output with zero: one value must differ",
    limits: &[],
    off_when: "the layout pads unused rows with zeros (end-to-end rows, NMS plugin)",
    english: Advice {
        seen: "The detector gives an empty output.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器输出全为零。", what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。"
    },
};

#[derive(Debug)]
struct AllZero;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(AllZero)
}

impl Check for AllZero {
    fn reason(&self) -> Reason {
        Reason::AllZero
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| answer.stats.all_zero && answer.all_zero_is_fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn zeros_of_a_raw_layout_are_a_fault() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.output.all_zero = true);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::AllZero][..]));
    }

    #[test]
    fn padded_rows_of_an_end_to_end_layout_are_not() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| {
            frame.output.all_zero = true;
            frame.raw_layout = false;
        });
        assert_eq!(verdict.trust, Trust::Trusted);
    }
}
