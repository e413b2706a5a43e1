//! A picture without contrast: fog on the lens, a cover, a grey test picture.

use super::{About, Advice, Check, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::LowContrast,
    severity: Severity::Soft,
    side: Side::Picture,
    compares: "standard deviation of luma with `low_contrast_luma` and with the reference's minimum",
    limits: &["low_contrast_luma", "low_contrast_share"],
    off_when: "the recipe switches it off",
    english: Advice {
        seen: "The picture has almost no contrast.",
        what_to_do: "Clean the lens and check for fog, steam or a cover.",
    },
    chinese: Advice {
        seen: "图像几乎没有对比度。", what_to_do: "请清洁镜头，检查是否有雾气、蒸汽或遮挡。"
    },
};

#[derive(Debug)]
struct LowContrast {
    limit: f64,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let limits = setup.limits;
    let usual = setup.reference.map(|reference| reference.contrast.minimum);
    let limit = match usual {
        // A line whose good pictures are that plain is judged by its own minimum alone.
        Some(usual) if usual < 2.0 * limits.low_contrast_luma => usual * limits.low_contrast_share,
        Some(usual) => limits.low_contrast_luma.max(usual * limits.low_contrast_share),
        None => limits.low_contrast_luma,
    };
    SetUp::on(LowContrast { limit })
}

impl Check for LowContrast {
    fn reason(&self) -> Reason {
        Reason::LowContrast
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.stats().is_some_and(|stats| stats.contrast < self.limit)
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
    fn a_grey_wall_of_fog_is_suspect_or_observed() {
        let fog = || gray(SIZE, |x, y| u8::try_from(118 + (x * 31 + y * 17) % 4).unwrap());
        let verdict = Scene::with_reference().stream(live()).see(|frame| frame.picture = fog());
        assert_eq!(verdict.trust, Trust::Suspect);
        assert!(verdict.reasons.contains(&Reason::LowContrast));
        let verdict = Scene::without_reference().stream(live()).see(|frame| frame.picture = fog());
        assert_eq!((verdict.trust, &verdict.observed[..]), (Trust::Trusted, &[Reason::LowContrast][..]));
    }

    #[test]
    fn half_the_contrast_is_not() {
        let mut stream = Scene::with_reference().stream(live());
        let verdict = stream.see(|frame| frame.recolour(|luma| 60.0 + luma / 2.0));
        assert!(!verdict.reasons.contains(&Reason::LowContrast));
    }

    #[test]
    fn plain_lines_are_judged_by_their_own_minimum() {
        let mut scene = Scene::with_reference();
        scene.spec.reference.as_mut().unwrap().contrast.minimum = 2.5;
        let plain = gray(SIZE, |x, y| u8::try_from(118 + (x * 31 + y * 17) % 7).unwrap());
        let verdict = scene.stream(live()).see(|frame| frame.picture = plain);
        assert!(!verdict.reasons.contains(&Reason::LowContrast));
    }
}
