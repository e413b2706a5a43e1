//! Every slot of a batch answers as the first one does when it is alone.

use super::Report;
use crate::bundle::{Bundle, golden};
use crate::engine::{Candidates, Engine, Inference};
use crate::error::Result;
use crate::frame::Frame;
use crate::units::{count, index};

/// Largest difference of a corner, px of the input, and of a score.
const CORNER_PX: f64 = 0.1;
const SCORE: f64 = 0.002;

/// Full batches of different pictures against each picture alone in the first slot; nothing for batch 1.
pub(super) fn compare(bundle: &Bundle, engine: &mut dyn Engine, report: &mut Report) -> Result<()> {
    let batch = index(engine.info().input.batch);
    // Rows of finished boxes have no place of their own: two nearly equal ones may change it.
    if batch < 2 || !engine.info().layout.needs_nms() {
        return Ok(());
    }
    let frames: Vec<Frame> = bundle
        .golden()?
        .frames
        .into_iter()
        .zip(0..)
        .map(|(known, number)| golden::frame(count(number), known.picture))
        .collect();
    let mut alone = vec![];
    let mut answers = vec![];
    for frame in &frames {
        engine.infer(&[frame], &mut answers)?;
        alone.extend(answers.pop().map(|answer: Inference| answer.candidates));
        answers.clear();
    }
    let (mut corner_px, mut score, mut other, mut boxes) = (0.0_f64, 0.0_f64, 0_u32, 0_u32);
    for shift in 0..frames.len() {
        let of_slot = |slot: usize| (slot + shift) % frames.len();
        let batch: Vec<&Frame> = (0..batch).map(|slot| &frames[of_slot(slot)]).collect();
        engine.infer(&batch, &mut answers)?;
        for (slot, answer) in answers.drain(..).enumerate() {
            let apart = difference(&answer.candidates, &alone[of_slot(slot)]);
            (corner_px, score) = (corner_px.max(apart.corner_px), score.max(apart.score));
            other += apart.other;
            boxes += apart.boxes;
        }
    }
    report.figure("slots: boxes compared", f64::from(boxes), "");
    report.bounded("slots: boxes that only one has", f64::from(other), "", "0".into(), other == 0);
    let text = format!("at most {CORNER_PX} px");
    report.bounded(
        "slots: largest difference of a corner from the picture alone",
        corner_px,
        "px",
        text,
        corner_px <= CORNER_PX,
    );
    let text = format!("at most {SCORE}");
    report.bounded("slots: largest difference of a score", score, "", text, score <= SCORE);
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Difference {
    corner_px: f64,
    score: f64,
    /// Boxes that only one side has, those at the floor left out.
    other: u32,
    boxes: u32,
}

fn difference(one: &Candidates, two: &Candidates) -> Difference {
    let mut found = Difference { corner_px: 0.0, score: 0.0, other: 0, boxes: 0 };
    let lowest = one.boxes.iter().chain(&two.boxes).map(|candidate| candidate.score).fold(1.0, f32::min);
    let near_floor = |score: f32| f64::from(score - lowest) < SCORE;
    for candidate in &one.boxes {
        let same = |other: &&crate::engine::Candidate| {
            other.anchor == candidate.anchor && other.class_id == candidate.class_id
        };
        let Some(twin) = two.boxes.iter().find(same) else {
            found.other += u32::from(!near_floor(candidate.score));
            continue;
        };
        found.boxes += 1;
        found.score = found.score.max(f64::from((candidate.score - twin.score).abs()));
        let (left, right) = (candidate.edges, twin.edges);
        for (x, y) in [
            (left.left_px, right.left_px),
            (left.top_px, right.top_px),
            (left.right_px, right.right_px),
            (left.bottom_px, right.bottom_px),
        ] {
            found.corner_px = found.corner_px.max(f64::from((x - y).abs()));
        }
    }
    let missing = two.boxes.iter().filter(|candidate| {
        !near_floor(candidate.score)
            && !one.boxes.iter().any(|other| other.anchor == candidate.anchor && other.class_id == candidate.class_id)
    });
    found.other += crate::units::count32(missing.count());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Candidate;
    use crate::units::BoxPx;

    fn candidate(anchor: u32, score: f32, left_px: f32) -> Candidate {
        Candidate { anchor, class_id: 1, score, edges: BoxPx { left_px, top_px: 2.0, right_px: 30.0, bottom_px: 40.0 } }
    }

    #[test]
    fn boxes_are_compared_by_anchor_and_those_at_the_floor_may_come_and_go() {
        let of = |boxes: Vec<Candidate>| Candidates { boxes, overflow: 0 };
        let one = of(vec![candidate(1, 0.9, 1.0), candidate(2, 0.5, 1.0), candidate(9, 0.2501, 1.0)]);
        let two = of(vec![candidate(1, 0.75, 1.5), candidate(3, 0.5, 1.0), candidate(7, 0.25, 1.0)]);
        let found = difference(&one, &two);
        assert_eq!((found.boxes, found.other), (1, 2));
        assert!((found.corner_px - 0.5).abs() < 1e-6 && (found.score - 0.15).abs() < 1e-6, "{found:?}");
        assert_eq!(difference(&one, &one), Difference { corner_px: 0.0, score: 0.0, other: 0, boxes: 3 });
    }
}
