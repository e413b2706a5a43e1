//! Brightness far from that of good pictures: a lamp failed, a blind was opened, the exposure ran away.

use super::{About, Advice, Check, NO_REFERENCE, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::LightChanged,
    severity: Severity::Soft,
    side: Side::Picture,
    compares: "mean luma with the reference's minimum and maximum",
    limits: &["light_low_share", "light_high_share"],
    off_when: "there is no reference",
    english: Advice {
        seen: "The light is very different from usual.",
        what_to_do: "Check the lamps, sunlight and the exposure setting.",
    },
    chinese: Advice {
        seen: "光照与平时差别很大。", what_to_do: "请检查灯具、阳光以及曝光设置。"
    },
};

#[derive(Debug)]
struct LightChanged {
    low: f64,
    high: f64,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let Some(reference) = setup.reference else { return SetUp::off(NO_REFERENCE) };
    SetUp::on(LightChanged {
        low: reference.brightness.minimum * setup.limits.light_low_share,
        high: reference.brightness.maximum * setup.limits.light_high_share,
    })
}

impl Check for LightChanged {
    fn reason(&self) -> Reason {
        Reason::LightChanged
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        seen.stats().is_some_and(|stats| stats.brightness < self.low || stats.brightness > self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, live};

    #[test]
    fn half_the_light_is_suspect_and_its_return_clears_it() {
        let mut stream = Scene::with_reference().stream(live());
        for gain in [0.4, 2.1] {
            let verdict = stream.see(|frame| frame.light(gain));
            assert!(verdict.reasons.contains(&Reason::LightChanged), "{gain}");
            assert_eq!(stream.clean().trust, Trust::Trusted);
        }
    }

    #[test]
    fn a_fifth_less_light_stays_trusted_down_all_the_way() {
        let mut stream = Scene::with_reference().stream(live());
        for step in 0..200 {
            let verdict = stream.see(|frame| frame.light(1.0 - 0.001 * f64::from(step)));
            assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Trusted, &[][..]), "step {step}");
        }
    }
}
