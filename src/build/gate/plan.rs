//! The plan itself answers for the candidate, where this machine can run it.

use super::ask::{LEAST_SCORE, ask};
use super::{Ground, Judged, failure};
use crate::build::compile::{PlanOrder, dotted};
use crate::build::watcher::Watcher;
use crate::bundle::Bundle;
use crate::bundle::gate::{Figures, GateResult, JudgedPlan};
use crate::detections::Detection;
use crate::engine::tensorrt::{self, GpuOptions, Plan};
use crate::error::{Error, Result};
use crate::ffi::cuda::{DeviceFacts, Driver, devices};
use crate::ffi::tensorrt::Library;
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A plan in a bundle that is to answer.
#[derive(Debug, Clone, Copy)]
pub struct PlanToAsk<'a> {
    /// The bundle.
    pub bundle: &'a Path,
    /// Name of the plan in it.
    pub name: &'a str,
    /// Where TensorRT's libraries are looked for.
    pub search: &'a Search,
}

/// What a plan answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanAnswers {
    /// What ran it, with version.
    pub tensorrt: String,
    /// Name of the GPU.
    pub gpu: String,
    /// Boxes picture by picture, down to the least score that counts.
    pub answers: Vec<Vec<Detection>>,
}

/// How a plan is asked by a process of its own.
pub type AskBy = fn(PlanToAsk<'_>, &[PathBuf]) -> Result<PlanAnswers>;

/// Runs a plan over `pictures`.
///
/// # Errors
/// As [`tensorrt::load`]; those of pictures and runs.
pub fn ask_plan(plan: PlanToAsk<'_>, pictures: &[PathBuf], watcher: &mut dyn Watcher) -> Result<PlanAnswers> {
    let bundle = Bundle::open(plan.bundle)?;
    let (facts, bytes) = bundle.plan(plan.name)?;
    let device = device(&facts.compute_capability).ok_or_else(|| {
        Error::machine_lacks(format!("found no GPU of compute capability {}", facts.compute_capability))
    })?;
    let manifest = bundle.manifest();
    let flavour: Flavour = facts.flavour.parse()?;
    let wanted = Plan { bytes: &bytes, flavour, input: &manifest.input, layout: &manifest.layout };
    let options = GpuOptions {
        device: device.ordinal,
        search: plan.search.clone(),
        budget: manifest.target.budget,
        ..GpuOptions::default()
    };
    let classes: Arc<[String]> = manifest.classes.clone().into();
    let mut engine = tensorrt::load(&wanted, &classes, LEAST_SCORE, &options)?;
    let answers = ask(&mut engine, pictures, &manifest.thresholds, "gate, plan", watcher)?;
    Ok(PlanAnswers { tensorrt: format!("{} {}", flavour.product(), facts.tensorrt), gpu: device.name, answers })
}

/// The first GPU of that compute capability; `None` without one. No driver is no GPU.
fn device(capability: &str) -> Option<DeviceFacts> {
    let found = Driver::load().and_then(devices).unwrap_or_default();
    found.into_iter().find(|device| dotted(device.compute_capability) == capability)
}

/// Whether this machine can run what `order` makes: a GPU of that kind and the family's library.
pub(in crate::build) fn runs_here(order: &PlanOrder) -> bool {
    device(&dotted(order.compute_capability)).is_some() && Library::open(order.flavour, &order.search).is_ok()
}

impl Ground {
    /// Lets `plan` answer by `by` and holds it against the original; `graph` is what its graph reached on the CPU.
    ///
    /// # Errors
    /// Those of asking. A plan that fails the gate is no error here.
    pub(in crate::build) fn judge_plan(
        &self,
        plan: PlanToAsk<'_>,
        by: Option<AskBy>,
        graph: Option<Figures>,
        watcher: &mut dyn Watcher,
    ) -> Result<Judged> {
        let found = self.ask(plan, by, watcher)?;
        let (name, PlanAnswers { tensorrt, gpu, answers }) = (plan.name.to_owned(), found);
        Ok(self.compare(&answers, "plan", Some(JudgedPlan { name, tensorrt, gpu, graph })))
    }

    /// What `plan` answers for every picture.
    pub(super) fn ask(&self, plan: PlanToAsk<'_>, by: Option<AskBy>, watcher: &mut dyn Watcher) -> Result<PlanAnswers> {
        let pictures = self.pictures().paths();
        watcher.say(&format!("gate: plan `{}` answers for {} pictures", plan.name, pictures.len()));
        let found = match by {
            Some(by) => by(plan, &pictures),
            None => ask_plan(plan, &pictures, watcher),
        };
        // Whoever stops the build stops a process that it started as well.
        watcher.check_stop()?;
        let found = found.map_err(|error| match error.place() {
            Some(_) => error,
            None => error.at(format!("plan `{}`", plan.name)),
        })?;
        if found.answers.len() != pictures.len() {
            return Err(Error::unexpected(format!(
                "found answers for {} pictures, expected {}",
                found.answers.len(),
                pictures.len()
            )));
        }
        Ok(found)
    }
}

/// Tells how a plan did; the error when it failed.
///
/// # Errors
/// [`crate::ErrorKind::Accuracy`] with every limit that broke.
pub(in crate::build) fn tell(result: &GateResult, watcher: &mut dyn Watcher) -> Result<()> {
    let of = |figures: &Figures| {
        let map50 = figures.map50.map_or(String::new(), |map50| format!("mAP50 {map50:.4}, "));
        format!("{map50}{} found, {} false boxes", figures.operating.found, figures.operating.false_boxes)
    };
    let by =
        result.plan.as_ref().map_or(String::new(), |plan| format!(" by the plan on {} ({})", plan.gpu, plan.tensorrt));
    watcher.judged(result);
    watcher.say(&format!(
        "gate {}{by}: {}; original: {}",
        if result.passed() { "passed" } else { "failed" },
        of(&result.candidate),
        of(&result.original)
    ));
    if result.passed() {
        return Ok(());
    }
    Err(failure(result).hint(
        "the graph passed on the CPU: try another `--optimization-level` or TensorRT version, or a precision that leaves more room",
    ))
}
