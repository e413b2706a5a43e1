//! Small objects that every good picture shows are gone while larger ones are still found: an early sign of an engine that
//! loses precision. Only where the recipe says what to expect.

use super::boxes_vanished::Missing;
use super::{About, Advice, Check, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::SmallObjectsVanished,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "boxes of each class up to `small_up_to_px` (square root of the area) with `guard.expect`",
    limits: &["vanished_frames"],
    off_when: "the recipe expects no small objects (`guard.expect` with `small_up_to_px`)",
    english: Advice {
        seen: "Expected small objects are not seen.",
        what_to_do: "Check focus and parts in view; if both are good, call service.",
    },
    chinese: Advice {
        seen: "未检测到应有的小目标。",
        what_to_do: "请检查对焦和视野内的零件；若均正常，请联系维护人员。",
    },
};

#[derive(Debug)]
struct SmallObjectsVanished(Missing);

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    match Missing::new(setup, |expectation| expectation.small_up_to_px.is_some())? {
        Some(missing) => SetUp::on(SmallObjectsVanished(missing)),
        None => SetUp::off("the recipe does not say which small objects to expect (guard.expect with small_up_to_px)"),
    }
}

impl Check for SmallObjectsVanished {
    fn reason(&self) -> Reason {
        Reason::SmallObjectsVanished
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        self.0.is_called(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    use crate::guard::Expectation;
    fn expecting(small_up_to_px: f32) -> crate::guard::fixture::Stream {
        let mut scene = Scene::with_reference();
        scene.spec.expect.insert("part".into(), Expectation { at_least: 2, small_up_to_px: Some(small_up_to_px) });
        scene.stream(live())
    }

    #[test]
    fn large_boxes_do_not_stand_in_for_small_ones() {
        let mut stream = expecting(20.0);
        let last = (0..5).map(|_| stream.see(|frame| frame.boxes = boxes(4, 0.8))).last().unwrap();
        assert_eq!((last.trust, &last.reasons[..]), (Trust::Suspect, &[Reason::SmallObjectsVanished][..]));
    }

    #[test]
    fn boxes_up_to_the_limit_count_and_a_few_frames_without_are_not_enough() {
        let mut stream = expecting(31.0);
        for number in 0..50 {
            let verdict = stream.see(|frame| frame.boxes = boxes(if number % 5 == 0 { 2 } else { 0 }, 0.8));
            assert_eq!(verdict.trust, Trust::Trusted, "{number}");
        }
    }
}
