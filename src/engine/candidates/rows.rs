//! Outputs that carry finished boxes, row by row: end-to-end heads and the NMS plugin.

use super::tally::Tally;
use super::{BoxPx, Candidate, class_id, offer};
use crate::units::count32;

/// `[rows, 6]`: x1, y1, x2, y2, score, class. Rows of zeros are padding and count in no score statistics.
pub(super) fn end_to_end(values: &[f32], classes: u32, floor: f32, tally: &mut Tally, boxes: &mut Vec<Candidate>) {
    for (row, fields) in values.as_chunks::<6>().0.iter().enumerate() {
        let &[left_px, top_px, right_px, bottom_px, score, class] = fields;
        tally.numbers(&fields[..4]);
        tally.scores(&fields[4..5]);
        tally.numbers(&fields[5..]);
        if fields.iter().all(|&field| field == 0.0) {
            continue;
        }
        let edges = BoxPx::new(left_px, top_px, right_px, bottom_px);
        one_row(Found { row, edges, score, class }, classes, floor, tally, boxes);
    }
}

/// The parts of the plugin's outputs that belong to one picture.
pub(super) struct Plugin<'a> {
    pub(super) count: f32,
    pub(super) boxes: &'a [f32],
    pub(super) scores: &'a [f32],
    pub(super) class_ids: &'a [f32],
}

/// Only the first `count` rows are valid. The plugin leaves the others as they were in memory: they are not looked at.
pub(super) fn nms_plugin(plugin: &Plugin<'_>, classes: u32, floor: f32, tally: &mut Tally, boxes: &mut Vec<Candidate>) {
    tally.numbers(&[plugin.count]);
    let rows = plugin.scores.len();
    let whole = plugin.count.fract() == 0.0 && plugin.count >= 0.0;
    let valid = if whole { plugin.count as usize } else { 0 };
    if !whole || valid > rows {
        tally.bad_count();
    }
    let corners = plugin.boxes.as_chunks::<4>().0;
    let fields = corners.iter().zip(plugin.scores).zip(plugin.class_ids);
    for (row, ((corners, &score), &class)) in fields.enumerate().take(valid) {
        tally.numbers(corners);
        tally.scores(&[score]);
        tally.numbers(&[class]);
        one_row(Found { row, edges: BoxPx::from(*corners), score, class }, classes, floor, tally, boxes);
    }
}

struct Found {
    row: usize,
    edges: BoxPx,
    score: f32,
    class: f32,
}

fn one_row(found: Found, classes: u32, floor: f32, tally: &mut Tally, boxes: &mut Vec<Candidate>) {
    tally.best_scores(&[found.score]);
    let Some(class_id) = class_id(found.class, classes) else {
        tally.bad_class_id();
        return;
    };
    let candidate = Candidate { anchor: count32(found.row), class_id, score: found.score, edges: found.edges };
    if offer(boxes, floor, candidate) {
        tally.candidate();
    }
}
