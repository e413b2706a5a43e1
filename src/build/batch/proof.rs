//! Proof of a rewritten batch: every slot answers as the export does at batch 1, on pictures that differ.

use crate::build::watcher::Watcher;
use crate::bundle::golden;
use crate::engine::{Candidate, Engine, Inference};
use crate::error::{Error, Result};
use crate::frame::Frame;
use std::collections::HashMap;

/// From this score on the class is compared too; below it, two classes may be as good as equal.
const CLASS_MATTERS_FROM: f32 = 0.01;

/// How much a slot may differ from batch 1: rounding, since backends order their sums by the shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::build) struct Tolerance {
    /// Corner of a box, px of the network's input.
    pub(in crate::build) corner_px: f32,
    /// Score.
    pub(in crate::build) score: f32,
}

/// Runs one picture a slot through `many`, each alone through `one`, and compares the answers, every anchor of them.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] naming the slot and what differs; the engines' own errors.
pub(in crate::build) fn prove(
    one: &mut dyn Engine,
    many: &mut dyn Engine,
    tolerance: Tolerance,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    let input = many.info().input.clone();
    let fixed_anchors = many.info().layout.needs_nms();
    let floor = if fixed_anchors { 0.0 } else { CLASS_MATTERS_FROM };
    let frames: Vec<Frame> = (0..u64::from(input.batch))
        .map(|slot| golden::frame(slot, golden::synthetic_picture(input.size, slot + 1)))
        .collect();
    let usual = many.info().score_floor;
    one.set_score_floor(floor);
    many.set_score_floor(floor);
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for frame in &frames {
        watcher.check_stop()?;
        one.infer(&[frame], &mut alone)?;
    }
    watcher.check_stop()?;
    many.infer(&frames.iter().collect::<Vec<_>>(), &mut together)?;
    many.set_score_floor(usual);
    if (alone.len(), together.len()) != (frames.len(), frames.len()) {
        return Err(Error::refused(format!("found {} answers, expected {}", together.len(), frames.len())));
    }
    let comparison = Comparison { fixed_anchors, tolerance };
    for (slot, (expected, found)) in alone.iter().zip(&together).enumerate() {
        comparison.compare(expected, found).map_err(|difference| {
            Error::refused(format!(
                "slot {slot} of batch {} does not answer as batch 1 does: {difference}",
                input.batch
            ))
            .hint(format!("export again for it: `yolo export model=x.pt format=onnx batch={}`", input.batch))
        })?;
    }
    let neighbours = alone.iter().zip(alone.iter().cycle().skip(1));
    let alike = neighbours.filter(|(this, next)| comparison.compare(this, next).is_ok()).count();
    if alike > 0 {
        watcher.warn(&format!(
            "the network answers {alike} of {} different pictures like the next one: that no slots are mixed up is \
             proved for the others alone",
            frames.len()
        ));
    }
    watcher.say(&format!("batch {}: every slot answers as batch 1 does ({} pictures)", input.batch, frames.len()));
    Ok(())
}

struct Comparison {
    fixed_anchors: bool,
    tolerance: Tolerance,
}

impl Comparison {
    fn compare(&self, expected: &Inference, found: &Inference) -> std::result::Result<(), String> {
        for (what, expected, found) in [
            ("highest score", expected.stats.maximum_score, found.stats.maximum_score),
            ("mean score", expected.stats.mean_score, found.stats.mean_score),
        ] {
            if !self.scores_agree(expected, found) {
                return Err(format!("{what}: found {found:.6}, expected {expected:.6}"));
            }
        }
        self.covers(expected, found)?;
        self.covers(found, expected)
    }

    fn scores_agree(&self, one: f32, other: f32) -> bool {
        (one - other).abs() <= self.tolerance.score
    }

    /// Every candidate of `these` has its twin in `those`.
    fn covers(&self, these: &Inference, those: &Inference) -> std::result::Result<(), String> {
        let by_anchor: HashMap<u32, &Candidate> =
            those.candidates.boxes.iter().map(|candidate| (candidate.anchor, candidate)).collect();
        let cut_at = if those.candidates.overflow > 0 { those.candidates.boxes.last() } else { None };
        let lowest = match cut_at {
            Some(last) => last.score + self.tolerance.score,
            None if self.fixed_anchors => 0.0,
            None => CLASS_MATTERS_FROM + self.tolerance.score,
        };
        for this in &these.candidates.boxes {
            let agrees = if self.fixed_anchors {
                by_anchor.get(&this.anchor).is_some_and(|twin| self.agree(this, twin))
            } else {
                those.candidates.boxes.iter().any(|twin| self.agree(this, twin))
            };
            if !agrees && this.score >= lowest {
                return Err(format!("row {} with score {:.6} and {:?}", this.anchor, this.score, this.edges));
            }
        }
        Ok(())
    }

    fn agree(&self, one: &Candidate, other: &Candidate) -> bool {
        let (left, right): ([f32; 4], [f32; 4]) = (one.edges.into(), other.edges.into());
        let same_class = one.class_id == other.class_id || one.score < CLASS_MATTERS_FROM;
        same_class
            && self.scores_agree(one.score, other.score)
            && left.iter().zip(right).all(|(left, right)| (left - right).abs() <= self.tolerance.corner_px)
    }
}
