//! Boxes that fit another stream's last answer although this stream's own picture has not changed: answers were mixed up
//! behind an identity that is right.

use super::{About, Advice, Check, NOT_LIVE, SetUp, Setup, UNRELATED};
use crate::detections::Detection;
use crate::error::Result;
use crate::guard::gallery::{Gallery, agreement, keep};
use crate::guard::picture::{PictureStats, VIEW_CELLS};
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::length;
use std::sync::Arc;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::ForeignBoxes,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "the boxes with this stream's own last ones and with the last ones of every other stream, while the picture has not jumped",
    limits: &["foreign_boxes", "foreign_share", "foreign_own_share"],
    off_when: "there is one stream only, the source is not live, or the pictures do not follow each other",
    english: Advice {
        seen: "The answer fits another camera's picture.",
        what_to_do: "Have the parts checked by hand; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "结果与另一台相机的图像相符。",
        what_to_do: "请人工检查零件；若持续出现，请重启程序并联系维护人员。",
    },
};

/// Mean difference of the view from which on the picture has jumped, luma.
const JUMP_LUMA: f64 = 6.0;
/// Own agreement from frame to frame, on average, below which nothing can be said of a single frame.
const STEADY: f64 = 0.6;
/// Weight of a new frame in that average.
const FADE: f64 = 0.1;
/// After so many frames in a row the boxes are this stream's own after all.
const MOST_ROW: u32 = 300;

#[derive(Debug)]
struct ForeignBoxes {
    gallery: Arc<Gallery>,
    lane: usize,
    least: f64,
    share: f64,
    own_share: f64,
    own: Vec<Detection>,
    view: Option<Box<[u8; VIEW_CELLS]>>,
    steadiness: f64,
    row: u32,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    if setup.gallery.streams() < 2 {
        return SetUp::off("there is one stream only");
    }
    if !setup.traits.live {
        return SetUp::off(NOT_LIVE);
    }
    if !setup.traits.related_frames {
        return SetUp::off(UNRELATED);
    }
    let limits = setup.limits;
    SetUp::on(ForeignBoxes {
        gallery: Arc::clone(setup.gallery),
        lane: setup.lane,
        least: limits.foreign_boxes,
        share: limits.foreign_share,
        own_share: limits.foreign_own_share,
        own: Vec::with_capacity(64),
        view: None,
        steadiness: 0.0,
        row: 0,
    })
}

impl ForeignBoxes {
    fn has_jumped(&self, stats: &PictureStats) -> bool {
        self.view.as_ref().is_none_or(|view| {
            let apart: u64 = view.iter().zip(&stats.view).map(|(before, now)| u64::from(before.abs_diff(*now))).sum();
            crate::units::float64(apart) / length(VIEW_CELLS) > JUMP_LUMA
        })
    }
}

impl Check for ForeignBoxes {
    fn reason(&self) -> Reason {
        Reason::ForeignBoxes
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let (Some(answer), Some(stats)) = (seen.answer, seen.stats()) else { return false };
        let boxes = answer.detections;
        let jumped = self.has_jumped(stats);
        let own = agreement(boxes, &self.own);
        let foreign = !jumped
            && self.steadiness >= STEADY
            && length(boxes.len()) >= self.least
            && own <= self.own_share
            && self.gallery.best_elsewhere(self.lane, boxes) >= self.share;
        self.row = if foreign { self.row.saturating_add(1) } else { 0 };
        if foreign && self.row < MOST_ROW {
            // What was this stream's own stays the measure.
            return true;
        }
        if !jumped {
            self.steadiness += FADE * (own - self.steadiness);
        }
        keep(&mut self.own, boxes);
        match &mut self.view {
            Some(view) => **view = stats.view,
            none => *none = Some(Box::new(stats.view)),
        }
        self.gallery.show(self.lane, boxes);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, Stream, boxes, live, moved};

    fn pair() -> [Stream; 2] {
        let gallery = Gallery::new(2);
        [0, 1].map(|lane| Scene::with_reference().stream_at(live(), lane, &gallery))
    }

    #[test]
    fn an_answer_of_the_other_stream_is_suspect_in_that_very_frame() {
        let [mut left, mut right] = pair();
        for _ in 0..30 {
            left.see_boxes(&boxes(4, 0.8));
            right.see_boxes(&moved(boxes(4, 0.8), 100.0, 200.0));
        }
        let verdict = left.see_boxes(&moved(boxes(4, 0.8), 103.0, 201.0));
        assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Suspect, &[Reason::ForeignBoxes][..]));
        assert_eq!(left.see_boxes(&boxes(4, 0.8)).trust, Trust::Trusted);
    }

    #[test]
    fn other_boxes_on_another_picture_and_boxes_of_nobody_are_not() {
        let [mut left, mut right] = pair();
        for _ in 0..30 {
            left.see_boxes(&boxes(4, 0.8));
            right.see_boxes(&moved(boxes(4, 0.8), 100.0, 200.0));
        }
        let nobodys = left.see_boxes(&moved(boxes(4, 0.8), 0.0, 300.0));
        assert_eq!(nobodys.trust, Trust::Trusted);
        left.see_boxes(&boxes(4, 0.8));
        let changed = left.see(|frame| {
            frame.bump(60, 60);
            frame.boxes = moved(boxes(4, 0.8), 100.0, 200.0);
        });
        assert!(!changed.reasons.contains(&Reason::ForeignBoxes), "the picture has changed too");
    }

    #[test]
    fn a_stream_whose_boxes_jump_all_the_time_is_left_alone() {
        let [mut left, mut right] = pair();
        for number in 0..60_u8 {
            let across = f32::from(number % 5) * 70.0;
            right.see_boxes(&moved(boxes(2, 0.8), across, 200.0));
            let verdict = left.see_boxes(&moved(boxes(2, 0.8), across, 200.0));
            assert_eq!(verdict.trust, Trust::Trusted, "{number}");
        }
    }
}
