//! A plan that somebody else made becomes a bundle.
//!
//! The plan itself gives the known answers, so wrapping happens on the machine that can run it: shapes are read from the plan,
//! names and size from the header of Ultralytics where there is one, and the bundle is proved before it gets its name.

mod header;

use super::assemble::{Built, Made, Order, manifest};
use super::compile::readback::measured;
use super::compile::{Compiler, PlanOrder, dotted};
use super::known::KnownAnswers;
use super::layout::{self, Output};
use super::watcher::Watcher;
use super::{Options, Prepared, inputs, names};
use crate::bundle::manifest::Source;
use crate::bundle::plan::{PLAN_SCHEMA, PlanFacts};
use crate::bundle::{check_output, golden, sha256, stage_with};
use crate::config::Recipe;
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::{self, GpuOptions, Plan, TensorRtEngine};
use crate::engine::{ElementType, Engine, InputSpec};
use crate::error::{Error, Result};
use crate::ffi::cuda::{Context, Driver, Wait};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::{Family, Flavour};
use crate::ffi::tensorrt::{DataType, Library, Runtime, TensorFacts};
use crate::gpu::plan::MemoryPlan;
use crate::onnx::tensor::DataType as Element;
use crate::platform::Platform;
use crate::units::{Bytes, SizePx, count};
use header::EngineFile;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest engine file.
const MOST_BYTES: u64 = 4 << 30;
/// Share of the device's memory that the bundle may use when nobody says otherwise, percent.
const USUAL_SHARE_PERCENT: u64 = 80;

/// What to wrap.
#[derive(Debug, Clone)]
pub struct WrapOrder {
    /// The engine file.
    pub plan: PathBuf,
    /// Thresholds, golden folder and names; its `model` is not read.
    pub recipe: Recipe,
    /// Name of the bundle.
    pub name: String,
    /// Where the bundle goes.
    pub output: PathBuf,
    /// Class names and layout, where the file does not tell.
    pub options: Options,
    /// GPU memory that the bundle may use.
    pub gpu_budget: Option<Bytes>,
    /// Where TensorRT's libraries are looked for.
    pub search: Search,
}

/// What the plan is, read back from it.
struct ReadPlan<'a> {
    file: EngineFile<'a>,
    flavour: Flavour,
    tensors: Vec<TensorFacts>,
    compute_capability: u32,
    budget: Bytes,
}

/// Wraps, proves and writes.
///
/// # Errors
/// [`crate::ErrorKind::Refused`]: no engine file, or one that cannot be decoded; [`crate::ErrorKind::MachineLacks`]: no driver, or
/// not the TensorRT that made it; those of running it and of writing. Nothing is left behind after an error.
pub fn wrap(order: &WrapOrder, watcher: &mut dyn Watcher) -> Result<Built> {
    check_output(&order.output)?;
    let at = |error: Error| match error.place() {
        Some(inner) => {
            let place = format!("{}, {inner}", order.plan.display());
            error.moved_to(place)
        }
        None => error.at(order.plan.display()),
    };
    let bytes = read(&order.plan)?;
    let plan = look(header::parse(&bytes).map_err(at)?, order).map_err(at)?;
    let product = plan.flavour.product();
    watcher.say(&format!("plan: {product} {}, {}", plan.file.version, Bytes(count(plan.file.plan.len()))));
    let prepared = describe(&plan, &bytes, order).map_err(at)?;
    for line in &prepared.decided {
        watcher.say(&format!("decided: {line}"));
    }
    let order = as_build(order, &plan)?;
    let mut engine = load(&plan, plan.file.plan, &prepared, &order).map_err(at)?;
    let memory = measured(engine.figures(), plan.budget, order.platform.plan.alarm_percent)?;
    memory.to_table().lines().for_each(|line| watcher.say(line));
    let known = KnownAnswers::record(&order, &prepared, &mut engine, None, watcher)?;
    drop(engine);
    let key = inputs::key(&order, &prepared, watcher)?;
    let manifest = manifest(&order, &prepared, None, Made { converted: None, known: &known, key });
    let (_names, files) = known.to_files()?;
    let facts = |id: &str| facts(&plan, id, memory).entries(plan.file.plan.to_vec());
    let staged = stage_with(&order.output, &manifest, &files, facts)?;
    let bundle = staged.open()?;
    let name = bundle.plan_names().next().unwrap_or_default().to_owned();
    let (_, again) = bundle.plan(&name)?;
    let mut engine = load(&plan, &again, &prepared, &order)?;
    let proof = golden::prove(&mut engine, &bundle)?;
    watcher.say(&format!("proved: {} known answers came out right on {}", proof.frames, engine.info().backend));
    watcher.check_stop()?;
    drop((engine, bundle));
    let id = staged.commit()?;
    Ok(Built { id, bytes: Bytes(std::fs::metadata(&order.output).map_or(0, |about| about.len())), rebuilt: true })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed =
        |error: std::io::Error| Error::usage("the engine file cannot be read").because(error).at(path.display());
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(Error::usage("found no file, expected an engine file").at(path.display()));
    }
    let mut bytes = vec![];
    std::fs::File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if count(bytes.len()) > MOST_BYTES {
        return Err(
            Error::refused(format!("found more than {}, expected a plan", Bytes(MOST_BYTES))).at(path.display())
        );
    }
    Ok(bytes)
}

/// Deserialises the plan once, for its tensors. The library is compared first: plans load in the version that made them.
fn look<'a>(file: EngineFile<'a>, order: &WrapOrder) -> Result<ReadPlan<'a>> {
    let flavour = Family::of(file.version)?.flavour();
    let here = "wrap the plan on the machine that is to run it: the plan itself gives the known answers";
    let driver = Driver::load().map_err(|error| {
        let message = format!("a plan is wrapped where it runs, {}", error.message());
        Error::machine_lacks(message).at("CUDA driver").hint(here)
    })?;
    let library = Library::open(flavour, &order.search)?;
    if library.version() != file.version {
        return Err(Error::machine_lacks(format!(
            "found {} {}, expected {} that made the plan",
            flavour.product(),
            library.version(),
            file.version
        ))
        .hint(here));
    }
    let context = Context::new(driver, 0, Wait::Block)?;
    let runtime = Runtime::new(&library, None)?;
    let tensors = runtime.deserialize(file.plan)?.tensors().to_vec();
    let device = context.device();
    let budget = order.gpu_budget.unwrap_or(Bytes(device.memory.0 / 100 * USUAL_SHARE_PERCENT));
    Ok(ReadPlan { file, flavour, tensors, compute_capability: device.compute_capability, budget })
}

/// Input, layout and names, as far as the plan and its header tell.
fn describe(plan: &ReadPlan<'_>, bytes: &[u8], order: &WrapOrder) -> Result<Prepared> {
    let metadata = &plan.file.metadata;
    let mut decided = vec![];
    if let Some(task) = metadata.task.as_deref().filter(|&task| task != "detect") {
        return Err(Error::refused(format!("found an engine for the task `{task}`, expected `detect`"))
            .hint("give the engine of a detection model"));
    }
    let input = input(&plan.tensors)?;
    if let Some(size) = metadata.input_size.filter(|&size| size != input.size) {
        decided.push(format!("input size {} as the plan has it; the header says {size}", input.size));
    }
    if !plan.file.has_header {
        decided.push("the file is a plain plan: names and layout come from the flags and the plan's shapes".to_owned());
    }
    let outputs = plan.tensors.iter().filter(|tensor| !tensor.input).map(output).collect::<Result<Vec<_>>>()?;
    let names = names::choose(metadata, &order.options, &mut decided)?;
    let facts = layout::Facts {
        input: &input,
        outputs: &outputs,
        metadata,
        names: names.as_deref(),
        choice: order.options.layout,
    };
    let layout = layout::decide(&facts, &mut decided)?;
    let classes = names::settle(names, &layout)?;
    let file_name = order.plan.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Prepared {
        model_bytes: plan.file.plan.to_vec(),
        batch_one: None,
        source: Source {
            file_name,
            sha256: sha256(bytes),
            side_files: vec![],
            producer: format!("{} {}", plan.flavour.product(), plan.file.version),
            opset: Source::NO_MODEL,
        },
        input,
        layout,
        classes,
        metadata: metadata.understood.clone(),
        decided,
        precision_found: BTreeMap::new(),
    })
}

fn input(tensors: &[TensorFacts]) -> Result<InputSpec> {
    let inputs: Vec<_> = tensors.iter().filter(|tensor| tensor.input).collect();
    let [tensor] = inputs.as_slice() else {
        return Err(Error::refused(format!("found a plan with {} inputs, expected one picture", inputs.len())));
    };
    let place = format!("input `{}`", tensor.name);
    let element = match tensor.data_type {
        DataType::Float => ElementType::F32,
        DataType::Half => ElementType::F16,
        DataType::Uint8 => ElementType::U8,
        other => return Err(Error::refused(format!("found type {other:?}, expected float, half or bytes")).at(place)),
    };
    let sizes: Option<Vec<u32>> = tensor.sizes.iter().map(|&size| u32::try_from(size).ok()).collect();
    match sizes.as_deref() {
        Some(&[batch, channels @ (1 | 3), height_px, width_px]) if batch > 0 && height_px > 0 && width_px > 0 => {
            let size = SizePx::new(width_px, height_px);
            Ok(InputSpec { name: tensor.name.clone(), batch, channels, size, element })
        }
        _ => Err(Error::refused(format!(
            "found shape {:?}, expected a fixed [batch, 1 or 3, height, width]",
            tensor.sizes
        ))
        .at(place)
        .hint("export the engine with fixed shapes: `dynamic=False`")),
    }
}

fn output(tensor: &TensorFacts) -> Result<Output> {
    let element = match tensor.data_type {
        DataType::Float => Element::F32,
        DataType::Half => Element::F16,
        DataType::Int32 => Element::I32,
        DataType::Int64 => Element::I64,
        other => {
            return Err(Error::refused(format!("found type {other:?}, expected float, half or integers"))
                .at(format!("output `{}`", tensor.name)));
        }
    };
    Ok(Output { name: tensor.name.clone(), element, shape: tensor.sizes.clone() })
}

/// The order of a build that would have made this plan, as far as it is known.
fn as_build(order: &WrapOrder, plan: &ReadPlan<'_>) -> Result<Order> {
    let platform = Platform::find(&dotted(plan.compute_capability))?;
    Ok(Order {
        recipe: order.recipe.clone(),
        name: order.name.clone(),
        output: order.output.clone(),
        platform,
        compiler: Compiler::Plan(PlanOrder {
            flavour: plan.flavour,
            compute_capability: plan.compute_capability,
            budget: plan.budget,
            workspace: Bytes(0),
            optimization_level: None,
            time_limit: None,
            search: order.search.clone(),
            read_back: None,
            keep_unproved: false,
        }),
        cpu: CpuOptions::default(),
        options: order.options.clone(),
        report: None,
        ask_by: None,
        rebuild: true,
    })
}

fn load(plan: &ReadPlan<'_>, bytes: &[u8], prepared: &Prepared, order: &Order) -> Result<TensorRtEngine> {
    let search = match &order.compiler {
        Compiler::Plan(plan) => plan.search.clone(),
        _ => Search::default(),
    };
    let classes: Arc<[String]> = prepared.classes.clone().into();
    let wanted = Plan { bytes, flavour: plan.flavour, input: &prepared.input, layout: &prepared.layout };
    let options = GpuOptions { search, budget: Some(plan.budget), ..GpuOptions::default() };
    tensorrt::load(&wanted, &classes, order.recipe.thresholds.lowest_score(), &options)
}

fn facts(plan: &ReadPlan<'_>, bundle_id: &str, memory: MemoryPlan) -> PlanFacts {
    PlanFacts {
        schema: PLAN_SCHEMA,
        bundle: bundle_id.to_owned(),
        sha256: sha256(plan.file.plan),
        bytes: count(plan.file.plan.len()),
        flavour: plan.flavour.name().to_owned(),
        tensorrt: plan.file.version.to_string(),
        compute_capability: dotted(plan.compute_capability),
        made_on: None,
        architecture: std::env::consts::ARCH.to_owned(),
        workspace: Bytes(0),
        optimization_level: None,
        tensors: plan.tensors.clone(),
        memory: Some(memory),
        layers: None,
        gate: None,
    }
}
