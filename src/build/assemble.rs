//! The whole way from a recipe to a bundle that has proved itself.

use super::cache_key::CacheKey;
use super::calibrate::{Calibration, calibrate};
use super::compile::{Compiled, Compiler, Request, compile};
use super::gate::AskBy;
use super::gate::report::Subject;
use super::known::{KnownAnswers, Tolerances};
use super::memory::{self, Circumstances};
use super::pictures::{PictureFolder, short_name};
use super::precision::{self, Converted, Task};
use super::put::{Parts, put};
use super::watcher::Watcher;
use super::{Options, Prepared, batch, inputs, prepare, unchanged};
use crate::aside;
use crate::bundle::manifest::{Golden, Precision, SCHEMA};
use crate::bundle::{Manifest, check_output};
use crate::config::{self, Recipe};
use crate::decision::Rule;
use crate::detections::Detector;
use crate::engine::cpu::CpuOptions;
use crate::engine::{Engine, InputSpec, cpu};
use crate::error::{Error, Result};
use crate::gpu::plan::MemoryPlan;
use crate::onnx;
use crate::platform::Platform;
use crate::units::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to build, checked as far as flags and recipe can be checked without the model.
#[derive(Debug, Clone)]
pub struct Order {
    /// The recipe, flags laid over it; its paths are whole.
    pub recipe: Recipe,
    /// Name of the bundle.
    pub name: String,
    /// Where the bundle goes.
    pub output: PathBuf,
    /// The target.
    pub platform: Platform,
    /// How the graph becomes an engine.
    pub compiler: Compiler,
    /// How the CPU engine runs, which gives the known answers.
    pub cpu: CpuOptions,
    /// What the model leaves open.
    pub options: Options,
    /// Folder for the report of a conversion, written even when the gate fails; `None`: beside the bundle.
    pub report: Option<PathBuf>,
    /// How a plan is asked for its answers to the gate's pictures, where this machine can run it; `None`: in this process.
    pub ask_by: Option<AskBy>,
    /// Build even when the bundle at `output` was made from the same inputs.
    pub rebuild: bool,
}

/// A finished bundle.
#[derive(Debug, Clone)]
pub struct Built {
    /// SHA-256 of the manifest.
    pub id: String,
    /// Length of the file.
    pub bytes: Bytes,
    /// Whether it was built now; `false`: it was there already, made from the same inputs.
    pub rebuilt: bool,
}

/// Builds, proves and writes the bundle; leaves one that was made from the same inputs as it is.
///
/// # Errors
/// Every kind that reading, checking, the engine, pictures and writing have. Nothing is left behind after an error.
pub fn assemble(order: &Order, watcher: &mut dyn Watcher) -> Result<Built> {
    check_output(&order.output)?;
    if let Some(folder) = &order.report {
        aside::check(&folder.join(report_name(order, "json")))?;
    }
    let model = onnx::Model::read(&order.recipe.model)?;
    watcher.check_stop()?;
    let prepared = prepare(model, &order.options).map_err(|error| match error.place() {
        Some(_) => error,
        None => error.at(order.recipe.model.display()),
    })?;
    tell(&prepared, watcher);
    check_names(&order.recipe, &prepared.classes)?;
    let key = inputs::key(order, &prepared, watcher)?;
    if let Some(built) = unchanged::look(order, &key, watcher) {
        return Ok(built);
    }
    let (prepared, mut converted) = convert(order, prepared, watcher)?;

    let memory = plan_memory(order, &prepared, watcher)?;
    let compiled = compile_plan(order, &prepared, watcher)?;
    let mut engine = load(order, &prepared, &prepared.input, &prepared.model_bytes)?;
    watcher.say(&format!("engine: {}, threads: {}", engine.info().backend, engine.info().threads));
    if let Some(batch_one) = &prepared.batch_one {
        prove_batch(order, &prepared, batch_one, engine.as_mut(), watcher)?;
    }
    let calibration = match &order.recipe.calibration {
        Some(folder) => {
            Some(calibrate(engine.as_mut(), &PictureFolder::list(folder)?, &order.recipe.thresholds, watcher)?)
        }
        None => None,
    };
    let known = KnownAnswers::record(order, &prepared, engine.as_mut(), calibration.as_ref(), watcher)?;
    drop(engine);
    let made = Made { converted: converted.as_ref(), known: &known, key };
    let manifest = manifest(order, &prepared, calibration.as_ref(), made);
    let parts = Parts { prepared: &prepared, known: &known, compiled: compiled.map(|plan| (plan, memory)) };
    let built = put(order, parts, manifest, converted.as_mut(), watcher)?;
    if let Some(converted) = &converted {
        let folder = order.output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        report(order, converted, order.report.as_deref().unwrap_or(folder), true, watcher)?;
    }
    Ok(built)
}

/// Converts the precision where the recipe asks for it; a gate that fails ends the build.
fn convert(order: &Order, prepared: Prepared, watcher: &mut dyn Watcher) -> Result<(Prepared, Option<Converted>)> {
    let asked = order.recipe.precision;
    if asked == config::precision::Precision::AsExported {
        if order.recipe.gate.pictures.is_some() || order.recipe.gate.labels.is_some() {
            return Err(Error::usage(
                "found gate pictures without a precision to judge, expected `--fp16` or `--int8`",
            ));
        }
        return Ok((prepared, None));
    }
    if let Some(batch_one) = &prepared.batch_one {
        let mut many = load(order, &prepared, &prepared.input, &prepared.model_bytes)?;
        prove_batch(order, &prepared, batch_one, many.as_mut(), watcher)?;
    }
    let mut rules = precision::Rules::of(&order.recipe.int8, !matches!(order.compiler, Compiler::Cpu));
    rules.half_rest |= order.recipe.io == config::precision::Border::Fp16;
    let task =
        Task { prepared: &prepared, recipe: &order.recipe, cpu: &order.cpu, io: order.recipe.io.element(), rules };
    let mut converted = precision::convert(task, watcher)?;
    if let Some(verdict) = &converted.verdict {
        watcher.judged(verdict.result());
    }
    if let Some(verdict) = converted.verdict.as_ref().filter(|verdict| !verdict.result().passed()) {
        if let Some(folder) = &order.report {
            report(order, &converted, folder, false, watcher)?;
        }
        return Err(precision::failure(verdict, &converted.account));
    }
    let prepared = std::mem::replace(&mut converted.prepared, prepared);
    Ok((prepared, Some(converted)))
}

/// Writes `NAME.report.json` and `NAME.report.html` into `folder`.
pub(super) fn report(
    order: &Order,
    converted: &Converted,
    folder: &Path,
    written: bool,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    let file = |extension: &str| folder.join(report_name(order, extension));
    let subject = Subject {
        name: &order.name,
        model: &short_name(&order.recipe.model),
        written,
        account: &converted.account,
        threshold: order.recipe.thresholds.score,
        longer_side_px: converted.prepared.input.size.width_px.max(converted.prepared.input.size.height_px),
        verdict: converted.verdict.as_ref(),
    };
    subject.write(&file("json"), &file("html"))?;
    watcher.say(&format!("report: {}", file("html").display()));
    Ok(())
}

/// `NAME.report.json`, for a bundle `NAME.edge`.
pub(super) fn report_name(order: &Order, extension: &str) -> String {
    let stem = order.output.file_stem().map_or_else(|| order.name.clone(), |stem| stem.to_string_lossy().into_owned());
    format!("{stem}.report.{extension}")
}

fn tell(prepared: &Prepared, watcher: &mut dyn Watcher) {
    let source = &prepared.source;
    let by = if source.producer.is_empty() { String::new() } else { format!(", written by {}", source.producer) };
    watcher.say(&format!("model: {}, opset {}{by}", source.file_name, source.opset));
    let found: Vec<_> =
        prepared.precision_found.iter().map(|(name, layers)| format!("{name}: {layers} layers")).collect();
    let found = if found.is_empty() { "no layers with weights".to_owned() } else { found.join(", ") };
    watcher.say(&format!("precision: as exported ({found})"));
    for line in &prepared.decided {
        watcher.say(&format!("decided: {line}"));
    }
}

/// Names in the recipe must be classes of the model.
fn check_names(recipe: &Recipe, classes: &[String]) -> Result<()> {
    Detector::new(&recipe.thresholds, classes)?;
    if let Some(rule) = &recipe.decision {
        Rule::new(rule, classes)?;
    }
    recipe.reload.iter().try_for_each(crate::bundle::manifest::ReloadRules::check)?;
    match recipe.guard.expect.keys().find(|name| !classes.contains(name)) {
        Some(name) => Err(Error::usage(format!("found class `{name}`, expected one of {}", classes.join(", ")))
            .at("recipe, field `guard.expect`")),
        None => Ok(()),
    }
}

/// Every slot of a rewritten batch answers as the export does.
fn prove_batch(
    order: &Order,
    prepared: &Prepared,
    batch_one: &[u8],
    many: &mut dyn Engine,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    let alone = InputSpec { batch: 1, ..prepared.input.clone() };
    let mut one = load(order, prepared, &alone, batch_one)?;
    let tolerance = if Tolerances::of(prepared).share == 0.0 {
        batch::proof::Tolerance { corner_px: 0.1, score: 0.001 }
    } else {
        batch::proof::Tolerance { corner_px: 1.0, score: 0.01 }
    };
    batch::proof::prove(one.as_mut(), many, tolerance, watcher)
        .map_err(|error| if error.place().is_some() { error } else { error.at(order.recipe.model.display()) })
}

pub(super) fn load(order: &Order, prepared: &Prepared, input: &InputSpec, model: &[u8]) -> Result<Box<dyn Engine>> {
    let floor = order.recipe.thresholds.lowest_score();
    let classes: Arc<[String]> = prepared.classes.clone().into();
    cpu::load(model, input, &prepared.layout, classes, floor, &order.cpu).map_err(|error| match error.place() {
        Some(_) => error,
        None => error.at(order.recipe.model.display()),
    })
}

/// What the bundle will take on the GPU, against the target's budget.
fn plan_memory(order: &Order, prepared: &Prepared, watcher: &mut dyn Watcher) -> Result<Option<MemoryPlan>> {
    let Some(budget) = order.compiler.budget() else { return Ok(None) };
    let about = Circumstances {
        input: &prepared.input,
        layout: &prepared.layout,
        precision: &prepared.precision_found,
        budget,
        alarm_percent: order.platform.plan.alarm_percent,
        kind: order.platform.kind,
    };
    let planned = memory::plan(&prepared.model_bytes, &about, watcher);
    planned.map(Some).map_err(|error| error.at(format!("memory plan for `{}`", order.platform.name)))
}

/// The plan, where the target has one that can be made here. Made before the known answers: a refusal comes early.
fn compile_plan(order: &Order, prepared: &Prepared, watcher: &mut dyn Watcher) -> Result<Option<Compiled>> {
    let plan = match &order.compiler {
        Compiler::Cpu => return Ok(None),
        Compiler::Portable { .. } => {
            watcher.say("portable: no plan is made; `edge-build finish` on the device adds it");
            return Ok(None);
        }
        Compiler::Plan(plan) => plan,
    };
    let request = Request::new(plan.clone(), &prepared.model_bytes, &prepared.layout, &prepared.precision_found)?;
    let compiled = compile(request, watcher).map_err(|error| match error.place() {
        Some(_) => error,
        None => error.at(order.recipe.model.display()),
    })?;
    if let Some(path) = &compiled.timings {
        watcher.say(&format!("timings kept in {}", path.display()));
    }
    Ok(Some(compiled))
}

/// What the manifest tells of besides order and graph.
pub(super) struct Made<'a> {
    pub(super) converted: Option<&'a Converted>,
    pub(super) known: &'a KnownAnswers,
    pub(super) key: CacheKey,
}

pub(super) fn manifest(
    order: &Order,
    prepared: &Prepared,
    calibration: Option<&Calibration>,
    made: Made<'_>,
) -> Manifest {
    let known = made.known;
    let recipe = &order.recipe;
    let tolerances = Tolerances::of(prepared);
    let mut guard = recipe.guard.spec();
    guard.reference = calibration.map(|calibration| calibration.reference.clone());
    Manifest {
        schema: SCHEMA,
        name: order.name.clone(),
        edge_build: env!("CARGO_PKG_VERSION").to_owned(),
        source: prepared.source.clone(),
        input: prepared.input.clone(),
        layout: prepared.layout.clone(),
        classes: prepared.classes.clone(),
        metadata: prepared.metadata.clone(),
        decided: prepared.decided.clone(),
        target: inputs::target(order),
        precision: Precision { asked: recipe.precision.name().to_owned(), found: prepared.precision_found.clone() },
        thresholds: recipe.thresholds.clone(),
        guard,
        decision: recipe.decision.clone(),
        reload: recipe.reload,
        golden: Golden {
            kind: known.kind,
            frames: known.set.frames.iter().map(|frame| frame.name.clone()).collect(),
            answered_by: known.answered_by.clone(),
            tolerance_px: tolerances.corner_px / known.smallest_scale,
            tolerance_score: tolerances.score,
            tolerated_share: tolerances.share,
            score_floor: known.score_floor,
        },
        gate: made.converted.and_then(|converted| converted.verdict.as_ref()).map(|verdict| verdict.result().clone()),
        cache_key: made.key.sha256,
        cache_key_fields: made.key.fields,
        files: Default::default(),
    }
}
