//! A black picture: no light, a covered lens, a decoder that filled in zeros.

use super::{About, Advice, Check, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::Dark,
    severity: Severity::Hard,
    side: Side::Picture,
    compares: "mean luma with `dark_luma` (half of the reference's minimum if that is lower), and contrast with `dark_contrast`",
    limits: &["dark_luma", "dark_contrast"],
    off_when: "the recipe switches it off",
    english: Advice { seen: "The picture is black.", what_to_do: "Check the light and whether the lens is covered." },
    chinese: Advice { seen: "图像全黑。", what_to_do: "请检查光源，以及镜头是否被遮挡。" },
};

#[derive(Debug)]
struct Dark {
    luma: f64,
    contrast: f64,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let usual = setup.reference.map_or(f64::INFINITY, |reference| reference.brightness.minimum / 2.0);
    SetUp::on(Dark { luma: setup.limits.dark_luma.min(usual), contrast: setup.limits.dark_contrast })
}

impl Check for Dark {
    fn reason(&self) -> Reason {
        Reason::Dark
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.stats().is_some_and(|stats| stats.brightness < self.luma && stats.contrast < self.contrast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, gray, live, unrelated};

    use crate::units::SizePx;
    const SIZE: SizePx = SizePx::new(640, 480);

    #[test]
    fn black_is_a_fault_with_and_without_noise_and_reference() {
        for scene in [Scene::with_reference(), Scene::without_reference()] {
            for traits in [live(), unrelated()] {
                for noise in [1, 7] {
                    let picture = gray(SIZE, |x, y| u8::try_from((x * 31 + y * 17) % noise).unwrap());
                    let verdict = scene.stream(traits).see(|frame| frame.picture = picture);
                    assert_eq!(verdict.trust, Trust::Fault);
                    assert!(verdict.reasons.contains(&Reason::Dark));
                }
            }
        }
    }

    #[test]
    fn a_dark_field_with_bright_defects_is_not_black() {
        let picture = gray(SIZE, |x, y| if x % 40 < 4 && y % 40 < 6 { 220 } else { 3 });
        let verdict = Scene::without_reference().stream(live()).see(|frame| frame.picture = picture);
        assert_eq!(verdict.trust, Trust::Trusted);
    }

    #[test]
    fn a_line_that_is_always_that_dark_is_not_black() {
        let mut scene = Scene::with_reference();
        scene.spec.reference.as_mut().unwrap().brightness.minimum = 9.0;
        let verdict =
            scene.stream(live()).see(|frame| frame.picture = gray(SIZE, |x, _| u8::try_from(x % 12).unwrap()));
        assert!(!verdict.reasons.contains(&Reason::Dark));
    }
}
