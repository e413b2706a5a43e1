//! Precision: FP16 and INT8 made in the graph itself, judged by the accuracy gate, repaired where it fails.
//!
//! ```text
//! Prepared ─ ranges (calibration pictures) ─ fp16 | int8 ─ gate ─┬─ passes ─▶ Prepared with its gate result
//!                                              ▲                 │
//!                                              └ put layers back ┘ fails
//! ```

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
use int8::ActivationScale;
use observe::Observation;
use placement::Placement;
use scales::cut;
use serde::Serialize;
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

/// What was done to the graph, for the report.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Account {
    /// `fp16` or `int8`.
    pub(super) precision: String,
    /// What was done and what stays in float, one sentence each; goes into the manifest as well.
    pub(super) decided: Vec<String>,
    /// Share of the convolutions' arithmetic in INT8, 0..1; `None` for FP16.
    pub(super) int8_share: Option<f64>,
    /// Calibrator of the activations; `None` for FP16.
    pub(super) calibrator: Option<String>,
    /// Layers with most of the arithmetic, in the order of the graph.
    pub(super) layers: Vec<LayerAccount>,
    /// Peak memory of the activations by input size.
    pub(super) memory: Vec<MemoryPoint>,
    /// Tensor → range seen and range kept; empty for FP16.
    pub(super) ranges: Vec<RangeAccount>,
    /// What the repair tried, in order. The last that passed with the most in INT8 was taken.
    pub(super) repair: Vec<Step>,
}

/// One layer in the report.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LayerAccount {
    pub(super) name: String,
    /// Multiplications and additions of one run.
    pub(super) operations: u64,
    /// `int8`, `f16` or `f32`.
    pub(super) precision: String,
    /// Why it is not in the precision asked for.
    pub(super) because: Option<String>,
}

/// Most activations alive at once, by the graph, at one input size.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MemoryPoint {
    /// Longer side of the input, px.
    pub(super) size_px: u32,
    pub(super) export_mib: f64,
    pub(super) converted_mib: f64,
}

/// One activation range in the report.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RangeAccount {
    pub(super) tensor: String,
    pub(super) largest: f32,
    pub(super) cut: f32,
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

/// The heavy layers of a graph in half precision.
fn half_layers(model: &Model, shapes: &Shapes, done: &fp16::Fp16) -> Vec<LayerAccount> {
    let index = GraphIndex::new(model.graph());
    let heavy = model.graph().node.iter().filter(|node| tail::is_heavy(node));
    heavy
        .map(|node| {
            let name = crate::onnx::node::label(node);
            let because = done.exceptions.iter().find(|(_, nodes)| nodes.contains(&name)).map(|(why, _)| why.clone());
            let precision = if because.is_some() { "f32" } else { "f16" }.to_owned();
            LayerAccount { operations: placement::operations(node, &index, shapes), name, precision, because }
        })
        .collect()
}

/// Peak memory of the export and of the converted graph, at common input sizes around that of the model.
fn memory_points(prepared: &Prepared, export: &Model, converted: &Model) -> Result<Vec<MemoryPoint>> {
    const SIZES_PX: [u32; 8] = [320, 416, 512, 640, 768, 896, 1024, 1280];
    let batch = f64::from(prepared.input.batch.max(1));
    let used = prepared.input.size.width_px.max(prepared.input.size.height_px);
    let mib = |bytes: u64| crate::units::float64(bytes) / f64::from(1 << 20) / batch;
    let (export, converted) = (mib(super::memory::peak_bytes(export)?), mib(super::memory::peak_bytes(converted)?));
    let mut sizes: Vec<u32> = SIZES_PX.into_iter().chain([used]).filter(|&size| size > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let point = |size_px: u32| {
        let area = (f64::from(size_px) / f64::from(used.max(1))).powi(2);
        MemoryPoint { size_px, export_mib: export * area, converted_mib: converted * area }
    };
    Ok(sizes.into_iter().map(point).collect())
}

/// What stays in float beside halves, and why.
fn describe_half(done: &fp16::Fp16, account: &mut Account) {
    for (reason, nodes) in &done.exceptions {
        let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        account.decided.push(format!("{} stay in float ({reason}): {}", nodes.len(), placement::some_names(&names)));
    }
    if done.lost_weights.0 > 0 {
        account.decided.push(format!(
            "{} of {} weights are so small that half stores them as 0",
            done.lost_weights.0, done.lost_weights.1
        ));
    }
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
    let is_picture = |name: &&String| model.graph().input.iter().any(|input| input.name == **name);
    let names: Vec<String> = widest.sources.keys().filter(|name| !is_picture(name)).cloned().collect();
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
    ranges.extend(widest.sources.keys().filter(is_picture).map(|name| (name.clone(), PICTURE)));
    let seen = match task.rules.half_rest {
        true => {
            let few = pictures.thinned(FP16_PICTURES);
            Some(observation(task, model, shapes, &few).ranges(&activations(model, shapes), watcher)?)
        }
        false => None,
    };
    let plan = repair::Plan { task, model, shapes, ranges: &ranges, seen: seen.as_ref(), calibration: &pictures };
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

fn describe(built: &Built, ranges: &BTreeMap<String, ActivationScale>, account: &mut Account) {
    let placement = &built.placement;
    account.decided.push(format!(
        "{} of {} convolutions compute in INT8, {:.1} % of their arithmetic",
        placement.quantised(),
        placement.layers.len(),
        100.0 * placement.share()
    ));
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for layer in &placement.layers {
        if let Some(reason) = &layer.float {
            by_reason.entry(reason).or_default().push(&layer.name);
        }
        let is_half = |half: &fp16::Fp16| !half.exceptions.values().flatten().any(|name| name == &layer.name);
        let precision = match (&layer.float, &built.half) {
            (None, _) => "int8",
            (Some(_), Some(half)) if is_half(half) => "f16",
            _ => "f32",
        };
        account.layers.push(LayerAccount {
            name: layer.name.clone(),
            operations: layer.operations,
            precision: precision.to_owned(),
            because: layer.float.clone(),
        });
    }
    for (reason, names) in by_reason {
        account.decided.push(format!("{} stay out of INT8 ({reason}): {}", names.len(), placement::some_names(&names)));
    }
    if placement.group_of.keys().any(|name| built.written.graph().input.iter().any(|input| input.name == *name)) {
        account.decided.push("the first convolution reads the picture in steps of 1/127".to_owned());
    }
    if !placement.sums.is_empty() {
        account.decided.push(format!("{} residual sums add 8 bits on both sides", placement.sums.len()));
    }
    if !placement.readers.is_empty() {
        account.decided.push(format!("{} convolutions out of INT8 read 8 bits", placement.readers.len()));
    }
    if let Some(half) = &built.half {
        account.decided.push("what is not in INT8 computes in half precision".to_owned());
        describe_half(half, account);
    } else {
        account.decided.push("what is not in INT8 computes in float".to_owned());
    }
    account.decided.extend(built.corrected.sentences());
    account.decided.extend(built.remarks.iter().cloned());
    account.ranges = ranges
        .iter()
        .map(|(tensor, range)| RangeAccount { tensor: tensor.clone(), largest: range.largest, cut: range.cut })
        .collect();
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
