//! A part got no answer in time. The run gives this reason itself when a part's deadline passes: there is no frame to judge.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Late,
    severity: Severity::Hard,
    side: Side::Engine,
    compares: "a part's deadline with the time of its answer",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "A part got no answer in time.",
        what_to_do: "Inspect the part by hand; if it goes on, trigger slower or check the camera and the computer.",
    },
    chinese: Advice {
        seen: "工件未在规定时间内得到结果。",
        what_to_do: "请人工检查该工件；若持续出现，请放慢触发或检查相机和计算机。",
    },
};

#[derive(Debug)]
struct Late;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(Late)
}

impl Check for Late {
    fn reason(&self) -> Reason {
        Reason::Late
    }

    fn fires(&mut self, _: &Observation<'_>) -> bool {
        false
    }
}
