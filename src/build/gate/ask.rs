//! What an engine answers for every picture of the gate.

use crate::build::pictures::decode;
use crate::build::watcher::Watcher;
use crate::bundle::golden::{self, hard_fault};
use crate::detections::{Detection, Detector, Thresholds};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::units::{count, index};
use std::path::PathBuf;

/// Least score that goes into average precision.
pub(super) const LEAST_SCORE: f32 = 0.001;
/// Most boxes a picture that go into average precision.
const MOST_BOXES: u32 = 300;

/// What `engine` answers for every picture, down to [`LEAST_SCORE`]; `what` names it in what is told.
pub(super) fn ask(
    engine: &mut dyn Engine,
    pictures: &[PathBuf],
    thresholds: &Thresholds,
    what: &str,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Vec<Detection>>> {
    let (classes, layout) = (engine.info().classes.clone(), engine.info().layout.clone());
    let thresholds = Thresholds {
        score: LEAST_SCORE,
        score_by_class: Default::default(),
        boxes: MOST_BOXES.max(thresholds.boxes),
        ..thresholds.clone()
    };
    let mut detector = Detector::new(&thresholds, &classes)?;
    let batch = index(engine.info().input.batch).max(1);
    let mut answers = Vec::with_capacity(pictures.len());
    let mut inferences = Vec::new();
    for run in pictures.chunks(batch) {
        watcher.check_stop()?;
        let number = |at: usize| count(answers.len() + at);
        let frames: Vec<Frame> = run
            .iter()
            .enumerate()
            .map(|(at, path)| Ok(golden::frame(number(at), decode(path)?)))
            .collect::<Result<_>>()?;
        engine.infer(&frames.iter().collect::<Vec<_>>(), &mut inferences)?;
        for (path, inference) in run.iter().zip(inferences.drain(..)) {
            if let Some(fault) = hard_fault(&inference.stats, &layout) {
                return Err(Error::new(ErrorKind::Accuracy, format!("{what}: the output is faulty: {fault}"))
                    .at(path.display())
                    .hint(
                        "give pictures with `--calibration`: layers whose values half cannot hold then stay in float",
                    ));
            }
            let mut found = Vec::new();
            detector.detect(&inference.candidates, &inference.letterbox, &layout, &mut found);
            answers.push(found);
            engine.recycle(inference);
        }
        watcher.step(what, count(answers.len()), count(pictures.len()));
    }
    Ok(answers)
}
