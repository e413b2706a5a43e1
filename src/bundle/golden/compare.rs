//! One answer against the known one. Differences within the tolerance are normal between backends; all else is named.

use super::{Answer, KnownBox};
use crate::bundle::manifest::Golden;
use crate::error::{Error, Result};
use crate::units::{count, float64, length};

/// Boxes that overlap at least this much may be the same detection, even when NMS kept another neighbour.
const SAME_DETECTION_IOU: f32 = 0.5;

/// Largest differences seen between two answers that agree.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Difference {
    /// Largest corner difference of a candidate, px of the source picture.
    pub(super) corner_px: f32,
    /// Largest score difference of a candidate.
    pub(super) score: f32,
}

/// How two answers are compared.
pub(super) struct Comparison<'a> {
    /// Floor and tolerances.
    pub(super) golden: &'a Golden,
    /// Score threshold of a detection, by class id.
    pub(super) thresholds: &'a [f32],
    /// Whether a row of the output always stands for the same place (layouts before NMS).
    pub(super) fixed_anchors: bool,
    /// Class names.
    pub(super) classes: &'a [String],
}

impl Comparison<'_> {
    /// Compares `found` with `expected`; `found` reaches below the floor by the tolerance of the score.
    pub(super) fn compare(&self, expected: &Answer, found: &Answer) -> Result<Difference> {
        self.compare_level("highest score of the output", expected.maximum_score, found.maximum_score)?;
        self.compare_level("mean score of the output", expected.mean_score, found.mean_score)?;
        let difference = self.compare_candidates(expected, found)?;
        self.compare_detections(&expected.detections, &found.detections, "found no box like the expected")?;
        self.compare_detections(&found.detections, &expected.detections, "expected no box like the found")?;
        Ok(difference)
    }

    fn compare_level(&self, what: &str, expected: f32, found: f32) -> Result<()> {
        if (expected - found).abs() <= self.golden.tolerance_score {
            return Ok(());
        }
        Err(Error::refused(format!(
            "{what}: found {found:.4}, expected {expected:.4} ± {}",
            self.golden.tolerance_score
        )))
    }

    fn compare_candidates(&self, expected: &Answer, found: &Answer) -> Result<Difference> {
        // Below this score a box may be there or not: the floor, or the last one that was kept, is too near.
        let certain_from = |answer: &Answer| {
            let cut = if answer.candidates_in_all > count(answer.candidates.len()) {
                answer.candidates.last().map_or(0.0, |last| last.score)
            } else {
                0.0
            };
            cut.max(self.golden.score_floor) + self.golden.tolerance_score
        };
        let certain_from = certain_from(expected).max(certain_from(found));
        let mut difference = Difference::default();
        let mut misses = Vec::new();
        let mut certain = 0;
        for wanted in expected.candidates.iter().filter(|wanted| wanted.score >= certain_from) {
            certain += 1;
            match self.closest(wanted, &found.candidates) {
                Some(twin) if self.agree(wanted, twin, &mut difference) => {}
                twin => misses.push(format!(
                    "found {}, expected {}",
                    twin.map_or_else(|| "no box there".to_owned(), |twin| self.describe(twin)),
                    self.describe(wanted)
                )),
            }
        }
        for extra in found.candidates.iter().filter(|extra| extra.score >= certain_from) {
            if self.closest(extra, &expected.candidates).is_none() {
                misses.push(format!("found {}, expected no box there", self.describe(extra)));
            }
        }
        let allowed = length(certain) * f64::from(self.golden.tolerated_share);
        match misses.first() {
            Some(first) if float64(count(misses.len())) > allowed => Err(Error::refused(format!(
                "{first} (tolerance {} px and {}; {} of {certain} boxes differ)",
                self.golden.tolerance_px,
                self.golden.tolerance_score,
                misses.len()
            ))),
            _ => Ok(difference),
        }
    }

    /// The box that should be the same one: by anchor where anchors are fixed, else by class and overlap.
    fn closest<'b>(&self, wanted: &KnownBox, among: &'b [KnownBox]) -> Option<&'b KnownBox> {
        if self.fixed_anchors {
            return among.iter().find(|twin| twin.anchor == wanted.anchor);
        }
        let same_class = among.iter().filter(|twin| twin.class_id == wanted.class_id);
        same_class.max_by(|left, right| {
            let closeness = |twin: &KnownBox| wanted.edges.iou(&twin.edges) - (wanted.score - twin.score).abs();
            closeness(left).total_cmp(&closeness(right))
        })
    }

    fn agree(&self, wanted: &KnownBox, twin: &KnownBox, difference: &mut Difference) -> bool {
        let (corner_px, score) = (corner_difference_px(wanted, twin), (wanted.score - twin.score).abs());
        let agree = wanted.class_id == twin.class_id
            && corner_px <= self.golden.tolerance_px
            && score <= self.golden.tolerance_score;
        if agree {
            difference.corner_px = difference.corner_px.max(corner_px);
            difference.score = difference.score.max(score);
        }
        agree
    }

    fn compare_detections(&self, these: &[KnownBox], those: &[KnownBox], complaint: &str) -> Result<()> {
        for this in these {
            let threshold = usize::try_from(this.class_id).ok().and_then(|id| self.thresholds.get(id)).copied();
            if this.score < threshold.unwrap_or(0.0) + 2.0 * self.golden.tolerance_score {
                continue;
            }
            let like =
                |that: &KnownBox| that.class_id == this.class_id && this.edges.iou(&that.edges) >= SAME_DETECTION_IOU;
            if !those.iter().any(like) && this.edges.area_px2() > 0.0 {
                return Err(Error::refused(format!("{complaint} {}", self.describe(this))));
            }
        }
        Ok(())
    }

    fn describe(&self, known: &KnownBox) -> String {
        let class = usize::try_from(known.class_id).ok().and_then(|id| self.classes.get(id));
        let class = class.map_or_else(|| format!("class {}", known.class_id), |name| format!("`{name}`"));
        let BoxEdges(text) = BoxEdges::from(known);
        format!("{class} {:.4} at {text}", known.score)
    }
}

struct BoxEdges(String);

impl From<&KnownBox> for BoxEdges {
    fn from(known: &KnownBox) -> Self {
        let [left, top, right, bottom]: [f32; 4] = known.edges.into();
        BoxEdges(format!("[{left:.1}, {top:.1}, {right:.1}, {bottom:.1}]"))
    }
}

/// Largest difference of an edge, px; infinite when one is not a number.
fn corner_difference_px(one: &KnownBox, other: &KnownBox) -> f32 {
    let (one, other): ([f32; 4], [f32; 4]) = (one.edges.into(), other.edges.into());
    one.iter().zip(other).fold(0.0, |largest: f32, (left, right)| {
        let difference = (left - right).abs();
        if difference.is_nan() { f32::INFINITY } else { largest.max(difference) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::manifest::GoldenKind;
    use crate::units::BoxPx;

    fn golden() -> Golden {
        Golden {
            kind: GoldenKind::Given,
            frames: vec![],
            answered_by: String::new(),
            tolerance_px: 1.0,
            tolerance_score: 0.01,
            tolerated_share: 0.0,
            score_floor: 0.25,
        }
    }

    fn known(anchor: u32, class_id: u32, score: f32, left: f32) -> KnownBox {
        KnownBox { anchor: Some(anchor), class_id, score, edges: BoxPx::new(left, 10.0, left + 50.0, 60.0) }
    }

    fn answer(boxes: &[KnownBox]) -> Answer {
        Answer {
            detections: boxes.to_vec(),
            candidates: boxes.to_vec(),
            candidates_in_all: count(boxes.len()),
            maximum_score: 0.9,
            mean_score: 0.1,
        }
    }

    fn compare(expected: &Answer, found: &Answer, fixed_anchors: bool, golden: &Golden) -> Result<Difference> {
        let classes = ["hole".to_owned(), "short".to_owned()];
        Comparison { golden, thresholds: &[0.25, 0.25], fixed_anchors, classes: &classes }.compare(expected, found)
    }

    #[test]
    fn small_differences_pass_and_are_reported() {
        let expected = answer(&[known(7, 0, 0.9, 100.0), known(9, 1, 0.5, 300.0)]);
        let found = answer(&[known(7, 0, 0.895, 100.5), known(9, 1, 0.5, 300.0)]);
        for fixed in [true, false] {
            let difference = compare(&expected, &found, fixed, &golden()).unwrap();
            assert!((difference.corner_px - 0.5).abs() < 1e-3 && (difference.score - 0.005).abs() < 1e-4);
        }
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let expected = answer(&[known(7, 0, 0.9, 100.0)]);
        let cases = [
            ("missing", answer(&[]), "no box there"),
            ("moved", answer(&[known(7, 0, 0.9, 103.0)]), "expected `hole` 0.9000 at [100.0, 10.0, 150.0, 60.0]"),
            ("weaker", answer(&[known(7, 0, 0.8, 100.0)]), "found `hole` 0.8000"),
            ("other class", answer(&[known(7, 1, 0.9, 100.0)]), ""),
            ("extra", answer(&[known(7, 0, 0.9, 100.0), known(8, 1, 0.6, 300.0)]), ""),
            ("not a number", answer(&[known(7, 0, 0.9, f32::NAN)]), ""),
        ];
        for fixed in [true, false] {
            for (name, found, text) in &cases {
                let error = compare(&expected, found, fixed, &golden()).expect_err(name).to_string();
                assert!(error.contains(text), "{name}: {error}");
            }
        }
        let brighter = Answer { mean_score: 0.2, ..expected.clone() };
        let error = compare(&expected, &brighter, true, &golden()).unwrap_err().to_string();
        assert!(error.contains("mean score of the output: found 0.2000, expected 0.1000"), "{error}");
    }

    #[test]
    fn boxes_near_the_floor_may_come_and_go() {
        let expected = answer(&[known(7, 0, 0.9, 100.0), known(8, 0, 0.255, 300.0)]);
        let found = answer(&[known(7, 0, 0.9, 100.0)]);
        compare(&expected, &found, true, &golden()).unwrap();
        compare(&found, &expected, true, &golden()).unwrap();
    }

    #[test]
    fn nms_may_keep_the_other_of_two_neighbours() {
        let candidates = [known(7, 0, 0.900, 100.0), known(8, 0, 0.899, 105.0)];
        let mut expected = answer(&candidates);
        let mut found = answer(&candidates);
        expected.detections = vec![candidates[0]];
        found.detections = vec![candidates[1]];
        compare(&expected, &found, true, &golden()).unwrap();
        found.detections.clear();
        compare(&expected, &found, true, &golden()).unwrap_err();
    }

    #[test]
    fn a_share_may_differ_where_the_manifest_says_so() {
        let boxes: Vec<_> = (0..100u16).map(|at| known(at.into(), 0, 0.9, f32::from(at) * 60.0)).collect();
        let mut expected = answer(&boxes);
        let mut found = answer(&boxes);
        expected.detections.clear();
        found.detections.clear();
        found.candidates[3].score = 0.7;
        compare(&expected, &found, true, &golden()).unwrap_err();
        let tolerant = Golden { tolerated_share: 0.02, ..golden() };
        compare(&expected, &found, true, &tolerant).unwrap();
        for known in &mut found.candidates[10..20] {
            known.class_id = 1;
        }
        compare(&expected, &found, true, &tolerant).unwrap_err();
    }
}
