//! The line is being changed over to another product. The run gives this reason itself: the frame is not looked at.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Changeover,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "the time of arrival with the time of the first good self-test of the new product",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The line is being changed over to another product.",
        what_to_do: "Please wait a second. Inspect parts that come meanwhile by hand.",
    },
    chinese: Advice {
        seen: "正在切换产品。", what_to_do: "请稍候片刻。期间到达的工件请人工检查。"
    },
};

#[derive(Debug)]
struct Changeover;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(Changeover)
}

impl Check for Changeover {
    fn reason(&self) -> Reason {
        Reason::Changeover
    }

    fn fires(&mut self, _: &Observation<'_>) -> bool {
        false
    }
}
