//! `[anchors, 5 + classes]`: box values, objectness, class scores, anchor by anchor.

use super::tally::Tally;
use super::{Candidate, centred, offer};
use crate::units::count32;

/// Score = objectness × best class score.
pub(super) fn extract(values: &[f32], width: usize, floor: f32, tally: &mut Tally, boxes: &mut Vec<Candidate>) {
    for (anchor, row) in values.chunks_exact(width).enumerate() {
        let (geometry, scores) = row.split_at(4);
        tally.numbers(geometry);
        tally.scores(scores);
        let (objectness, classes) = (scores[0], &scores[1..]);
        let (class_id, best) = best_class(classes);
        let score = objectness * best;
        tally.best_scores(&[score]);
        if score >= floor {
            let edges = centred([geometry[0], geometry[1], geometry[2], geometry[3]]);
            let candidate = Candidate { anchor: count32(anchor), class_id: count32(class_id), score, edges };
            if offer(boxes, floor, candidate) {
                tally.candidate();
            }
        }
    }
}

/// The first class with the highest score; NaN is never it.
fn best_class(scores: &[f32]) -> (usize, f32) {
    let mut best = (0, f32::NEG_INFINITY);
    for (class_id, &score) in scores.iter().enumerate() {
        if score > best.1 {
            best = (class_id, score);
        }
    }
    best
}
