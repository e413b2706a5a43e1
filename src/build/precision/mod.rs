//! Precision: FP16 and INT8 made in the graph itself, judged by the accuracy gate, repaired where it fails.
//!
//! ```text
//! Prepared ─ ranges (calibration pictures) ─ fp16 | int8 ─ gate ─┬─ passes ─▶ Prepared with its gate result
//!                                              ▲                 │
//!                                              └ put layers back ┘ fails
//! ```

mod account;
mod bias;
mod found;
mod fp16;
mod int8;
mod observe;
mod placement;
mod repair;
mod rules;
mod scales;
mod sensitivity;
mod tail;
pub(in crate::build) mod usable;

pub(in crate::build) use account::{Account, LayerAccount, MemoryPoint};
pub(in crate::build) use found::count;
pub(in crate::build) use repair::Step;
pub(in crate::build) use rules::Rules;

use super::Prepared;
use super::gate::{self, Gate, Ground, Judged};
use super::watcher::Watcher;
use crate::bundle::gate::GateResult;
use crate::config::Recipe;
use crate::config::precision::Precision;
use crate::engine::ElementType;
use crate::engine::cpu::CpuOptions;
use crate::error::{Error, Result};
use crate::onnx::Model;
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::{self, Shapes};
use account::{describe, describe_half, half_layers, memory_points};
use int8::ActivationScale;
use observe::Observation;
use placement::Placement;
use scales::cut;
use std::collections::BTreeMap;
use usable::Usable;

/// Pictures that are looked at for the ranges of FP16; INT8 looks at all.
const FP16_PICTURES: usize = 32;

/// The range of the network's input: pictures are filled in as 0 to 1.
const PICTURE: ActivationScale = ActivationScale { largest: 1.0, cut: 1.0 };

/// What is to be converted, and how.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) recipe: &'a Recipe,
    pub(super) cpu: &'a CpuOptions,
    /// Element type of inputs and outputs.
    pub(super) io: ElementType,
    /// Where INT8 goes, and what the rest computes in.
    pub(super) rules: Rules<'a>,
}

/// The converted model.
pub(super) struct Converted {
    pub(super) prepared: Prepared,
    pub(super) account: Account,
    pub(super) verdict: Option<Verdict>,
}

/// The gate's verdict with what a report needs.
pub(super) struct Verdict {
    pub(super) judged: Judged,
    pub(super) ground: Ground,
}

impl Verdict {
    pub(super) fn result(&self) -> &GateResult {
        &self.judged.result
    }
}

/// Converts as the recipe asks and holds the result against the original.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] for folders that are missing or do not fit, [`crate::ErrorKind::Refused`] for a graph that
/// cannot be converted; a gate that fails is no error here.
pub(super) fn convert(task: Task<'_>, watcher: &mut dyn Watcher) -> Result<Converted> {
    let asked = task.recipe.precision;
    check_source(task.prepared, asked)?;
    let model = Model::from_bytes(&task.prepared.model_bytes)?;
    if asked == Precision::Int8 {
        task.rules.check(&GraphIndex::new(model.graph()))?;
    }
    let (calibration, judging) = pictures(task.recipe, asked, watcher)?;
    let gate = match judging {
        Some(pictures) => {
            let rules = &task.recipe.gate;
            watcher.say(&format!("gate: {} pictures, apart from calibration", pictures.len()));
            Some(Gate::open(
                task.prepared,
                &task.recipe.thresholds,
                rules.limits,
                pictures,
                rules.labels.as_deref(),
                task.cpu,
                watcher,
            )?)
        }
        None => {
            watcher.warn(
                "the accuracy of the converted graph is not measured: give pictures with `--gate DIR --labels DIR`",
            );
            None
        }
    };
    let shapes = shapes::infer(&model)?;
    match asked {
        Precision::Int8 => to_int8(task, &model, &shapes, calibration, gate, watcher),
        _ => to_fp16(task, &model, &shapes, calibration, gate, watcher),
    }
}

/// Refuses what is converted already.
fn check_source(prepared: &Prepared, asked: Precision) -> Result<()> {
    let found = |name: &str| prepared.precision_found.get(name).copied().unwrap_or(0);
    for name in ["int8", "f16", "bf16"] {
        if found(name) > 0 {
            return Err(Error::refused(format!(
                "found {} layers in {name} already, expected a float export for `{}`",
                found(name),
                asked.name()
            ))
            .hint("leave the precision out to take the model as it is, or give the float export"));
        }
    }
    Ok(())
}

/// Pictures for calibration and for the gate, with nothing in common.
fn pictures(recipe: &Recipe, asked: Precision, watcher: &mut dyn Watcher) -> Result<(Option<Usable>, Option<Usable>)> {
    let calibration = recipe.calibration.as_deref().map(|folder| Usable::of(folder, watcher)).transpose()?;
    if asked == Precision::Int8 && calibration.is_none() {
        return Err(Error::usage("found no calibration pictures, expected some for INT8")
            .hint("give pictures that show what the line sees with `--calibration DIR`, at least 20, better 100"));
    }
    let (calibration, judging) = match (&recipe.gate.pictures, calibration) {
        (Some(folder), calibration) => {
            let mut judging = Usable::of(folder, watcher)?;
            let shared = calibration.as_ref().map_or(0, |calibration| judging.remove_shared(calibration));
            if shared > 0 {
                watcher.warn(&format!("{shared} gate pictures are calibration pictures as well and do not judge"));
            }
            if judging.len() == 0 {
                return Err(Error::usage("found no gate picture that is not a calibration picture as well")
                    .at(folder.display())
                    .hint("give other pictures, or leave `--gate` out: half of the calibration pictures then judge"));
            }
            (calibration, Some(judging))
        }
        (None, Some(calibration)) if calibration.len() > 1 => {
            let (first, second) = calibration.halves();
            watcher.say(&format!("{} pictures for the ranges, {} for the gate, by content", first.len(), second.len()));
            (Some(first), Some(second))
        }
        (None, calibration) => (calibration, None),
    };
    if let Some(calibration) = &calibration {
        calibration.warn_if_few(watcher);
    }
    Ok((calibration, judging))
}

fn to_fp16(
    task: Task<'_>,
    model: &Model,
    shapes: &Shapes,
    calibration: Option<Usable>,
    gate: Option<Gate<'_>>,
    watcher: &mut dyn Watcher,
) -> Result<Converted> {
    let mut account = Account { precision: "fp16".to_owned(), ..Account::default() };
    let calibration = calibration.map(|pictures| pictures.thinned(FP16_PICTURES));
    let ranges = match &calibration {
        Some(pictures) => {
            let observation = observation(task, model, shapes, pictures);
            Some(observation.ranges(&activations(model, shapes), watcher)?)
        }
        None => {
            watcher.warn("no calibration pictures: values beyond half are not looked for; give `--calibration DIR`");
            None
        }
    };
    let mut half = model.clone();
    let done = fp16::convert(&mut half, ranges.as_ref(), task.io)?;
    account.decided.push(format!("{} operators compute in half precision", done.halves));
    describe_half(&done, &mut account);
    account.layers = half_layers(model, shapes, &done);
    account.memory = memory_points(task.prepared, model, &half)?;
    account.decided.iter().for_each(|line| watcher.say(line));
    let bytes = half.to_bytes()?;
    let verdict = gate.map(|mut gate| {
        let judged = gate.judge(&bytes, true, watcher)?;
        Ok::<_, Error>(Verdict { judged, ground: gate.into_ground() })
    });
    let prepared = converted(task, half, bytes, &account)?;
    Ok(Converted { prepared, account, verdict: verdict.transpose()? })
}

fn to_int8(
    task: Task<'_>,
    model: &Model,
    shapes: &Shapes,
    calibration: Option<Usable>,
    gate: Option<Gate<'_>>,
    watcher: &mut dyn Watcher,
) -> Result<Converted> {
    let pictures = calibration.unwrap_or_default();
    let calibrator = task.recipe.calibrator;
    let widest = decide(model, shapes, &BTreeMap::new(), &task.rules)?;
    if widest.quantised() == 0 {
        return Err(Error::refused("found no convolution that can be stored in 8 bits"));
    }
    // The picture is no tensor that an operator makes; its range is known.
    let (pictured, names): (Vec<String>, Vec<String>) =
        widest.sources.keys().cloned().partition(|name| is_picture(model, name));
    let histograms = observation(task, model, shapes, &pictures).histograms(&names, watcher)?;
    if let Some((tensor, _)) = histograms.iter().find(|(_, histogram)| histogram.not_finite > 0) {
        return Err(Error::refused("found values that are not finite on the calibration pictures")
            .at(format!("tensor `{tensor}`")));
    }
    let mut ranges: BTreeMap<String, ActivationScale> = histograms
        .iter()
        .map(|(name, histogram)| {
            (name.clone(), ActivationScale { largest: histogram.largest, cut: cut(calibrator, histogram) })
        })
        .collect();
    ranges.extend(pictured.into_iter().map(|name| (name, PICTURE)));
    let seen = match task.rules.half_rest {
        true => {
            let few = pictures.thinned(FP16_PICTURES);
            Some(observation(task, model, shapes, &few).ranges(&activations(model, shapes), watcher)?)
        }
        false => None,
    };
    let plan = repair::Plan {
        task,
        model,
        shapes,
        widest: &widest,
        ranges: &ranges,
        seen: seen.as_ref(),
        calibration: &pictures,
    };
    let (built, verdict, steps) = repair::until_it_passes(&plan, gate, watcher)?;
    let mut account = Account {
        precision: "int8".to_owned(),
        int8_share: Some(built.placement.share()),
        calibrator: Some(calibrator.name().to_owned()),
        repair: steps,
        ..Account::default()
    };
    describe(&built, &ranges, &mut account);
    account.memory = memory_points(task.prepared, model, &built.written)?;
    account.decided.iter().for_each(|line| watcher.say(line));
    let prepared = converted(task, built.written, built.bytes, &account)?;
    Ok(Converted { prepared, account, verdict })
}

/// Whether tensor `name` is what pictures are filled into.
fn is_picture(model: &Model, name: &str) -> bool {
    model.graph().input.iter().any(|input| input.name == name)
}

fn decide(
    model: &Model,
    shapes: &Shapes,
    kept_float: &BTreeMap<String, String>,
    rules: &Rules<'_>,
) -> Result<Placement> {
    Placement::decide(&GraphIndex::new(model.graph()), shapes, kept_float, rules)
}

/// An INT8 graph with the plan behind it.
struct Quantised {
    model: Model,
    placement: Placement,
    remarks: Vec<String>,
}

/// The graph that is judged and written.
struct Built {
    written: Model,
    bytes: Vec<u8>,
    placement: Placement,
    remarks: Vec<String>,
    corrected: bias::Corrected,
    /// What the rest computes in; `None` for float.
    half: Option<fp16::Fp16>,
}

impl Built {
    /// Turns the rest of `quantised` into half where the task asks for it.
    fn of(
        quantised: Quantised,
        corrected: bias::Corrected,
        task: Task<'_>,
        seen: Option<&fp16::Ranges>,
    ) -> Result<Built> {
        let Quantised { mut model, placement, remarks } = quantised;
        let half = if task.rules.half_rest { Some(fp16::convert(&mut model, seen, task.io)?) } else { None };
        Ok(Built { bytes: model.to_bytes()?, written: model, placement, remarks, corrected, half })
    }
}

/// Writes the INT8 graph in which the layers of `kept_float` stay in float.
fn build_int8(
    model: &Model,
    shapes: &Shapes,
    ranges: &BTreeMap<String, ActivationScale>,
    kept_float: &BTreeMap<String, String>,
    rules: &Rules<'_>,
) -> Result<Quantised> {
    let placement = decide(model, shapes, kept_float, rules)?;
    let mut groups: BTreeMap<usize, ActivationScale> = BTreeMap::new();
    for (name, &group) in &placement.sources {
        let Some(range) = ranges.get(name) else { continue };
        let entry = groups.entry(group).or_insert(ActivationScale { largest: 0.0, cut: 0.0 });
        entry.largest = entry.largest.max(range.largest);
        entry.cut = entry.cut.max(range.cut);
    }
    let mut model = model.clone();
    let remarks = int8::rewrite(&mut model, &placement, &groups)?;
    Ok(Quantised { model, placement, remarks })
}

fn observation<'a>(task: Task<'a>, model: &'a Model, shapes: &'a Shapes, pictures: &'a Usable) -> Observation<'a> {
    Observation {
        model,
        shapes,
        input: &task.prepared.input,
        layout: &task.prepared.layout,
        options: task.cpu,
        pictures,
    }
}

/// The float tensors that operators make.
fn activations(model: &Model, shapes: &Shapes) -> Vec<String> {
    let made = model.graph().node.iter().filter(|node| node.op_type != "Constant").flat_map(|node| &node.output);
    made.filter(|name| shapes.fact(name).element == crate::onnx::tensor::DataType::F32).cloned().collect()
}

/// The prepared model with the converted graph in it.
fn converted(task: Task<'_>, model: Model, bytes: Vec<u8>, account: &Account) -> Result<Prepared> {
    let shapes = shapes::infer(&model)?;
    let mut prepared = task.prepared.clone();
    prepared.precision_found = count(&model, &shapes);
    if task.io == ElementType::F16 {
        prepared.input.element = ElementType::F16;
    }
    // The batch was proved with the graph as exported.
    prepared.batch_one = None;
    prepared.model_bytes = bytes;
    prepared.decided.extend(account.decided.iter().cloned());
    Ok(prepared)
}

/// The error for a candidate that failed the gate.
pub(super) fn failure(verdict: &Verdict, account: &Account) -> Error {
    let hint = match account.precision.as_str() {
        "int8" => {
            "try another `--calibrator`, more calibration pictures, or `--fp16`; `--report DIR` shows what was measured"
        }
        _ => "give calibration pictures that show what the line sees; `--report DIR` shows what was measured",
    };
    gate::failure(verdict.result()).hint(hint)
}

#[cfg(test)]
mod tests;
