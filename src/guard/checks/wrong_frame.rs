//! An answer that carries the identity of another frame: buffers were mixed up.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::WrongFrame,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "the identity in the answer with that of the frame",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The answer belongs to another picture.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "结果属于另一张图像。", what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。"
    },
};

#[derive(Debug)]
struct WrongFrame;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(WrongFrame)
}

impl Check for WrongFrame {
    fn reason(&self) -> Reason {
        Reason::WrongFrame
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_some_and(|answer| answer.tag != seen.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn another_number_or_stream_is_a_fault() {
        for (stream_name, ahead) in [("cam0", 1), ("cam1", 0)] {
            let verdict = Scene::with_reference().stream(live()).see(|frame| {
                frame.answered.stream = stream_name.into();
                frame.answered.number += ahead;
            });
            assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::WrongFrame][..]));
        }
    }

    #[test]
    fn gaps_between_frames_are_not() {
        let mut stream = Scene::with_reference().stream(live());
        stream.number = 90;
        assert_eq!(stream.clean().trust, Trust::Trusted);
    }
}
