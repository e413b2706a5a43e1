//! Row counts that the output cannot hold: an NMS plugin gone wrong, memory overwritten.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::CountRange,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "the row count that an output carries with the rows it can hold",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector gives an impossible number of boxes.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器给出不可能的检测框数量。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct CountRange;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(CountRange)
}

impl Check for CountRange {
    fn reason(&self) -> Reason {
        Reason::CountRange
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| answer.stats.counts_out_of_range > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn a_count_beyond_the_rows_is_a_fault_and_none_is_not() {
        let mut stream = Scene::with_reference().stream(live());
        let verdict = stream.see(|frame| frame.output.counts_out_of_range = 1);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::CountRange][..]));
        assert_eq!(stream.see(|frame| frame.output.counts_out_of_range = 0).trust, Trust::Trusted);
    }
}
