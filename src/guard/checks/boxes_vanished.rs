//! Objects that every good picture shows are gone, several frames long. Only where the recipe says what to expect.

use super::{About, Advice, Check, SetUp, Setup, Streak};
use crate::detections::Detection;
use crate::error::{Error, Result};
use crate::guard::{Expectation, Observation, Reason, Severity, Side};
use crate::units::count32;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::BoxesVanished,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "boxes of each class with `guard.expect`",
    limits: &["vanished_frames"],
    off_when: "the recipe expects no objects of any size (`guard.expect`)",
    english: Advice {
        seen: "Expected objects are not seen.",
        what_to_do: "Check that parts are in view; if they are, call service.",
    },
    chinese: Advice {
        seen: "未检测到应有的目标。", what_to_do: "请检查视野内是否有零件；若有，请联系维护人员。"
    },
};

/// What every good picture shows of one class.
#[derive(Debug)]
struct Expected {
    class_id: u32,
    at_least: u32,
    edge_up_to_px: f32,
}

impl Expected {
    /// The expectations of the recipe that `wanted` picks.
    fn all(setup: &Setup<'_>, wanted: impl Fn(&Expectation) -> bool) -> Result<Vec<Self>> {
        let picked = setup.expect.iter().filter(|(_, expectation)| wanted(expectation) && expectation.at_least > 0);
        picked.map(|(name, expectation)| Expected::new(setup.classes, name, expectation)).collect()
    }

    fn new(classes: &[String], name: &str, expectation: &Expectation) -> Result<Self> {
        let class_id = classes.iter().position(|class| class == name).ok_or_else(|| {
            let known = classes.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ");
            Error::usage(format!("found class `{name}`, expected one of: {known}")).at("[guard] expect")
        })?;
        Ok(Expected {
            class_id: count32(class_id),
            at_least: expectation.at_least,
            edge_up_to_px: expectation.small_up_to_px.unwrap_or(f32::INFINITY),
        })
    }

    /// Whether fewer boxes than expected are there; the edge is the square root of the area.
    fn is_missing(&self, detections: &[Detection]) -> bool {
        let there = detections
            .iter()
            .filter(|found| found.class_id == self.class_id && found.edges.area_px2().sqrt() <= self.edge_up_to_px);
        count32(there.count()) < self.at_least
    }
}

/// Counts frames in a row in which something expected is missing; shared with the check of small objects.
#[derive(Debug)]
pub(super) struct Missing {
    expected: Vec<Expected>,
    streak: Streak,
}

impl Missing {
    /// Over the expectations of the recipe that `wanted` picks; `None` when it picks none.
    pub(super) fn new(setup: &Setup<'_>, wanted: impl Fn(&Expectation) -> bool) -> Result<Option<Self>> {
        let expected = Expected::all(setup, wanted)?;
        let streak = Streak::of(setup.limits.vanished_frames);
        Ok((!expected.is_empty()).then_some(Missing { expected, streak }))
    }

    /// Whether something has been missing for long enough, this frame included.
    pub(super) fn is_called(&mut self, seen: &Observation<'_>) -> bool {
        let missing = seen
            .answer
            .is_some_and(|answer| self.expected.iter().any(|expected| expected.is_missing(answer.detections)));
        self.streak.count(missing)
    }
}

#[derive(Debug)]
struct BoxesVanished(Missing);

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    match Missing::new(setup, |expectation| expectation.small_up_to_px.is_none())? {
        Some(missing) => SetUp::on(BoxesVanished(missing)),
        None => SetUp::off("the recipe does not say which objects to expect (guard.expect)"),
    }
}

impl Check for BoxesVanished {
    fn reason(&self) -> Reason {
        Reason::BoxesVanished
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

    #[test]
    fn five_frames_without_them_are_suspect_until_they_are_back() {
        let mut scene = Scene::with_reference();
        scene.spec.expect.insert("part".into(), Expectation { at_least: 3, small_up_to_px: None });
        let mut stream = scene.stream(live());
        for frame in 1..=6 {
            let verdict = stream.see(|frame| frame.boxes = boxes(2, 0.8));
            assert_eq!(verdict.reasons.contains(&Reason::BoxesVanished), frame >= 5);
        }
        assert_eq!(stream.see(|frame| frame.boxes = boxes(3, 0.8)).trust, Trust::Trusted);
    }

    #[test]
    fn without_expectation_an_empty_belt_is_trusted() {
        let mut stream = Scene::with_reference().stream(live());
        for _ in 0..100 {
            assert_eq!(stream.see(|frame| frame.boxes.clear()).trust, Trust::Trusted);
        }
    }

    #[test]
    fn another_class_does_not_count() {
        let mut scene = Scene::with_reference();
        scene.spec.expect.insert("scratch".into(), Expectation { at_least: 1, small_up_to_px: None });
        let mut stream = scene.stream(live());
        let last = (0..5).map(|_| stream.see(|frame| frame.boxes = boxes(9, 0.8))).last().unwrap();
        assert_eq!(last.reasons, [Reason::BoxesVanished]);
    }
}
