//! Average precision as COCO's evaluator computes it: 101 points, overlaps 0.5 to 0.95, 300 boxes a picture, no areas.

use super::labels::Truth;
use crate::detections::Detection;
use crate::units::length;

/// Overlaps at which boxes count as found.
const OVERLAPS: [f64; 10] = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95];
/// Boxes of one class that are looked at in one picture.
const MOST_BOXES: usize = 300;

/// Average precision of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Average {
    /// At an overlap of 0.5.
    pub(super) at_50: f64,
    /// Over all overlaps.
    pub(super) at_50_95: f64,
}

/// Intersection over union.
pub(super) fn overlap(one: &[f64; 4], other: &[f64; 4]) -> f64 {
    let width = one[2].min(other[2]) - one[0].max(other[0]);
    let height = one[3].min(other[3]) - one[1].max(other[1]);
    if width <= 0.0 || height <= 0.0 {
        return 0.0;
    }
    let area = |edges: &[f64; 4]| (edges[2] - edges[0]) * (edges[3] - edges[1]);
    let intersection = width * height;
    intersection / (area(one) + area(other) - intersection)
}

pub(super) fn edges_px(detection: &Detection) -> [f64; 4] {
    <[f32; 4]>::from(detection.edges).map(f64::from)
}

/// The average precision of class `class_id`; `None` when no picture has a true box of it.
pub(super) fn average(truth: &[Vec<Truth>], answers: &[Vec<Detection>], class_id: u32) -> Option<Average> {
    let mut labels = 0_usize;
    // Score, and for each overlap whether the box is true, of every box in every picture.
    let mut judged: Vec<(f32, [bool; OVERLAPS.len()])> = Vec::new();
    for (truth, answers) in truth.iter().zip(answers) {
        let truth: Vec<&Truth> = truth.iter().filter(|truth| truth.class_id == class_id).collect();
        labels += truth.len();
        let mut boxes: Vec<&Detection> = answers.iter().filter(|answer| answer.class_id == class_id).collect();
        boxes.sort_by(|one, other| other.score.total_cmp(&one.score));
        boxes.truncate(MOST_BOXES);
        let mut results = vec![[false; OVERLAPS.len()]; boxes.len()];
        let table: Vec<Vec<f64>> = boxes
            .iter()
            .map(|found| truth.iter().map(|truth| overlap(&edges_px(found), &truth.edges_px)).collect())
            .collect();
        for (at, &least) in OVERLAPS.iter().enumerate() {
            let mut taken = vec![false; truth.len()];
            for (overlaps, result) in table.iter().zip(&mut results) {
                let mut best = (least.min(1.0 - 1e-10), None);
                for (label, &overlap) in overlaps.iter().enumerate() {
                    if !taken[label] && overlap >= best.0 {
                        best = (overlap, Some(label));
                    }
                }
                if let Some(label) = best.1 {
                    taken[label] = true;
                    result[at] = true;
                }
            }
        }
        judged.extend(boxes.iter().map(|found| found.score).zip(results));
    }
    if labels == 0 {
        return None;
    }
    judged.sort_by(|one, other| other.0.total_cmp(&one.0));
    let averages: Vec<f64> = (0..OVERLAPS.len())
        .map(|at| area_under(&judged.iter().map(|(_, results)| results[at]).collect::<Vec<_>>(), labels))
        .collect();
    Some(Average {
        at_50: averages.first().copied().unwrap_or(0.0),
        at_50_95: averages.iter().sum::<f64>() / length(averages.len()),
    })
}

/// Mean over 101 recalls of the best precision at that recall or above; `results` is sorted by score.
fn area_under(results: &[bool], labels: usize) -> f64 {
    let mut right = 0_usize;
    let mut curve: Vec<(f64, f64)> = Vec::with_capacity(results.len());
    for (at, &is_right) in results.iter().enumerate() {
        right += usize::from(is_right);
        curve.push((length(right) / length(labels), length(right) / length(at + 1)));
    }
    let mut best = 0.0_f64;
    for (_, precision) in curve.iter_mut().rev() {
        best = best.max(*precision);
        *precision = best;
    }
    let mut sum = 0.0;
    for point in 0..=100 {
        let recall = f64::from(point) / 100.0;
        let first = curve.partition_point(|(reached, _)| *reached < recall);
        sum += curve.get(first).map_or(0.0, |(_, precision)| *precision);
    }
    sum / 101.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BoxPx;

    fn found(score: f32, left: f32) -> Detection {
        let edges = BoxPx::new(left, 0.0, left + 10.0, 10.0);
        Detection { class_id: 0, score, edges, unclipped: edges }
    }

    fn truth(left: f64) -> Truth {
        Truth { class_id: 0, edges_px: [left, 0.0, left + 10.0, 10.0] }
    }

    #[test]
    fn one_right_and_one_wrong_box_by_hand() {
        let labels = vec![vec![truth(0.0), truth(100.0)]];
        let right_first = vec![vec![found(0.9, 0.0), found(0.8, 50.0)]];
        let average_of = |answers: &[Vec<Detection>]| average(&labels, answers, 0).unwrap().at_50;
        // Precision 1 up to recall 0.5: 51 of 101 points.
        assert!((average_of(&right_first) - 51.0 / 101.0).abs() < 1e-12);
        let wrong_first = vec![vec![found(0.7, 0.0), found(0.8, 50.0)]];
        assert!((average_of(&wrong_first) - 0.5 * 51.0 / 101.0).abs() < 1e-12);
        assert_eq!(average(&labels, &right_first, 1), None);
        assert_eq!(average_of(&[vec![]]), 0.0);
    }

    #[test]
    fn a_label_is_found_once_and_overlaps_count() {
        let labels = vec![vec![truth(0.0)]];
        let twice = vec![vec![found(0.9, 0.0), found(0.8, 0.5)]];
        assert_eq!(average(&labels, &twice, 0).unwrap().at_50, 1.0);
        // 8 of 12 px overlap: found at 0.5, 0.55, 0.6 and 0.65.
        let aside = vec![vec![found(0.9, 2.0)]];
        let average = average(&labels, &aside, 0).unwrap();
        assert!((average.at_50_95 - 0.4).abs() < 1e-12);
    }
}
