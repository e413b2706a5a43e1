//! A picture that exists and cannot be read, or whose buffer is shorter than its own description.

use super::{About, Advice, Check, NEVER_OFF, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Seen, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Unreadable,
    severity: Severity::Hard,
    side: Side::Picture,
    compares: "whether the picture could be decoded whole",
    limits: &[],
    off_when: NEVER_OFF,
    english: Advice {
        seen: "A picture cannot be read.",
        what_to_do: "Check the camera cable; for files, check the file named in the result.",
    },
    chinese: Advice {
        seen: "图像无法读取。", what_to_do: "请检查相机连接线；若为文件，请检查结果中指出的文件。"
    },
};

#[derive(Debug)]
struct Unreadable;

pub(super) fn set_up(_: &Setup<'_>) -> Result<SetUp> {
    SetUp::on(Unreadable)
}

impl Check for Unreadable {
    fn reason(&self) -> Reason {
        Reason::Unreadable
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        match seen.picture {
            Seen::Picture(stats) => !stats.whole,
            Seen::Unreadable => true,
            Seen::Nothing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    use crate::frame::Picture;
    use crate::units::SizePx;
    #[test]
    fn a_picture_that_is_not_whole_is_a_fault() {
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(stream.see_nothing(Seen::Unreadable).trust, Trust::Fault);
        let verdict = stream.see(|frame| frame.picture = Picture::rgb(SizePx::new(64, 64), vec![9; 64 * 64]));
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Fault, &[Reason::Unreadable][..]));
    }

    #[test]
    fn a_whole_picture_is_readable() {
        assert_eq!(Scene::with_reference().stream(live()).clean().reasons, []);
    }
}
