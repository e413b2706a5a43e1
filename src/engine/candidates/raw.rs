//! `[4 + classes, anchors]`: box values, then class scores, channel by channel.

use super::tally::{Tally, is_odd_score, magnitude_bits};
use super::{Candidate, centred, offer};
use crate::units::count32;

/// Anchors worked on at once: 80 classes of them stay in the second-level cache.
const TILE: usize = 512;

/// Channel-major pass: the best score of each anchor first, the class only for those that reach the floor.
pub(super) fn extract(
    values: &[f32],
    anchors: usize,
    floor: f32,
    best_scores: &mut Vec<f32>,
    tally: &mut Tally,
    boxes: &mut Vec<Candidate>,
) {
    let (geometry, scores) = values.split_at(4 * anchors);
    tally.numbers(geometry);
    best_scores.resize(TILE, 0.0);
    for start in (0..anchors).step_by(TILE) {
        let tile = start..(start + TILE).min(anchors);
        let best = &mut best_scores[..tile.len()];
        best.fill(f32::NEG_INFINITY);
        for channel in scores.chunks_exact(anchors) {
            let channel = &channel[tile.clone()];
            let (any_bit, odd) = raise(best, channel);
            tally.add_scores(channel, any_bit, odd);
        }
        tally.best_scores(best);
        for (anchor, &score) in tile.clone().zip(best.iter()) {
            if score >= floor {
                let at = |row: usize| geometry[row * anchors + anchor];
                let class_id = scores.chunks_exact(anchors).position(|channel| channel[anchor] == score);
                let candidate = Candidate {
                    anchor: count32(anchor),
                    class_id: count32(class_id.unwrap_or(0)),
                    score,
                    edges: centred([at(0), at(1), at(2), at(3)]),
                };
                if offer(boxes, floor, candidate) {
                    tally.candidate();
                }
            }
        }
    }
}

/// Raises `best` to `channel` where that is higher (NaN never is) and looks at every value on the way.
#[inline]
fn raise(best: &mut [f32], channel: &[f32]) -> (u32, u32) {
    let mut any_bit = 0;
    let mut odd = 0;
    for (best, &value) in best.iter_mut().zip(channel) {
        *best = if value > *best { value } else { *best };
        any_bit |= magnitude_bits(value);
        odd += u32::from(is_odd_score(value));
    }
    (any_bit, odd)
}
