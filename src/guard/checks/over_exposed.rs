//! A picture washed out by too much light.

use super::{About, Advice, Check, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::OverExposed,
    severity: Severity::Hard,
    side: Side::Picture,
    compares: "share of saturated pixels with the reference's maximum plus `over_exposed_extra`; without a reference with `over_exposed_share`, if the contrast is also low",
    limits: &["over_exposed_extra", "over_exposed_share", "over_exposed_contrast"],
    off_when: "the reference is so bright that the limit is 1 or more, or the recipe switches it off",
    english: Advice {
        seen: "The picture is over-exposed.",
        what_to_do: "Check the light, sunlight on the part and the exposure setting.",
    },
    chinese: Advice { seen: "图像过曝。", what_to_do: "请检查光源、阳光直射以及曝光设置。" },
};

#[derive(Debug)]
struct OverExposed {
    share: f64,
    contrast: f64,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let limits = setup.limits;
    let (share, contrast) = match setup.reference {
        Some(reference) => (reference.saturated_share.maximum + limits.over_exposed_extra, f64::INFINITY),
        None => (limits.over_exposed_share, limits.over_exposed_contrast),
    };
    if share >= 1.0 {
        return SetUp::off("good pictures are nearly all white, so too much light cannot be told");
    }
    SetUp::on(OverExposed { share, contrast })
}

impl Check for OverExposed {
    fn reason(&self) -> Reason {
        Reason::OverExposed
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.stats().is_some_and(|stats| stats.saturated_share > self.share && stats.contrast < self.contrast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, gray, live};

    use crate::units::SizePx;
    const SIZE: SizePx = SizePx::new(640, 480);

    #[test]
    fn a_white_picture_is_a_fault_with_and_without_a_reference() {
        for scene in [Scene::with_reference(), Scene::without_reference()] {
            let picture = gray(SIZE, |x, y| if x % 40 == 0 && y % 2 == 0 { 200 } else { 255 });
            let verdict = scene.stream(live()).see(|frame| frame.picture = picture);
            assert_eq!(verdict.trust, Trust::Fault);
            assert!(verdict.reasons.contains(&Reason::OverExposed));
        }
    }

    #[test]
    fn a_third_of_the_picture_saturated_is_a_fault_when_good_pictures_have_none() {
        let picture = gray(SIZE, |x, y| if y < 160 { 255 } else { u8::try_from(60 + (x * 13 + y * 7) % 90).unwrap() });
        let saturated = |scene: Scene| {
            scene.stream(live()).see(|frame| {
                frame.picture = gray(SIZE, |x, y| {
                    let at = (y * 640 + x) * 3;
                    picture.pixels.as_slice()[at]
                })
            })
        };
        assert!(saturated(Scene::with_reference()).reasons.contains(&Reason::OverExposed));
        assert!(!saturated(Scene::without_reference()).reasons.contains(&Reason::OverExposed));
    }

    #[test]
    fn a_dark_part_before_a_white_light_is_not() {
        let picture = gray(SIZE, |x, y| if (200..420).contains(&x) && (100..300).contains(&y) { 10 } else { 255 });
        let verdict = Scene::without_reference().stream(live()).see(|frame| frame.picture = picture);
        assert_eq!(verdict.trust, Trust::Trusted);
    }

    #[test]
    fn white_references_switch_it_off_aloud() {
        let mut scene = Scene::with_reference();
        scene.spec.reference.as_mut().unwrap().saturated_share.maximum = 0.9;
        let off = scene.stream(live()).guard.off_aloud();
        assert!(off.iter().any(|off| off.reason == Reason::OverExposed), "{off:?}");
    }
}
