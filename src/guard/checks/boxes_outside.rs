//! Boxes that lie mostly outside the picture: outputs landing in other places.

use super::{About, Advice, Check, SetUp, Setup, Streak};
use crate::detections::Detection;
use crate::error::Result;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::{BoxPx, SizePx, float};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::BoxesOutside,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "the area of each box before clipping with the part of it inside the picture",
    limits: &["boxes_outside_share", "boxes_outside_frames"],
    off_when: "the recipe switches it off",
    english: Advice {
        seen: "Objects are reported outside the picture.",
        what_to_do: "Wait for the self-test; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "报告的目标位于图像之外。",
        what_to_do: "请等待自检；若持续出现，请重启程序并联系维护人员。",
    },
};

#[derive(Debug)]
struct BoxesOutside {
    share: f64,
    streak: Streak,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let limits = setup.limits;
    SetUp::on(BoxesOutside { share: limits.boxes_outside_share, streak: Streak::of(limits.boxes_outside_frames) })
}

impl Check for BoxesOutside {
    fn reason(&self) -> Reason {
        Reason::BoxesOutside
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let (Some(answer), Some(stats)) = (seen.answer, seen.stats()) else { return self.streak.count(false) };
        self.streak.count(answer.detections.iter().any(|found| outside_share(found, stats.size) > self.share))
    }
}

/// Share of the box that lies outside the picture; 1 for a box without area or with edges that are no numbers.
fn outside_share(found: &Detection, size: SizePx) -> f64 {
    let whole = found.unclipped;
    let inside = BoxPx::new(
        whole.left_px.max(0.0),
        whole.top_px.max(0.0),
        whole.right_px.min(float(size.width_px)),
        whole.bottom_px.min(float(size.height_px)),
    );
    let (whole_px2, inside_px2) = (f64::from(whole.area_px2()), f64::from(inside.area_px2()));
    if whole.is_finite() && whole_px2 > 0.0 { 1.0 - inside_px2 / whole_px2 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, boxes, live};

    fn shifted_by(stream: &mut crate::guard::fixture::Stream, across_px: f32) -> Vec<Reason> {
        let see = |stream: &mut crate::guard::fixture::Stream| {
            stream.see(|frame| {
                frame.boxes = boxes(3, 0.8);
                let edges = &mut frame.boxes[0].unclipped;
                *edges =
                    BoxPx::new(edges.left_px + across_px, edges.top_px, edges.right_px + across_px, edges.bottom_px);
            })
        };
        (0..3).map(|_| see(stream).reasons).last().unwrap()
    }

    #[test]
    fn a_box_outside_is_suspect_after_three_frames_until_a_good_one() {
        for across_px in [700.0, -200.0] {
            let mut stream = Scene::with_reference().stream(live());
            assert_eq!(shifted_by(&mut stream, across_px), [Reason::BoxesOutside], "{across_px}");
            assert_eq!(stream.clean().trust, Trust::Trusted);
        }
    }

    #[test]
    fn a_part_cut_off_by_the_edge_is_not() {
        let mut stream = Scene::with_reference().stream(live());
        let left_px = boxes(1, 0.8)[0].unclipped.left_px;
        assert_eq!(shifted_by(&mut stream, -left_px - 14.0), []);
    }

    #[test]
    fn inverted_and_broken_boxes_count_as_outside() {
        let mut found = boxes(1, 0.8)[0].clone();
        for edges in [BoxPx::new(50.0, 50.0, 40.0, 60.0), BoxPx::new(f32::NAN, 0.0, 9.0, 9.0)] {
            found.unclipped = edges;
            assert_eq!(outside_share(&found, SizePx::new(640, 480)), 1.0);
        }
    }
}
