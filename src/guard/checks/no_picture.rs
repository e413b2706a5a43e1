//! The camera gave no picture: there is no answer, and none is made up.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Seen, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::NoPicture,
    severity: Severity::Hard,
    side: Side::Picture,
    compares: "whether the camera gave a picture",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "The camera gives no picture.",
        what_to_do: "Check the camera's cable and power; it is tried again all the time.",
    },
    chinese: Advice {
        seen: "相机没有图像。", what_to_do: "请检查相机的连接线和电源；程序会不断重试。"
    },
};

#[derive(Debug)]
struct NoPicture;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(NoPicture)
}

impl Check for NoPicture {
    fn reason(&self) -> Reason {
        Reason::NoPicture
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        matches!(seen.picture, Seen::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn a_lost_camera_is_a_fault_and_its_return_clears_it() {
        let mut stream = Scene::with_reference().stream(live());
        let verdict = stream.see_nothing(Seen::Nothing);
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::NoPicture][..]));
        assert_eq!(stream.clean().trust, Trust::Trusted);
    }

    #[test]
    fn an_unreadable_picture_is_not_a_missing_one() {
        let verdict = Scene::with_reference().stream(live()).see_nothing(Seen::Unreadable);
        assert!(!verdict.reasons.contains(&Reason::NoPicture));
    }
}
