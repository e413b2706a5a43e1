//! The accuracy gate: a candidate against the model as exported, on pictures that calibration did not see, judged at the
//! operating point.

mod ask;
mod coco;
mod ground;
mod labels;
mod limits;
mod operating;
pub(super) mod plan;
mod plots;
mod recorded;
pub(crate) mod report;

pub(in crate::build) use ground::Ground;
pub use plan::{AskBy, PlanAnswers, PlanToAsk, ask_plan};
pub use recorded::DeviceGate;
pub(in crate::build) use recorded::Recorded;

use super::Prepared;
use super::precision::usable::Usable;
use super::watcher::Watcher;
use crate::bundle::gate::GateResult;
use crate::config::precision::GateLimits;
use crate::detections::{Detection, Thresholds};
use crate::engine::cpu::{self, CpuOptions};
use crate::error::{Error, ErrorKind, Result};
use ask::{LEAST_SCORE, ask};
use std::path::Path;
use std::sync::Arc;

/// The gate while graphs are judged on the CPU.
pub(super) struct Gate<'a> {
    prepared: &'a Prepared,
    options: CpuOptions,
    ground: Ground,
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
        thresholds: &Thresholds,
        limits: GateLimits,
        pictures: Usable,
        labels: Option<&Path>,
        options: &CpuOptions,
        watcher: &mut dyn Watcher,
    ) -> Result<Gate<'a>> {
        let ground = Ground::new(&prepared.classes, thresholds, limits, pictures, labels)?;
        let options = CpuOptions { emulate_half: false, ..options.clone() };
        let mut gate = Gate { prepared, options, ground };
        (gate.ground.original, gate.ground.backend) =
            gate.answers(&prepared.model_bytes, false, "gate, original", watcher)?;
        Ok(gate)
    }

    /// What candidates are held against, for whoever judges on.
    pub(super) fn into_ground(self) -> Ground {
        self.ground
    }

    /// Runs `model` over every picture and judges it.
    pub(super) fn judge(&mut self, model: &[u8], emulate_half: bool, watcher: &mut dyn Watcher) -> Result<Judged> {
        let (candidate, backend) = self.answers(model, emulate_half, "gate, candidate", watcher)?;
        self.ground.backend = backend;
        Ok(self.ground.compare(&candidate, if emulate_half { "graph in half arithmetic" } else { "graph" }, None))
    }

    /// What `model` answers for every picture, down to [`LEAST_SCORE`], and what ran it.
    fn answers(
        &self,
        model: &[u8],
        emulate_half: bool,
        what: &str,
        watcher: &mut dyn Watcher,
    ) -> Result<(Vec<Vec<Detection>>, String)> {
        let classes: Arc<[String]> = self.prepared.classes.clone().into();
        let options = CpuOptions { emulate_half, ..self.options.clone() };
        let (input, layout) = (self.input_of(model)?, &self.prepared.layout);
        let mut engine = cpu::load(model, &input, layout, classes, LEAST_SCORE, &options)?;
        let pictures = self.ground.pictures().paths();
        let answers = ask(engine.as_mut(), &pictures, self.ground.thresholds(), what, watcher)?;
        Ok((answers, engine.info().backend.clone()))
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

/// The error for a candidate that failed, with every limit it broke.
pub(super) fn failure(result: &GateResult) -> Error {
    let place = match &result.plan {
        Some(plan) => format!("accuracy gate, plan `{}`", plan.name),
        None => "accuracy gate".to_owned(),
    };
    let broken: Vec<String> = result
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("{} worse by {:.4}, expected at most {:.4}", check.name, check.worse_by, check.allowed))
        .collect();
    Error::new(ErrorKind::Accuracy, format!("found {}", broken.join("; "))).at(place)
}
