//! A blurred picture: focus lost, a smeared lens, a part that moves too fast.
//!
//! Sharpness alone also falls when the belt is empty; there the noise keeps crispness up, and nothing fires.

use super::{About, Advice, Check, NO_REFERENCE, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::SizePx;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Blurred,
    severity: Severity::Soft,
    side: Side::Picture,
    compares: "sharpness and crispness with the reference's 0.5 % quantiles",
    limits: &["blurred_share"],
    off_when: "there is no reference, its pictures differ in size, or the picture's size is another",
    english: Advice { seen: "The picture is blurred.", what_to_do: "Check the focus and clean the lens." },
    chinese: Advice { seen: "图像模糊。", what_to_do: "请检查对焦并清洁镜头。" },
};

#[derive(Debug)]
struct Blurred {
    sharpness: f64,
    crispness: f64,
    size: SizePx,
    other_size: Option<SizePx>,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let Some(reference) = setup.reference else { return SetUp::off(NO_REFERENCE) };
    let Some(size) = reference.picture_size else {
        return SetUp::off("the pictures of the reference differ in size");
    };
    let share = setup.limits.blurred_share;
    SetUp::on(Blurred {
        sharpness: reference.sharpness.p005 * share,
        crispness: reference.crispness.p005 * share,
        size,
        other_size: None,
    })
}

impl Check for Blurred {
    fn reason(&self) -> Reason {
        Reason::Blurred
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(stats) = seen.stats() else { return false };
        self.other_size = (stats.size != self.size).then_some(stats.size);
        self.other_size.is_none() && stats.sharpness < self.sharpness && stats.crispness() < self.crispness
    }

    fn idle(&self) -> Option<String> {
        let other = self.other_size?;
        Some(format!("the pictures are {other}, those of the reference {}", self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, gray, live, noisy_scene};

    #[test]
    fn a_soft_picture_is_suspect_and_a_sharp_one_clears_it() {
        let mut stream = Scene::with_reference().stream(live());
        let verdict = stream.see(|frame| frame.blur(9));
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Suspect, &[Reason::Blurred][..]));
        assert_eq!(stream.clean().trust, Trust::Trusted);
    }

    #[test]
    fn an_empty_noisy_picture_is_not_blurred() {
        let size = SizePx::new(640, 480);
        let empty = gray(size, |x, y| u8::try_from(100 + x / 64 + (x * 7919 + y * 104_729 + x * y * 31) % 9).unwrap());
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.picture = empty);
        assert!(!verdict.reasons.contains(&Reason::Blurred), "{verdict:?}");
    }

    #[test]
    fn another_size_is_not_judged_and_said_aloud() {
        let mut stream = Scene::with_reference().stream(live());
        stream.see(|frame| frame.picture = noisy_scene(SizePx::new(320, 240), 1, 3));
        let off = stream.guard.off_aloud();
        let why = &off.iter().find(|off| off.reason == Reason::Blurred).unwrap().why;
        assert_eq!(why, "the pictures are 320×240, those of the reference 640×480");
    }
}
