//! What users see: counts at the recipe's thresholds, and how far boxes moved.

use super::coco::{edges_px, overlap};
use super::labels::Truth;
use crate::bundle::gate::{Operating, Shift};
use crate::detections::Detection;
use crate::units::{count, index, length};

/// Overlap from which a box is taken for a true one.
const OVERLAP: f64 = 0.5;

/// Pairs boxes of one class in one picture: each of `boxes`, best score first, takes the free true box it overlaps most.
/// Gives for each box the position of its partner.
fn pair(truth: &[[f64; 4]], boxes: &[[f64; 4]]) -> Vec<Option<usize>> {
    let mut taken = vec![false; truth.len()];
    let partner = |found: &[f64; 4]| {
        let mut best = (OVERLAP, None);
        for (at, label) in truth.iter().enumerate() {
            let overlap = overlap(found, label);
            if !taken[at] && overlap >= best.0 {
                best = (overlap, Some(at));
            }
        }
        if let Some(at) = best.1 {
            taken[at] = true;
        }
        best.1
    };
    boxes.iter().map(partner).collect()
}

/// Counts of class `class_id` over all pictures; `answers` holds what is above the thresholds, best score first.
pub(super) fn counts(truth: &[Vec<Truth>], answers: &[Vec<Detection>], class_id: u32) -> Operating {
    let mut sum = Operating::default();
    for (truth, answers) in truth.iter().zip(answers) {
        let truth: Vec<[f64; 4]> =
            truth.iter().filter(|truth| truth.class_id == class_id).map(|truth| truth.edges_px).collect();
        let boxes: Vec<[f64; 4]> = answers.iter().filter(|answer| answer.class_id == class_id).map(edges_px).collect();
        let found = pair(&truth, &boxes).iter().flatten().count();
        sum.labels += count(truth.len());
        sum.found += count(found);
        sum.false_boxes += count(boxes.len() - found);
    }
    sum
}

/// The score threshold with the fewest misses and false boxes together, as the highest F1 weighs them, for class
/// `class_id`; `answers` holds boxes of every score, best first.
pub(super) fn best_score(truth: &[Vec<Truth>], answers: &[Vec<Detection>], class_id: u32) -> Option<f32> {
    let mut judged: Vec<(f32, bool)> = Vec::new();
    let mut labels = 0;
    for (truth, answers) in truth.iter().zip(answers) {
        let truth: Vec<[f64; 4]> =
            truth.iter().filter(|truth| truth.class_id == class_id).map(|truth| truth.edges_px).collect();
        let boxes: Vec<&Detection> = answers.iter().filter(|answer| answer.class_id == class_id).collect();
        let edges: Vec<[f64; 4]> = boxes.iter().map(|found| edges_px(found)).collect();
        let right = pair(&truth, &edges);
        labels += truth.len();
        judged.extend(boxes.iter().zip(right).map(|(found, partner)| (found.score, partner.is_some())));
    }
    judged.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut best = (0.0, None);
    let mut right = 0_usize;
    for (at, (score, is_right)) in judged.iter().enumerate() {
        right += usize::from(*is_right);
        // A threshold takes all boxes of one score or none.
        if judged.get(at + 1).is_some_and(|next| next.0 == *score) {
            continue;
        }
        let balance = 2.0 * length(right) / length(at + 1 + labels);
        if balance > best.0 {
            best = (balance, Some(*score));
        }
    }
    best.1.filter(|_| labels > 0)
}

/// One picture in which the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct PictureShift {
    /// Boxes that only one of the two has.
    pub(super) unmatched: u64,
    /// Largest corner difference of a matched box, px.
    pub(super) worst_px: f64,
}

/// How two sets of answers differ.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Compared {
    /// Over all pictures.
    pub(super) shift: Shift,
    /// Picture by picture.
    pub(super) pictures: Vec<PictureShift>,
    /// Scores of the boxes that both have: original, candidate.
    pub(super) scores: Vec<[f32; 2]>,
}

/// Compares `candidate` with `original`, both above the thresholds, and says for each picture how much differs.
pub(super) fn shift(original: &[Vec<Detection>], candidate: &[Vec<Detection>], classes: u32) -> Compared {
    let mut total = Shift::default();
    let (mut moved_px, mut scores) = (Vec::new(), Vec::new());
    let mut pictures = Vec::with_capacity(original.len());
    for (before, after) in original.iter().zip(candidate) {
        let mut picture = PictureShift::default();
        for class_id in 0..classes {
            let before: Vec<&Detection> = before.iter().filter(|found| found.class_id == class_id).collect();
            let after: Vec<&Detection> = after.iter().filter(|found| found.class_id == class_id).collect();
            let edges = |boxes: &[&Detection]| boxes.iter().map(|found| edges_px(found)).collect::<Vec<_>>();
            let (edges_before, edges_after) = (edges(&before), edges(&after));
            let mut matched = 0;
            for (at, partner) in pair(&edges_before, &edges_after).into_iter().enumerate() {
                let Some(partner) = partner else { continue };
                matched += 1;
                let corner = (0..4).map(|side| (edges_before[partner][side] - edges_after[at][side]).abs());
                let corner = corner.fold(0.0, f64::max);
                picture.worst_px = picture.worst_px.max(corner);
                moved_px.push(corner);
                scores.push([before[partner].score, after[at].score]);
            }
            total.matched += count(matched);
            total.lost += count(before.len() - matched);
            total.new += count(after.len() - matched);
            picture.unmatched += count(before.len() + after.len() - 2 * matched);
        }
        pictures.push(picture);
    }
    moved_px.sort_by(f64::total_cmp);
    let mut score_change: Vec<f64> = scores.iter().map(|pair| f64::from(pair[1]) - f64::from(pair[0])).collect();
    score_change.sort_by(f64::total_cmp);
    total.box_median_px = quantile(&moved_px, 50);
    total.box_p99_px = quantile(&moved_px, 99);
    total.score_median = quantile(&score_change, 50);
    total.score_p1 = quantile(&score_change, 1);
    total.score_p99 = quantile(&score_change, 99);
    Compared { shift: total, pictures, scores }
}

/// The value that `percent` of the sorted `values` stay at or below; 0 without any.
fn quantile(values: &[f64], percent: u32) -> f64 {
    let at = values.len().saturating_sub(1) * index(percent);
    values.get(at.div_ceil(100)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BoxPx;

    fn found(class_id: u32, score: f32, left: f32) -> Detection {
        let edges = BoxPx::new(left, 0.0, left + 10.0, 10.0);
        Detection { class_id, score, edges, unclipped: edges }
    }

    #[test]
    fn counts_by_hand() {
        let truth = vec![vec![
            Truth { class_id: 0, edges_px: [0.0, 0.0, 10.0, 10.0] },
            Truth { class_id: 1, edges_px: [50.0, 0.0, 60.0, 10.0] },
        ]];
        let answers = vec![vec![found(0, 0.9, 1.0), found(0, 0.8, 0.0), found(0, 0.7, 50.0)]];
        assert_eq!(counts(&truth, &answers, 0), Operating { labels: 1, found: 1, false_boxes: 2 });
        assert_eq!(counts(&truth, &answers, 1), Operating { labels: 1, found: 0, false_boxes: 0 });
        assert_eq!(best_score(&truth, &answers, 0), Some(0.9));
        assert_eq!(best_score(&truth, &answers, 1), None);
    }

    /// F1 of what a threshold leaves, counted anew.
    fn balance_at(threshold: f32, truth: &[Vec<Truth>], answers: &[Vec<Detection>]) -> f64 {
        let kept: Vec<Vec<Detection>> = answers
            .iter()
            .map(|answers| answers.iter().filter(|found| found.score >= threshold).cloned().collect())
            .collect();
        let left = counts(truth, &kept, 0);
        2.0 * left.found as f64 / (left.labels + left.found + left.false_boxes).max(1) as f64
    }

    proptest::proptest! {
        /// No other threshold does better than the recommended one, counted as the gate counts.
        #[test]
        fn no_threshold_beats_the_recommended_one(
            labels in proptest::collection::vec((0_u8..2, 0_u8..6), 1..12),
            boxes in proptest::collection::vec((0_u8..2, 0_u8..6, 1_u8..20), 0..30),
        ) {
            let place = |slot: u8| f64::from(slot) * 20.0;
            let mut truth = vec![vec![], vec![]];
            for (picture, slot) in labels {
                let edges_px = [place(slot), 0.0, place(slot) + 10.0, 10.0];
                truth[usize::from(picture)].push(Truth { class_id: 0, edges_px });
            }
            let mut answers = vec![vec![], vec![]];
            for (picture, slot, score) in boxes {
                answers[usize::from(picture)].push(found(0, f32::from(score) / 20.0, f32::from(slot) * 20.0));
            }
            answers.iter_mut().for_each(|answers| answers.sort_by(|one, other| other.score.total_cmp(&one.score)));
            let recommended = best_score(&truth, &answers, 0);
            let best = (0..=20_u8).map(|step| balance_at(f32::from(step) / 20.0, &truth, &answers));
            let best = best.fold(0.0, f64::max);
            match recommended {
                Some(threshold) => proptest::prop_assert!((balance_at(threshold, &truth, &answers) - best).abs() < 1e-12),
                None => proptest::prop_assert_eq!(best, 0.0),
            }
        }
    }

    #[test]
    fn shifts_by_hand() {
        let before = vec![vec![found(0, 0.9, 0.0), found(0, 0.5, 100.0)]];
        let after = vec![vec![found(0, 0.8, 2.0), found(1, 0.5, 100.0)]];
        let Compared { shift, pictures, scores } = shift(&before, &after, 2);
        assert_eq!(scores, [[0.9, 0.8]]);
        assert_eq!((shift.matched, shift.lost, shift.new), (1, 1, 1));
        assert_eq!(shift.box_p99_px, 2.0);
        assert!((shift.score_median + 0.1).abs() < 1e-6);
        assert_eq!(pictures[0].unmatched, 2);
    }
}
