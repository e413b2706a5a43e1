//! One frame, run twice, gives two answers: the device or its memory is not to be believed.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::EchoDiffers,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "two runs of the engine over one frame, for every 500th frame",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector answers the same picture in two ways.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器对同一图像给出两种结果。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct EchoDiffers;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(EchoDiffers)
}

impl Check for EchoDiffers {
    fn reason(&self) -> Reason {
        Reason::EchoDiffers
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| answer.echo_differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn two_answers_for_one_frame_are_a_fault_and_one_is_not() {
        let mut stream = Scene::with_reference().stream(live());
        let verdict = stream.see(|frame| frame.echo_differs = true);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::EchoDiffers][..]));
        assert_eq!(stream.see(|frame| frame.echo_differs = false).trust, Trust::Trusted);
    }
}
