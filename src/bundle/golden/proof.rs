//! Recording known answers, and proving an engine with them.

use super::compare::Comparison;
use super::{Answer, GoldenSet, KnownBox};
use crate::bundle::{Bundle, Manifest};
use crate::detections::{Detector, Thresholds};
use crate::engine::{Engine, Inference, Layout, OutputStats};
use crate::error::{Error, Result};
use crate::frame::{Frame, Picture};
use crate::units::{count, index};
use std::time::SystemTime;

/// That an engine gave the known answers on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proof {
    /// When it was done.
    pub at: SystemTime,
    /// Largest corner difference, px of the source picture.
    pub worst_px: f32,
    /// Largest score difference.
    pub worst_score: f32,
    /// Golden frames compared.
    pub frames: u64,
}

/// How answers are recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions<'a> {
    /// Thresholds of the detections.
    pub thresholds: &'a Thresholds,
    /// Class names.
    pub classes: &'a [String],
    /// Candidates below this score are not part of the answer.
    pub score_floor: f32,
}

/// Runs the golden frames of `bundle` through `engine` and compares the answers with the known ones.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] with the frame, what was found and what was expected; the engine's own errors.
pub fn prove(engine: &mut dyn Engine, bundle: &Bundle) -> Result<Proof> {
    let set = bundle.golden()?;
    prove_set(engine, bundle.manifest(), set).map_err(|error| {
        let path = bundle.path().display();
        let place = error.place().map_or_else(|| path.to_string(), |inner| format!("{path}, {inner}"));
        error.moved_to(place).hint(
            "the engine on this machine does not answer as it did when the bundle was built: do not use it; \
             compare with `--cpu-backend rten`, or build the bundle again on this machine",
        )
    })
}

/// [`prove`] for golden frames that are in memory already, so that a running line can prove its engine without a file.
///
/// # Errors
/// As [`prove`].
pub fn prove_set(engine: &mut dyn Engine, manifest: &Manifest, set: GoldenSet) -> Result<Proof> {
    let golden = &manifest.golden;
    let thresholds: Vec<f32> = manifest
        .classes
        .iter()
        .map(|class| manifest.thresholds.score_by_class.get(class).copied().unwrap_or(manifest.thresholds.score))
        .collect();
    let comparison = Comparison {
        golden,
        thresholds: &thresholds,
        fixed_anchors: manifest.layout.needs_nms(),
        classes: &manifest.classes,
    };
    let mut frames = Vec::new();
    let mut known = Vec::new();
    for (number, golden_frame) in set.frames.into_iter().enumerate() {
        frames.push(frame(count(number), golden_frame.picture));
        known.push((golden_frame.name, golden_frame.answer));
    }
    let options = RecordOptions {
        thresholds: &manifest.thresholds,
        classes: &manifest.classes,
        score_floor: (golden.score_floor - golden.tolerance_score).max(0.0),
    };
    let found = record(engine, &frames, &options)?;
    let mut proof = Proof { at: SystemTime::now(), worst_px: 0.0, worst_score: 0.0, frames: count(known.len()) };
    for ((name, expected), found) in known.iter().zip(&found) {
        let difference = comparison.compare(expected, found).map_err(|error| {
            let again = Error::new(error.kind(), format!("known answer of `{name}`: {}", error.message()));
            error.hint_text().map(str::to_owned).into_iter().fold(again, Error::hint)
        })?;
        proof.worst_px = proof.worst_px.max(difference.corner_px);
        proof.worst_score = proof.worst_score.max(difference.score);
    }
    Ok(proof)
}

/// The answers of `engine` for `frames`, in order. The engine's score floor is set back afterwards.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for a hard fault in an answer (NaN, infinite, all zero, score or class out of range,
/// another frame's answer); the engine's own errors.
pub fn record(engine: &mut dyn Engine, frames: &[Frame], options: &RecordOptions) -> Result<Vec<Answer>> {
    let usual_floor = engine.info().score_floor;
    engine.set_score_floor(options.score_floor.min(options.thresholds.lowest_score()));
    let answers = record_at_this_floor(engine, frames, options);
    engine.set_score_floor(usual_floor);
    answers
}

fn record_at_this_floor(engine: &mut dyn Engine, frames: &[Frame], options: &RecordOptions) -> Result<Vec<Answer>> {
    let layout = engine.info().layout.clone();
    let mut detector = Detector::new(options.thresholds, options.classes)?;
    let mut answers = Vec::new();
    let mut inferences = Vec::new();
    for group in frames.chunks(index(engine.info().input.batch).max(1)) {
        inferences.clear();
        engine.infer(&group.iter().collect::<Vec<_>>(), &mut inferences)?;
        if inferences.len() != group.len() {
            return Err(Error::refused(format!(
                "found {} answers for {} pictures, expected one each",
                inferences.len(),
                group.len()
            )));
        }
        for (frame, inference) in group.iter().zip(&inferences) {
            let place = || format!("golden frame {}", frame.number);
            if inference.tag != frame.tag() {
                return Err(Error::refused(format!("found the answer of frame {}", inference.tag.number)).at(place()));
            }
            if let Some(fault) = hard_fault(&inference.stats, &layout) {
                return Err(Error::refused(format!("the network's output is faulty: {fault}")).at(place()));
            }
            answers.push(answer_of(inference, &layout, &mut detector, options));
        }
    }
    Ok(answers)
}

/// What an inference says, in the form of a known answer.
pub(super) fn answer_of(
    inference: &Inference,
    layout: &Layout,
    detector: &mut Detector,
    options: &RecordOptions,
) -> Answer {
    let mut detections = Vec::new();
    detector.detect(&inference.candidates, &inference.letterbox, layout, &mut detections);
    let detections = detections.iter().map(|detection| KnownBox {
        anchor: None,
        class_id: detection.class_id,
        score: detection.score,
        edges: detection.unclipped,
    });
    let boxes = inference.candidates.boxes.iter().filter(|candidate| candidate.score >= options.score_floor);
    let in_all = boxes.clone().count();
    let candidates = boxes.take(Answer::MOST_CANDIDATES).map(|candidate| KnownBox {
        anchor: Some(candidate.anchor),
        class_id: candidate.class_id,
        score: candidate.score,
        edges: inference.letterbox.to_source(candidate.edges),
    });
    Answer {
        detections: detections.collect(),
        candidates: candidates.collect(),
        candidates_in_all: count(in_all) + inference.candidates.overflow,
        maximum_score: inference.stats.maximum_score,
        mean_score: inference.stats.mean_score,
    }
}

/// What no answer of a healthy engine shows, in words; `None` when there is nothing of the kind.
pub fn hard_fault(stats: &OutputStats, layout: &Layout) -> Option<String> {
    if stats.nan > 0 {
        return Some(format!("found {} values that are not a number", stats.nan));
    }
    if stats.infinite > 0 {
        return Some(format!("found {} infinite values", stats.infinite));
    }
    if stats.scores_out_of_range > 0 {
        return Some(format!(
            "found {} scores out of range (up to {}), expected 0 to 1; is a sigmoid missing at the end?",
            stats.scores_out_of_range, stats.maximum_score
        ));
    }
    if stats.class_ids_out_of_range > 0 {
        return Some(format!(
            "found {} class ids that are no whole number below {}",
            stats.class_ids_out_of_range,
            layout.classes()
        ));
    }
    if stats.counts_out_of_range > 0 {
        return Some(format!("found a row count beyond the {} rows of the output", layout.capacity()));
    }
    if stats.all_zero && layout.all_zero_is_fault() {
        return Some("every value is zero".to_owned());
    }
    None
}

/// A frame around golden picture `number`.
pub fn frame(number: u64, picture: Picture) -> Frame {
    Frame::new("golden", number, picture)
}
