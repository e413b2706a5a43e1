//! The accuracy gate: a candidate against the model as exported, on pictures that calibration did not see, judged at the
//! operating point.

mod coco;
mod labels;
mod limits;
mod operating;
mod plots;
pub(crate) mod report;

use super::Prepared;
use super::precision::usable::Usable;
use super::watcher::Watcher;
use crate::bundle::gate::{ClassFigures, Figures, GateResult, Operating};
use crate::bundle::golden::{self, hard_fault};
use crate::config::precision::GateLimits;
use crate::detections::{Detection, Detector, Thresholds};
use crate::engine::cpu::{self, CpuOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::units::{count, count32, index, length};
use labels::Truth;
use std::path::Path;
use std::sync::Arc;

/// Least score that goes into average precision.
const LEAST_SCORE: f32 = 0.001;
/// Most boxes a picture that go into average precision.
const MOST_BOXES: u32 = 300;

/// The gate with everything that does not change from candidate to candidate.
pub(super) struct Gate<'a> {
    prepared: &'a Prepared,
    thresholds: &'a Thresholds,
    limits: GateLimits,
    pictures: Usable,
    truth: Option<Vec<Vec<Truth>>>,
    options: CpuOptions,
    original: Vec<Vec<Detection>>,
    backend: String,
}

/// One candidate's result with what the report needs besides.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub(super) result: GateResult,
    /// Pictures by how much differs, the worst first: position and what differs.
    pub(super) worst: Vec<usize>,
    /// Scores of the boxes that both have: original, candidate.
    pub(super) scores: Vec<[f32; 2]>,
    pub(super) candidate: Vec<Vec<Detection>>,
}

impl<'a> Gate<'a> {
    /// Reads the labels and lets the model as exported answer for every picture.
    pub(super) fn open(
        prepared: &'a Prepared,
        thresholds: &'a Thresholds,
        limits: GateLimits,
        pictures: Usable,
        labels: Option<&Path>,
        options: &CpuOptions,
        watcher: &mut dyn Watcher,
    ) -> Result<Gate<'a>> {
        let truth = labels.map(|folder| labels::read(folder, &pictures, &prepared.classes)).transpose()?;
        let mut gate = Gate {
            prepared,
            thresholds,
            limits,
            pictures,
            truth,
            options: CpuOptions { emulate_half: false, ..options.clone() },
            original: Vec::new(),
            backend: String::new(),
        };
        gate.original = gate.answers(&prepared.model_bytes, false, "gate, original", watcher)?;
        Ok(gate)
    }

    /// The pictures of the gate.
    pub(super) fn pictures(&self) -> &Usable {
        &self.pictures
    }

    /// Answers of the original above the thresholds, picture by picture.
    pub(super) fn original_at_thresholds(&self) -> Vec<Vec<Detection>> {
        self.at_thresholds(&self.original)
    }

    /// Runs `model` over every picture and judges it.
    pub(super) fn judge(&mut self, model: &[u8], emulate_half: bool, watcher: &mut dyn Watcher) -> Result<Judged> {
        let candidate = self.answers(model, emulate_half, "gate, candidate", watcher)?;
        Ok(self.compare(&candidate, if emulate_half { "graph in half arithmetic" } else { "graph" }))
    }

    /// The original held against itself: only its own figures say something.
    pub(super) fn judge_original(&self) -> GateResult {
        self.compare(&self.original, "graph").result
    }

    fn compare(&self, candidate: &[Vec<Detection>], judged: &str) -> Judged {
        let (before, after) = (self.at_thresholds(&self.original), self.at_thresholds(candidate));
        let truth = match &self.truth {
            Some(truth) => truth.clone(),
            None => before.iter().map(|answers| answers.iter().map(as_truth).collect()).collect(),
        };
        let original = self.figures(&truth, &self.original, &before);
        let figures = self.figures(&truth, candidate, &after);
        let operating::Compared { shift, pictures: by_picture, scores } =
            operating::shift(&before, &after, count32(self.prepared.classes.len()));
        let mut worst: Vec<usize> = (0..by_picture.len()).collect();
        worst.sort_by(|&one, &other| {
            let (one, other) = (by_picture[one], by_picture[other]);
            other.unmatched.cmp(&one.unmatched).then(other.worst_px.total_cmp(&one.worst_px))
        });
        let checks = limits::judge(&original, &figures, &self.limits);
        let result = GateResult {
            judged: judged.to_owned(),
            backend: self.backend.clone(),
            pictures: count(self.pictures.len()),
            pictures_sha256: self.pictures.set_hash(),
            truth: if self.truth.is_some() { "labels" } else { "answers of the original" }.to_owned(),
            original,
            candidate: figures,
            shift,
            checks,
        };
        Judged { result, worst, scores, candidate: after }
    }

    fn figures(&self, truth: &[Vec<Truth>], all: &[Vec<Detection>], at_thresholds: &[Vec<Detection>]) -> Figures {
        let labelled = self.truth.is_some();
        let mut classes = Vec::new();
        let mut total = Operating::default();
        for (class, class_id) in self.prepared.classes.iter().zip(0_u32..) {
            let average = if labelled { coco::average(truth, all, class_id) } else { None };
            let operating = operating::counts(truth, at_thresholds, class_id);
            total.labels += operating.labels;
            total.found += operating.found;
            total.false_boxes += operating.false_boxes;
            classes.push(ClassFigures {
                class: class.clone(),
                ap50: average.map(|average| average.at_50),
                ap50_95: average.map(|average| average.at_50_95),
                operating,
                best_score: if labelled { operating::best_score(truth, all, class_id) } else { None },
            });
        }
        let mean = |value: fn(&ClassFigures) -> Option<f64>| {
            let values: Vec<f64> = classes.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / length(values.len()))
        };
        Figures {
            map50: mean(|class| class.ap50).or(labelled.then_some(0.0)),
            map50_95: mean(|class| class.ap50_95).or(labelled.then_some(0.0)),
            operating: total,
            classes,
        }
    }

    fn at_thresholds(&self, answers: &[Vec<Detection>]) -> Vec<Vec<Detection>> {
        let least = |class_id: u32| {
            let class = self.prepared.classes.get(index(class_id));
            class.and_then(|class| self.thresholds.score_by_class.get(class)).copied().unwrap_or(self.thresholds.score)
        };
        let picture = |answers: &Vec<Detection>| {
            answers.iter().filter(|answer| answer.score >= least(answer.class_id)).cloned().collect()
        };
        answers.iter().map(picture).collect()
    }

    /// What `model` answers for every picture, down to [`LEAST_SCORE`].
    fn answers(
        &mut self,
        model: &[u8],
        emulate_half: bool,
        what: &str,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Vec<Detection>>> {
        let classes: Arc<[String]> = self.prepared.classes.clone().into();
        let options = CpuOptions { emulate_half, ..self.options.clone() };
        let (input, layout) = (self.input_of(model)?, &self.prepared.layout);
        let mut engine = cpu::load(model, &input, layout, classes, LEAST_SCORE, &options)?;
        self.backend.clone_from(&engine.info().backend);
        let thresholds = Thresholds {
            score: LEAST_SCORE,
            score_by_class: Default::default(),
            boxes: MOST_BOXES.max(self.thresholds.boxes),
            ..self.thresholds.clone()
        };
        let mut detector = Detector::new(&thresholds, &self.prepared.classes)?;
        let batch = index(input.batch).max(1);
        let mut answers = Vec::with_capacity(self.pictures.len());
        let mut inferences = Vec::new();
        for start in (0..self.pictures.len()).step_by(batch) {
            watcher.check_stop()?;
            let places = start..(start + batch).min(self.pictures.len());
            let frames: Vec<Frame> = places
                .clone()
                .map(|at| Ok(golden::frame(count(at), self.pictures.decode(at)?)))
                .collect::<Result<_>>()?;
            inferences.clear();
            engine.infer(&frames.iter().collect::<Vec<_>>(), &mut inferences)?;
            for (at, inference) in places.clone().zip(&inferences) {
                if let Some(fault) = hard_fault(&inference.stats, layout) {
                    let place = self
                        .pictures
                        .pictures
                        .get(at)
                        .map_or(String::new(), |picture| picture.path.display().to_string());
                    return Err(Error::new(ErrorKind::Accuracy, format!("{what}: the output is faulty: {fault}"))
                        .at(place)
                        .hint("give pictures with `--calibration`: layers whose values half cannot hold then stay in float"));
                }
                let mut found = Vec::new();
                detector.detect(&inference.candidates, &inference.letterbox, layout, &mut found);
                answers.push(found);
            }
            watcher.step(what, count(places.end), count(self.pictures.len()));
        }
        Ok(answers)
    }

    /// The input of `model`: as prepared, in the element type that the file declares.
    fn input_of(&self, model: &[u8]) -> Result<crate::engine::InputSpec> {
        let model = crate::onnx::Model::from_bytes(model)?;
        let is_half = model.graph().input.iter().any(|input| {
            input.name == self.prepared.input.name
                && crate::onnx::shapes::Fact::declared(input).element == crate::onnx::tensor::DataType::F16
        });
        let element = if is_half { crate::engine::ElementType::F16 } else { self.prepared.input.element };
        Ok(crate::engine::InputSpec { element, ..self.prepared.input.clone() })
    }
}

fn as_truth(found: &Detection) -> Truth {
    Truth { class_id: found.class_id, edges_px: coco::edges_px(found) }
}

/// The error for a candidate that failed, with every limit it broke.
pub(super) fn failure(result: &GateResult) -> Error {
    let broken: Vec<String> = result
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("{} worse by {:.4}, expected at most {:.4}", check.name, check.worse_by, check.allowed))
        .collect();
    Error::new(ErrorKind::Accuracy, format!("found {}", broken.join("; "))).at("accuracy gate")
}
