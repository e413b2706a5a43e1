//! A camera that was bumped: the fixed part of the scene lies elsewhere than on good pictures.

use super::{About, Advice, Check, NO_REFERENCE, SetUp, Setup, Streak, UNRELATED};
use crate::error::Result;
use crate::guard::view::View;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::SizePx;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Shifted,
    severity: Severity::Soft,
    side: Side::Picture,
    compares: "the view on a coarse grid with the reference's",
    limits: &["shifted_share", "shifted_frames"],
    off_when: "there is no reference, its view is not steady, the picture's size is another, or the pictures do not follow each other",
    english: Advice {
        seen: "The camera has moved.",
        what_to_do: "Put the camera back as it was, then have the first parts checked by hand.",
    },
    chinese: Advice {
        seen: "相机位置已移动。", what_to_do: "请将相机复位，并人工检查最初的几个零件。"
    },
};

#[derive(Debug)]
struct Shifted {
    view: View,
    share: f64,
    streak: Streak,
    size: Option<SizePx>,
    other_size: Option<SizePx>,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    if !setup.traits.related_frames {
        return SetUp::off(UNRELATED);
    }
    let Some(reference) = setup.reference else { return SetUp::off(NO_REFERENCE) };
    let view = View::new(reference.view.clone(), reference.view_spread.clone()).filter(|_| reference.view_is_steady);
    let Some(view) = view else {
        return SetUp::off("the pictures of the reference show no fixed scene");
    };
    SetUp::on(Shifted {
        view,
        share: setup.limits.shifted_share,
        streak: Streak::of(setup.limits.shifted_frames),
        size: reference.picture_size,
        other_size: None,
    })
}

impl Check for Shifted {
    fn reason(&self) -> Reason {
        Reason::Shifted
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(stats) = seen.stats() else { return self.streak.count(false) };
        self.other_size = (Some(stats.size) != self.size).then_some(stats.size);
        if self.other_size.is_some() {
            return self.streak.count(false);
        }
        let shift = self.view.shift_of(&stats.view);
        self.streak.count(shift.is_some_and(|shift| shift.across.abs().max(shift.down.abs()) >= self.share))
    }

    fn idle(&self) -> Option<String> {
        let (other, size) = (self.other_size?, self.size?);
        Some(format!("the pictures are {other}, those of the reference {size}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn a_bumped_camera_is_suspect_after_three_frames_until_it_is_back() {
        for (across_px, down_px) in [(40, 0), (0, 30), (-25, 15)] {
            let mut stream = Scene::with_reference().stream(live());
            for frame in 1..=4 {
                let verdict = stream.see(|frame| frame.bump(across_px, down_px));
                assert_eq!(verdict.reasons.contains(&Reason::Shifted), frame >= 3, "{across_px},{down_px} {verdict:?}");
            }
            assert_eq!(stream.clean().trust, Trust::Trusted);
        }
    }

    #[test]
    fn vibration_by_a_few_pixels_and_less_light_are_not() {
        let mut stream = Scene::with_reference().stream(live());
        for number in 0..20 {
            let verdict = stream.see(|frame| {
                frame.bump(number % 5 - 2, 2 - number % 3);
                frame.light(0.85);
            });
            assert_eq!(verdict.trust, Trust::Trusted, "{verdict:?}");
        }
    }
}
