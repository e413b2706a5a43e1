//! No answer although there was a picture: the engine returned an error.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::EngineError,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "whether there is an answer for a picture that could be read",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The detector gives no answer.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "检测器没有返回结果。", what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。"
    },
};

#[derive(Debug)]
struct EngineError;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(EngineError)
}

impl Check for EngineError {
    fn reason(&self) -> Reason {
        Reason::EngineError
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.answer.is_none() && seen.stats().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn a_picture_without_an_answer_is_a_fault() {
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.engine_failed = true);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::EngineError][..]));
    }

    #[test]
    fn a_missing_picture_is_not_the_engines_fault() {
        let verdict = Scene::with_reference().stream(live()).see_nothing(crate::guard::Seen::Unreadable);
        assert_eq!(verdict.reasons, [Reason::Unreadable]);
    }
}
