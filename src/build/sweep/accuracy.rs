//! Accuracy of each size and precision, through the gate, at batch 1.

use super::lines::Line;
use super::{Clock, SweepOrder, reason};
use crate::build::gate::Gate;
use crate::build::precision::usable::Usable;
use crate::build::precision::{self, Task};
use crate::build::watcher::Watcher;
use crate::build::{Options, Prepared, prepare};
use crate::bundle::gate::{Figures, GateResult};
use crate::config::Recipe;
use crate::config::precision::Precision;
use crate::engine::ElementType;
use crate::error::Result;
use crate::onnx::Model;
use serde::Serialize;

/// What the gate measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accuracy {
    /// What counts as true: `labels`, or `answers of the original`.
    pub truth: String,
    /// Pictures.
    pub pictures: u64,
    /// Mean average precision at an overlap of 0.5; `None` without labels.
    pub map50: Option<f64>,
    /// Mean average precision over overlaps from 0.5 to 0.95; `None` without labels.
    pub map50_95: Option<f64>,
    /// Share of the true boxes that were found at the thresholds, 0..1.
    pub recall: f64,
    /// Boxes at the thresholds that match no true one.
    pub false_boxes: u64,
    /// Whether the gate's limits hold; `None` for the export itself.
    pub passed: Option<bool>,
    /// The limits that do not.
    pub failed: Vec<String>,
}

impl Accuracy {
    fn of(figures: &Figures, gate: &GateResult, candidate: bool) -> Accuracy {
        let failed: Vec<String> =
            gate.checks.iter().filter(|check| !check.passed).map(|check| check.name.clone()).collect();
        Accuracy {
            truth: gate.truth.clone(),
            pictures: gate.pictures,
            map50: figures.map50,
            map50_95: figures.map50_95,
            recall: figures.operating.recall(),
            false_boxes: figures.operating.false_boxes,
            passed: candidate.then_some(failed.is_empty()),
            failed: if candidate { failed } else { Vec::new() },
        }
    }
}

/// Measures every size and precision that can be built, where there are pictures.
pub(super) fn measure(order: &SweepOrder, lines: &mut [Line], clock: &mut Clock<'_>) -> Result<()> {
    if order.recipe.gate.pictures.is_none() && order.recipe.calibration.is_none() {
        let missing = "not measured: no pictures (`--calibration DIR --gate DIR --labels DIR`)";
        lines.iter_mut().for_each(|line| line.accuracy_missing = Some(missing.to_owned()));
        return Ok(());
    }
    // The export comes last: a conversion at the same size measures it as well.
    let mut positions: Vec<usize> = (0..lines.len()).collect();
    positions.sort_by_key(|&at| lines[at].precision == Precision::AsExported);
    for at in positions {
        let line = &lines[at];
        let first = lines.iter().position(|other| other.same_group(line)) == Some(at);
        if !first {
            continue;
        }
        let group: Vec<usize> = (0..lines.len()).filter(|&other| lines[other].same_group(line)).collect();
        if group.iter().all(|&member| lines[member].refused.is_some()) {
            continue;
        }
        let known = exports(lines, at);
        let found = match known {
            Some(known) => Ok(known),
            None => one(order, &lines[at].clone(), lines, clock),
        };
        let found = match found {
            Ok(found) => Ok(found),
            Err(error) => Err(reason(error)?),
        };
        for member in group.into_iter().filter(|&member| lines[member].refused.is_none()).collect::<Vec<_>>() {
            match &found {
                Ok(accuracy) => lines[member].accuracy = Some(accuracy.clone()),
                Err(reason) => lines[member].accuracy_missing = Some(reason.clone()),
            }
        }
    }
    Ok(())
}

/// The export's own accuracy at this size, when a conversion measured it already.
fn exports(lines: &[Line], at: usize) -> Option<Accuracy> {
    (lines[at].precision == Precision::AsExported).then(|| lines[at].accuracy.clone()).flatten()
}

fn one(order: &SweepOrder, line: &Line, lines: &mut [Line], clock: &mut Clock<'_>) -> Result<Accuracy> {
    clock.check_stop()?;
    clock.inner.say(&format!("accuracy: {} {} {}", line.model, line.size, line.precision.name()));
    let options = Options { imgsz: Some(line.size), batch: Some(1), ..order.options.clone() };
    let prepared = prepare(Model::read(&line.path)?, &options)?;
    let recipe = Recipe { precision: line.precision, ..order.recipe.clone() };
    if line.precision == Precision::AsExported {
        return export(order, &recipe, &prepared, clock);
    }
    let task = Task {
        prepared: &prepared,
        recipe: &recipe,
        cpu: &order.cpu,
        io: ElementType::F32,
        rules: precision::Rules::of(&recipe.int8, order.platforms.iter().any(|platform| platform.budget().is_some())),
    };
    let converted = precision::convert(task, clock)?;
    let verdict = converted.verdict.ok_or_else(|| {
        crate::error::Error::usage("not measured: no pictures apart from the calibration ones (`--gate DIR`)")
    })?;
    let gate = verdict.result();
    // The export answered for the same pictures.
    let export = Accuracy::of(&gate.original, gate, false);
    let same_size = |other: &&mut Line| other.path == line.path && other.size == line.size;
    for other in lines.iter_mut().filter(same_size).filter(|other| other.precision == Precision::AsExported) {
        other.accuracy.get_or_insert(export.clone());
    }
    Ok(Accuracy::of(&gate.candidate, gate, true))
}

/// The export by itself, against the labels.
fn export(order: &SweepOrder, recipe: &Recipe, prepared: &Prepared, clock: &mut Clock<'_>) -> Result<Accuracy> {
    let Some(labels) = recipe.gate.labels.as_deref() else {
        return Err(crate::error::Error::usage("not measured: the export is judged by labels alone (`--labels DIR`)"));
    };
    let pictures = match (&recipe.gate.pictures, &recipe.calibration) {
        (Some(folder), _) => Usable::of(folder, clock)?,
        (None, Some(folder)) => Usable::of(folder, clock)?.halves().1,
        (None, None) => Usable::default(),
    };
    let (thresholds, limits) = (&recipe.thresholds, recipe.gate.limits);
    let gate = Gate::open(prepared, thresholds, limits, pictures, Some(labels), &order.cpu, clock)?;
    let result = gate.into_ground().judge_original();
    Ok(Accuracy::of(&result.original, &result, false))
}
