//! Far more boxes than on good pictures, several frames long: an engine that floods.
//!
//! A burst of true defects is below the limit or, above it, delivered in full: a soft check withholds nothing.

use super::{About, Advice, Check, SetUp, Setup, Streak};
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::length;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::BoxSurge,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "boxes after NMS with the reference: max(`box_surge_factor` × 99.5 % quantile, maximum + `box_surge_extra`), at most as many as an answer may hold; without a reference an answer that is full",
    limits: &["box_surge_factor", "box_surge_extra", "box_surge_frames"],
    off_when: "good pictures fill the answer already, or the recipe switches it off",
    english: Advice {
        seen: "Far too many objects are reported.",
        what_to_do: "Have the parts checked by hand; if it stays, call service.",
    },
    chinese: Advice {
        seen: "报告的目标数量异常多。", what_to_do: "请人工检查零件；若持续出现，请联系维护人员。"
    },
};

#[derive(Debug)]
struct BoxSurge {
    limit: Option<f64>,
    usual: f64,
    streak: Streak,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let limits = setup.limits;
    let limit = setup.reference.map(|reference| {
        (limits.box_surge_factor * reference.boxes.p995).max(reference.boxes.maximum + limits.box_surge_extra)
    });
    let usual = setup.reference.map_or(0.0, |reference| reference.boxes.maximum);
    SetUp::on(BoxSurge { limit, usual, streak: Streak::of(limits.box_surge_frames) })
}

impl Check for BoxSurge {
    fn reason(&self) -> Reason {
        Reason::BoxSurge
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(answer) = seen.answer else { return self.streak.count(false) };
        let boxes = length(answer.detections.len());
        let most = f64::from(answer.most_boxes);
        let above = self.limit.is_some_and(|limit| boxes > limit);
        let full = boxes >= most && self.usual < most;
        self.streak.count(above || full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    #[test]
    fn three_frames_above_the_limit_are_suspect_and_one_quiet_frame_clears_it() {
        let mut stream = Scene::with_reference().stream(live());
        let surge =
            |stream: &mut crate::guard::fixture::Stream| stream.see(|frame| frame.boxes = boxes(27, 0.8)).reasons;
        for expected in [&[][..], &[], &[Reason::BoxSurge], &[Reason::BoxSurge]] {
            assert_eq!(surge(&mut stream), expected);
        }
        assert_eq!(stream.clean().trust, Trust::Trusted);
        assert_eq!(surge(&mut stream), [], "the row begins anew");
    }

    #[test]
    fn maximum_plus_twenty_and_short_bursts_are_not() {
        let mut stream = Scene::with_reference().stream(live());
        for number in 0..30 {
            let count = if number % 3 < 2 { 200 } else { 26 };
            assert_eq!(stream.see(|frame| frame.boxes = boxes(count, 0.8)).trust, Trust::Trusted);
        }
    }

    #[test]
    fn a_full_answer_surges_even_where_the_limit_lies_above_it() {
        let mut scene = Scene::with_reference();
        scene.spec.reference.as_mut().unwrap().boxes.p995 = 150.0;
        let mut stream = scene.stream(live());
        let reasons = (0..3).map(|_| stream.see(|frame| frame.boxes = boxes(300, 0.8)).reasons).last().unwrap();
        assert_eq!(reasons, [Reason::BoxSurge]);
        let mut usual = Scene::with_reference();
        usual.spec.reference.as_mut().unwrap().boxes.maximum = 300.0;
        let mut stream = usual.stream(live());
        for _ in 0..5 {
            assert_eq!(stream.see(|frame| frame.boxes = boxes(300, 0.8)).trust, Trust::Trusted);
        }
    }
}
