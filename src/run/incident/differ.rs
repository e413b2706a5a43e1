//! A recorded answer against one given now. Everything that differs is named, with both sides.

use super::report::{BoxLine, FrameLine, OutputLine};
use crate::units::{count, float64, length};
use serde::Serialize;
use std::collections::BTreeMap;

/// Boxes that overlap at least this much may be the same detection, even when NMS kept another neighbour.
const SAME_DETECTION_IOU: f32 = 0.5;

/// How far answers may be apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tolerance {
    /// Largest difference of an edge, px of the source picture.
    pub px: f32,
    /// Largest difference of a score.
    pub score: f32,
    /// Share of a frame's boxes that may differ by more, 0..1.
    pub share: f32,
}

/// What is compared beside the answers.
pub(super) struct Rules<'a> {
    pub(super) tolerance: Tolerance,
    /// A row of the output always stands for the same place.
    pub(super) fixed_anchors: bool,
    /// Candidates from here on were asked for.
    pub(super) score_floor: f32,
    /// Score threshold by class id.
    pub(super) thresholds: &'a [f32],
    pub(super) classes: &'a [String],
}

/// An answer of now in the form of a recorded one.
#[derive(Debug, Clone, Default)]
pub(super) struct Now {
    pub(super) error: Option<String>,
    pub(super) output: Option<OutputLine>,
    pub(super) candidates: Vec<BoxLine>,
    pub(super) candidates_in_all: u64,
    pub(super) detections: Vec<BoxLine>,
}

/// What a comparison has shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found {
    pub(super) differences: Vec<String>,
    /// Largest difference of an edge between boxes that are the same one, px; not of those that are not numbers.
    pub(super) apart_px: f32,
    /// Largest difference of a score between them.
    pub(super) apart_score: f32,
}

impl Rules<'_> {
    pub(super) fn compare(&self, recorded: &FrameLine, now: &Now) -> Found {
        let mut found = Found::default();
        if let Some(other) = &recorded.answered_for {
            found.differences.push(format!("recorded the answer of {other}, now its own"));
        }
        match (&recorded.output, &now.output) {
            (Some(before), Some(after)) => {
                self.compare_output(before, after, &mut found);
                self.compare_candidates(recorded, now, &mut found);
                self.compare_detections(&recorded.detections, &now.detections, "recorded, not now", &mut found);
                self.compare_detections(&now.detections, &recorded.detections, "now, not recorded", &mut found);
            }
            (None, Some(_)) => {
                let why = recorded.error.as_deref().unwrap_or("no answer");
                found.differences.push(format!("recorded no answer ({why}), now there is one"));
            }
            (Some(_), None) => {
                let why = now.error.as_deref().unwrap_or("no answer");
                found.differences.push(format!("recorded an answer, now there is none ({why})"));
            }
            (None, None) => {}
        }
        found
    }

    fn compare_output(&self, before: &OutputLine, after: &OutputLine, found: &mut Found) {
        for (what, before, after) in [
            ("values that are not a number", before.nan, after.nan),
            ("infinite values", before.infinite, after.infinite),
            ("scores out of range", before.scores_out_of_range, after.scores_out_of_range),
            ("class ids out of range", before.class_ids_out_of_range, after.class_ids_out_of_range),
            ("row counts out of range", before.counts_out_of_range, after.counts_out_of_range),
            ("outputs of zeros alone", u64::from(before.all_zero), u64::from(after.all_zero)),
        ] {
            if before != after {
                found.differences.push(format!("recorded {before} {what}, now {after}"));
            }
        }
        for (what, before, after) in [
            ("highest score", before.maximum_score.0, after.maximum_score.0),
            ("mean score", before.mean_score.0, after.mean_score.0),
        ] {
            if difference(before, after) > self.tolerance.score {
                found.differences.push(format!("recorded {what} {before:.4}, now {after:.4}"));
            }
        }
    }

    fn compare_candidates(&self, recorded: &FrameLine, now: &Now, found: &mut Found) {
        // Below this score a box may be there or not: the floor, or the last one that was kept, is too near.
        let cut = |boxes: &[BoxLine], in_all: u64| match boxes.last() {
            Some(last) if in_all > count(boxes.len()) => last.score.0,
            _ => 0.0,
        };
        let cut =
            cut(&recorded.candidates, recorded.candidates_in_all).max(cut(&now.candidates, now.candidates_in_all));
        let certain_from = cut.max(self.score_floor) + self.tolerance.score;
        let certain = |one: &&BoxLine| one.score.0.is_nan() || one.score.0 >= certain_from;
        let (after, before) = (Index::new(&now.candidates), Index::new(&recorded.candidates));
        let mut misses = Vec::new();
        let mut looked_at = 0;
        for wanted in recorded.candidates.iter().filter(certain) {
            looked_at += 1;
            match after.closest(wanted, self.fixed_anchors) {
                None => misses.push(format!("{} before NMS: recorded, not now", self.describe(wanted))),
                Some(twin) => {
                    let (px, score) = apart(wanted, twin);
                    if wanted.class_id == twin.class_id && px <= self.tolerance.px && score <= self.tolerance.score {
                        found.apart_px = found.apart_px.max(px);
                        found.apart_score = found.apart_score.max(score);
                    } else {
                        let (before, after) = (self.describe(wanted), self.describe(twin));
                        misses.push(format!("before NMS: recorded {before}, now {after}"));
                    }
                }
            }
        }
        let extra = now.candidates.iter().filter(certain);
        for extra in extra.filter(|extra| before.closest(extra, self.fixed_anchors).is_none()) {
            misses.push(format!("{} before NMS: now, not recorded", self.describe(extra)));
        }
        if float64(count(misses.len())) > length(looked_at) * f64::from(self.tolerance.share) {
            found.differences.append(&mut misses);
        }
    }

    fn compare_detections(&self, these: &[BoxLine], those: &[BoxLine], complaint: &str, found: &mut Found) {
        for this in these {
            let threshold = usize::try_from(this.class_id).ok().and_then(|id| self.thresholds.get(id)).copied();
            if this.score.0 < threshold.unwrap_or(0.0) + 2.0 * self.tolerance.score {
                continue;
            }
            let like = |that: &BoxLine| {
                that.class_id == this.class_id && that.edges_px().iou(&this.edges_px()) >= SAME_DETECTION_IOU
            };
            if this.edges_px().area_px2() > 0.0 && !those.iter().any(like) {
                found.differences.push(format!("{}: {complaint}", self.describe(this)));
            }
        }
    }

    fn describe(&self, known: &BoxLine) -> String {
        let class = usize::try_from(known.class_id).ok().and_then(|id| self.classes.get(id));
        let class = class.map_or_else(|| format!("class {}", known.class_id), |name| format!("`{name}`"));
        let [left, top, right, bottom] = known.edges.map(|edge| edge.0);
        format!("{class} {:.4} at [{left:.1}, {top:.1}, {right:.1}, {bottom:.1}]", known.score.0)
    }
}

/// Finds the box that should be the same one.
struct Index<'a> {
    boxes: &'a [BoxLine],
    by_anchor: BTreeMap<u32, &'a BoxLine>,
}

impl<'a> Index<'a> {
    fn new(boxes: &'a [BoxLine]) -> Self {
        let by_anchor = boxes.iter().filter_map(|one| Some((one.anchor?, one))).collect();
        Index { boxes, by_anchor }
    }

    /// By anchor where anchors are fixed, else by class and overlap.
    fn closest(&self, wanted: &BoxLine, fixed_anchors: bool) -> Option<&'a BoxLine> {
        if let Some(anchor) = wanted.anchor.filter(|_| fixed_anchors) {
            return self.by_anchor.get(&anchor).copied();
        }
        let same_class = self.boxes.iter().filter(|twin| twin.class_id == wanted.class_id);
        let closeness =
            |twin: &BoxLine| wanted.edges_px().iou(&twin.edges_px()) - (wanted.score.0 - twin.score.0).abs();
        same_class.max_by(|one, other| closeness(one).total_cmp(&closeness(other)))
    }
}

/// How far apart two figures are; infinite when one of them alone is not a number.
fn difference(left: f32, right: f32) -> f32 {
    if left == right || (left.is_nan() && right.is_nan()) {
        return 0.0;
    }
    let apart = (left - right).abs();
    if apart.is_nan() { f32::INFINITY } else { apart }
}

/// Largest difference of an edge, px, and of the score.
fn apart(one: &BoxLine, other: &BoxLine) -> (f32, f32) {
    let edges = one.edges.iter().zip(other.edges).map(|(left, right)| difference(left.0, right.0));
    (edges.fold(0.0, f32::max), difference(one.score.0, other.score.0))
}

#[cfg(test)]
mod tests {
    use super::super::report::Figure;
    use super::*;
    use crate::run::incident::tests::frame_line;

    fn known(anchor: u32, class_id: u32, score: f32, left: f32) -> BoxLine {
        let edges = [left, 10.0, left + 50.0, 60.0].map(Figure);
        BoxLine { anchor: Some(anchor), class_id, score: Figure(score), edges }
    }

    fn output(nan: u64, maximum_score: f32) -> OutputLine {
        OutputLine {
            values: 100,
            nan,
            infinite: 0,
            all_zero: false,
            scores_out_of_range: 0,
            class_ids_out_of_range: 0,
            counts_out_of_range: 0,
            minimum_score: Figure(0.0),
            maximum_score: Figure(maximum_score),
            mean_score: Figure(0.1),
            boxes_before_nms: 1,
        }
    }

    fn recorded(boxes: &[BoxLine]) -> FrameLine {
        FrameLine {
            output: Some(output(0, 0.9)),
            candidates: boxes.to_vec(),
            candidates_in_all: count(boxes.len()),
            detections: boxes.to_vec(),
            ..frame_line(3)
        }
    }

    fn now(boxes: &[BoxLine]) -> Now {
        Now {
            error: None,
            output: Some(output(0, 0.9)),
            candidates: boxes.to_vec(),
            candidates_in_all: count(boxes.len()),
            detections: boxes.to_vec(),
        }
    }

    fn compare(recorded: &FrameLine, now: &Now, fixed_anchors: bool, share: f32) -> Found {
        let classes = ["hole".to_owned(), "short".to_owned()];
        Rules {
            tolerance: Tolerance { px: 0.5, score: 0.005, share },
            fixed_anchors,
            score_floor: 0.25,
            thresholds: &[0.25, 0.25],
            classes: &classes,
        }
        .compare(recorded, now)
    }

    #[test]
    fn equal_answers_and_small_differences_are_the_same() {
        let before = recorded(&[known(7, 0, 0.9, 100.0), known(8, 0, 0.252, 300.0)]);
        for fixed in [true, false] {
            let found = compare(&before, &now(&[known(7, 0, 0.897, 100.4)]), fixed, 0.0);
            assert_eq!(found.differences, Vec::<String>::new());
            assert!((found.apart_px - 0.4).abs() < 1e-3 && (found.apart_score - 0.003).abs() < 1e-4);
        }
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let before = recorded(&[known(7, 0, 0.9, 100.0)]);
        for (name, after, text) in [
            ("missing", now(&[]), "recorded, not now"),
            ("moved", now(&[known(7, 0, 0.9, 101.0)]), "now `hole` 0.9000 at [101.0"),
            ("weaker", now(&[known(7, 0, 0.8, 100.0)]), "now `hole` 0.8000"),
            ("other class", now(&[known(7, 1, 0.9, 100.0)]), "`short`"),
            ("extra", now(&[known(7, 0, 0.9, 100.0), known(9, 1, 0.6, 300.0)]), "now, not recorded"),
            ("not a number", now(&[known(7, 0, f32::NAN, 100.0)]), "NaN"),
            (
                "statistics",
                Now { output: Some(output(7, 0.9)), ..now(&[known(7, 0, 0.9, 100.0)]) },
                "recorded 0 values",
            ),
            ("level", Now { output: Some(output(0, 0.5)), ..now(&[known(7, 0, 0.9, 100.0)]) }, "highest score 0.9000"),
            ("no answer", Now { error: Some("lost".into()), ..Now::default() }, "now there is none (lost)"),
        ] {
            for fixed in [true, false] {
                let found = compare(&before, &after, fixed, 0.0);
                assert!(found.differences.iter().any(|line| line.contains(text)), "{name}: {:?}", found.differences);
            }
        }
        let other = FrameLine { answered_for: Some("stream a, frame 1".into()), ..before.clone() };
        assert!(compare(&other, &now(&[known(7, 0, 0.9, 100.0)]), true, 0.0).differences[0].contains("stream a"));
        let none = FrameLine { output: None, error: Some("stuck".into()), ..frame_line(3) };
        assert!(compare(&none, &now(&[]), true, 0.0).differences[0].contains("recorded no answer (stuck)"));
    }

    #[test]
    fn a_spoiled_answer_given_again_is_the_same() {
        let spoiled = [known(7, 0, f32::NAN, f32::NAN)];
        let before = FrameLine { output: Some(output(7, f32::NAN)), ..recorded(&spoiled) };
        let after = Now { output: Some(output(7, f32::NAN)), ..now(&spoiled) };
        assert_eq!(compare(&before, &after, true, 0.0).differences, Vec::<String>::new());
    }

    #[test]
    fn a_share_may_differ_and_what_was_cut_off_is_not_missed() {
        let boxes: Vec<BoxLine> = (0..100u16).map(|at| known(at.into(), 0, 0.9, f32::from(at) * 60.0)).collect();
        let mut moved = boxes.clone();
        moved[3].edges[0].0 -= 2.0;
        assert_eq!(compare(&recorded(&boxes), &now(&moved), true, 0.02).differences, Vec::<String>::new());
        assert_eq!(compare(&recorded(&boxes), &now(&moved), true, 0.0).differences.len(), 1);
        let cut = FrameLine { candidates_in_all: 500, detections: vec![], ..recorded(&boxes) };
        let more = Now { detections: vec![], ..now(&[boxes, vec![known(200, 0, 0.5, 7000.0)]].concat()) };
        assert_eq!(compare(&cut, &more, true, 0.0).differences, Vec::<String>::new());
    }
}
