//! Time of the finalists: on the CPU engine for the target `cpu`, with a plan made here where the target's GPU is.

use super::finder::{BatchSearch, Step, find};
use super::lines::Line;
use super::{Clock, SweepOrder, finalists, reason};
use crate::build::compile::{Compiler, PlanOrder, Request, Wishes, compile};
use crate::build::precision::{self, Task};
use crate::build::watcher::Watcher;
use crate::build::{Options, prepare};
use crate::bundle::golden::{self, synthetic_picture};
use crate::config::Recipe;
use crate::config::precision::{GateRules, Precision};
use crate::engine::tensorrt::{self, GpuOptions, Plan};
use crate::engine::{ElementType, Engine, cpu};
use crate::error::{Error, Result};
use crate::ffi::cuda::{Driver, devices};
use crate::frame::Frame;
use crate::onnx::Model;
use crate::platform::{Platform, PlatformKind};
use crate::units::{index, milliseconds};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs before the clock counts, and runs of which the median is taken.
const WARM_RUNS: usize = 2;
const RUNS: usize = 7;

/// A finalist's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timed {
    /// The target.
    pub target: String,
    /// What ran, with version.
    pub engine: String,
    /// Pictures a run.
    pub batch: u32,
    /// From picture to candidates, median, divided by the pictures of a run.
    pub ms_a_picture: f64,
}

/// Times the finalists of every target that this machine is.
pub(super) fn measure(order: &SweepOrder, lines: &mut [Line], clock: &mut Clock<'_>) -> Result<()> {
    if order.finalists == 0 {
        return Ok(());
    }
    let mut elsewhere: Vec<(&str, String)> = Vec::new();
    for platform in &order.platforms {
        let plan = match here(order, platform, clock) {
            Ok(plan) => plan,
            Err(error) => {
                elsewhere.push((&platform.name, reason(error)?));
                continue;
            }
        };
        let target = (platform.kind != PlatformKind::Cpu).then_some(platform.name.as_str());
        for at in finalists::choose(lines, target, index(order.finalists)) {
            let line = lines[at].clone();
            clock.inner.say(&format!(
                "time: {} {} {} on {}",
                line.model,
                line.size,
                line.precision.name(),
                platform.name
            ));
            let model = match convert(order, &line, clock) {
                Ok(model) => model,
                Err(error) => {
                    let reason = reason(error)?;
                    clock.warn(&format!(
                        "no time for {} {} {}: {reason}",
                        line.model,
                        line.size,
                        line.precision.name()
                    ));
                    continue;
                }
            };
            let mut engine = String::new();
            let mut step = |batch: u32| run(order, &model, batch, plan.as_ref(), &mut engine, clock);
            let most = order.batches.iter().copied().max().unwrap_or(1);
            let search = find(most, &mut step, &reason)?;
            note(lines, at, platform, &engine, search);
        }
    }
    match elsewhere.as_slice() {
        [] => {}
        [(name, why)] => clock.warn(&format!("not timed on {name}: {why}")),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            clock.warn(&format!("not timed, this machine is none of them: {}", names.join(", ")));
        }
    }
    Ok(())
}

/// Puts what was found on the lines: the time on that of the best batch, or of the group's first line.
fn note(lines: &mut [Line], at: usize, platform: &Platform, engine: &str, search: BatchSearch) {
    let best = search.best.and_then(|batch| search.steps.iter().find(|step| step.batch == batch)).copied();
    let group = |line: &Line| line.same_group(&lines[at]);
    let place =
        best.and_then(|best| lines.iter().position(|line| group(line) && line.batch == best.batch)).unwrap_or(at);
    let Some(line) = lines.get_mut(place) else { return };
    line.time = best.map(|best| Timed {
        target: platform.name.clone(),
        engine: engine.to_owned(),
        batch: best.batch,
        ms_a_picture: best.ms_a_picture,
    });
    line.batch_search = Some(search);
}

/// How plans for the target are made and run on this machine; `None`: it is the CPU.
///
/// # Errors
/// It is not this machine.
fn here(order: &SweepOrder, platform: &Platform, clock: &Clock<'_>) -> Result<Option<Here>> {
    let wishes = Wishes {
        flavour: order.flavour,
        optimization_level: order.optimization_level,
        time_limit: clock.left(),
        search: order.search.clone(),
        ..Wishes::default()
    };
    let wishes = if platform.kind == PlatformKind::Cpu { Wishes::default() } else { wishes };
    let Compiler::Plan(plan) = Compiler::choose(platform, &wishes)? else { return Ok(None) };
    let found = devices(Driver::load()?)?;
    match found.iter().find(|device| device.compute_capability == plan.compute_capability) {
        Some(device) => Ok(Some(Here { plan, device: device.ordinal })),
        None => Err(Error::machine_lacks("this machine has no such GPU")),
    }
}

/// How plans are made on this machine, and the GPU that runs them.
struct Here {
    plan: PlanOrder,
    device: u32,
}

/// Follows a compilation that has the sweep's limit as its own: asked to stop it would count as interrupted, and end the sweep.
struct ByItsOwnLimit<'a, 'b> {
    clock: &'a mut Clock<'b>,
}

impl Watcher for ByItsOwnLimit<'_, '_> {
    fn say(&mut self, line: &str) {
        self.clock.say(line);
    }

    fn warn(&mut self, line: &str) {
        self.clock.warn(line);
    }

    fn step(&mut self, _: &str, _: u64, _: u64) {}

    fn check_stop(&self) -> Result<()> {
        self.clock.inner.check_stop()
    }
}

/// Builds and runs one batch.
fn run(
    order: &SweepOrder,
    model: &Model,
    batch: u32,
    plan: Option<&Here>,
    name: &mut String,
    clock: &mut Clock<'_>,
) -> Result<Step> {
    clock.check_stop()?;
    let options = Options { batch: Some(batch), ..order.options.clone() };
    let prepared = prepare(model.clone(), &options)?;
    let classes: Arc<[String]> = prepared.classes.clone().into();
    let floor = order.recipe.thresholds.lowest_score();
    match plan {
        None => {
            let mut engine =
                cpu::load(&prepared.model_bytes, &prepared.input, &prepared.layout, classes, floor, &order.cpu)?;
            timed(engine.as_mut(), name, clock)
        }
        Some(Here { plan, device }) => {
            // What is left now, to the full second above: not what was left when the first was begun.
            let left = clock.left().map(|left| Duration::from_secs(left.as_secs() + 1));
            let plan = PlanOrder { time_limit: left, ..plan.clone() };
            let request =
                Request::new(plan.clone(), &prepared.model_bytes, &prepared.layout, &prepared.precision_found)?;
            let compiled = compile(request, &mut ByItsOwnLimit { clock })?;
            let wanted =
                Plan { bytes: &compiled.plan, flavour: plan.flavour, input: &prepared.input, layout: &prepared.layout };
            let (device, search, budget) = (*device, plan.search.clone(), Some(plan.budget));
            let options = GpuOptions { device, search, budget, ..GpuOptions::default() };
            timed(&mut tensorrt::load(&wanted, &classes, floor, &options)?, name, clock)
        }
    }
}

/// The graph at batch 1 and the line's size, in its precision.
fn convert(order: &SweepOrder, line: &Line, clock: &mut Clock<'_>) -> Result<Model> {
    clock.check_stop()?;
    let options = Options { imgsz: Some(line.size), batch: None, ..order.options.clone() };
    let model = Model::read(&line.path)?;
    let batch_one = prepare(model.clone(), &Options { batch: Some(1), ..options.clone() });
    let prepared = batch_one.or_else(|_| prepare(model, &options))?;
    if line.precision == Precision::AsExported {
        return Model::from_bytes(&prepared.model_bytes);
    }
    // Its accuracy was measured before.
    let gate = GateRules { pictures: None, labels: None, limits: order.recipe.gate.limits };
    let recipe = Recipe { precision: line.precision, gate, ..order.recipe.clone() };
    let rules = precision::Rules::of(&recipe.int8, true);
    let task = Task { prepared: &prepared, recipe: &recipe, cpu: &order.cpu, io: ElementType::F32, rules };
    Model::from_bytes(&precision::convert(task, clock)?.prepared.model_bytes)
}

/// The median over some runs with every slot filled.
fn timed(engine: &mut dyn Engine, name: &mut String, clock: &Clock<'_>) -> Result<Step> {
    let input = engine.info().input.clone();
    name.clone_from(&engine.info().backend);
    let frames: Vec<Frame> = (0..u64::from(input.batch))
        .map(|number| golden::frame(number, synthetic_picture(input.size, number + 1)))
        .collect();
    let frames: Vec<&Frame> = frames.iter().collect();
    let mut times = Vec::new();
    let mut answers = Vec::new();
    for run in 0..WARM_RUNS + RUNS {
        clock.check_stop()?;
        let began = Instant::now();
        engine.infer(&frames, &mut answers)?;
        if run >= WARM_RUNS {
            times.push(milliseconds(began.elapsed()) / f64::from(input.batch));
        }
        answers.drain(..).for_each(|answer| engine.recycle(answer));
    }
    times.sort_by(f64::total_cmp);
    let ms_a_picture = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(Step { batch: input.batch, ms_a_picture, memory: engine.memory().peak })
}
