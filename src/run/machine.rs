//! From a bundle to an engine on this machine: the CPU engine, or the plan that fits the GPU at hand.

use crate::bundle::manifest::Source;
use crate::bundle::plan::PlanFacts;
use crate::bundle::{Bundle, MODEL};
use crate::engine::Engine;
use crate::engine::cpu::{self, CpuOptions};
use crate::engine::tensorrt::{self, GpuOptions, Plan, TensorRtEngine};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{DeviceFacts, Driver, devices};
use crate::ffi::tensorrt::Library;
use crate::ffi::tensorrt::version::Flavour;
use crate::gpu::plan::MemoryPlan;
use crate::run::memory;
use crate::units::Bytes;
use std::sync::Arc;

/// Whether the bundle runs on the CPU.
pub fn is_for_cpu(bundle: &Bundle) -> bool {
    bundle.manifest().target.flavour == "cpu"
}

/// Loads the engine that the bundle was built for.
///
/// # Errors
/// As [`cpu::load`] and [`load_plan`].
pub fn load(bundle: &Bundle, score_floor: f32, cpu: &CpuOptions, gpu: &GpuOptions) -> Result<Box<dyn Engine>> {
    if !is_for_cpu(bundle) {
        return Ok(Box::new(load_plan(bundle, score_floor, gpu)?));
    }
    load_on_cpu(bundle, score_floor, cpu)
}

/// Loads the bundle's model on the CPU, whatever it was built for.
///
/// # Errors
/// [`ErrorKind::Refused`] for a bundle that holds a plan and no model; else as [`cpu::load`].
pub fn load_on_cpu(bundle: &Bundle, score_floor: f32, cpu: &CpuOptions) -> Result<Box<dyn Engine>> {
    let manifest = bundle.manifest();
    if manifest.source.opset == Source::NO_MODEL {
        return Err(Error::refused("found a bundle with a plan alone, expected one with a model for the CPU")
            .at(bundle.path().display())
            .hint("take a machine with the GPU that the plan was made for"));
    }
    cpu::load(&bundle.model()?, &manifest.input, &manifest.layout, manifest.classes.clone().into(), score_floor, cpu)
        .map_err(|error| error.at(bundle.path().display()))
}

/// Loads the plan for this machine.
///
/// # Errors
/// As [`plan_for_this_machine`] and [`tensorrt::load`].
pub fn load_plan(bundle: &Bundle, score_floor: f32, options: &GpuOptions) -> Result<TensorRtEngine> {
    let (facts, bytes) = plan_for_this_machine(bundle, options)?;
    let manifest = bundle.manifest();
    let plan =
        Plan { bytes: &bytes, flavour: facts.flavour.parse()?, input: &manifest.input, layout: &manifest.layout };
    let classes: Arc<[String]> = manifest.classes.clone().into();
    let options = GpuOptions { budget: options.budget.or(manifest.target.budget), ..options.clone() };
    tensorrt::load(&plan, &classes, score_floor, &options)
        .map_err(|error| error.at(format!("{}, plan `{}`", bundle.path().display(), facts.name())))
}

/// The plan that was made for a GPU, a CPU architecture and a TensorRT as this machine's.
///
/// # Errors
/// [`ErrorKind::Refused`]: the bundle holds no plan yet, or none for this machine; [`ErrorKind::MachineLacks`]: no driver, or
/// the TensorRT that the plans need is not here.
pub fn plan_for_this_machine(bundle: &Bundle, options: &GpuOptions) -> Result<(PlanFacts, Vec<u8>)> {
    let path = bundle.path().display().to_string();
    let finish = || format!("`edge-build finish {path}` on this machine makes one");
    let plans: Vec<PlanFacts> = bundle
        .plan_names()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .iter()
        .map(|name| bundle.plan_facts(name))
        .collect::<Result<_>>()?;
    if plans.is_empty() {
        let target = &bundle.manifest().target.platform;
        return Err(Error::refused(format!(
            "found a bundle for `{target}` that is not finished, expected one with a plan for this machine"
        ))
        .at(&path)
        .hint(finish()));
    }
    let found = devices(Driver::load()?)?;
    let device = found.into_iter().find(|device| device.ordinal == options.device).ok_or_else(|| {
        Error::machine_lacks(format!("found no GPU {}, expected one for the plans of this bundle", options.device))
    })?;
    let mut reasons = vec![];
    let mut lacking = None;
    for facts in &plans {
        match fits(facts, &device, options) {
            Ok(()) => return bundle.plan(&facts.name()),
            Err(error) => {
                reasons.push(format!("`{}`: {}", facts.name(), error.message()));
                if error.kind() == ErrorKind::MachineLacks {
                    lacking.get_or_insert(error);
                }
            }
        }
    }
    let message = format!("found no plan for this machine: {}", reasons.join("; "));
    Err(match lacking {
        Some(error) => error.at(&path),
        None => Error::refused(message).at(&path).hint(finish()),
    })
}

fn fits(facts: &PlanFacts, device: &DeviceFacts, options: &GpuOptions) -> Result<()> {
    let capability = format!("{}.{}", device.compute_capability / 10, device.compute_capability % 10);
    if facts.compute_capability != capability {
        return Err(Error::refused(format!(
            "made for compute capability {}, this GPU has {capability}",
            facts.compute_capability
        )));
    }
    // TensorRT-RTX makes plans for GPUs of other machines; all others are made, or wrapped, where they run.
    if facts.flavour != Flavour::Rtx.name() && facts.architecture != std::env::consts::ARCH {
        return Err(Error::refused(format!(
            "made on {}, this machine is {}",
            facts.architecture,
            std::env::consts::ARCH
        )));
    }
    let flavour: Flavour = facts.flavour.parse()?;
    let version = Library::open(flavour, &options.search)?.version().to_string();
    if version != facts.tensorrt {
        return Err(Error::refused(format!("made by TensorRT {}, this machine has {version}", facts.tensorrt)));
    }
    Ok(())
}

/// What the engine of `bundle` takes on a CPU: its weights.
pub fn cpu_claim(bundle: &Bundle) -> Option<Bytes> {
    bundle.manifest().files.get(MODEL).map(|model| Bytes(model.bytes))
}

/// What all engines on the CPU may take together while some that take `loaded` run already: the bundle's budget, else four
/// fifths of what this machine has left, and those.
pub fn cpu_budget(bundle: &Bundle, loaded: Bytes) -> Option<Bytes> {
    let left = || memory::machine().map(|(used, total)| Bytes((total.0 - used.0) / 5 * 4 + loaded.0));
    bundle.manifest().target.budget.or_else(left)
}

/// What all engines on the GPU may take together: the budget asked for or the bundle's, without what the process takes once by `plan`, the
/// bundle's [`memory_plan`].
pub fn gpu_budget(bundle: &Bundle, plan: Option<&MemoryPlan>, gpu: &GpuOptions) -> Option<Bytes> {
    let limit = gpu.budget.or(bundle.manifest().target.budget).or_else(|| {
        let found = devices(Driver::load().ok()?).ok()?;
        let device = found.into_iter().find(|device| device.ordinal == gpu.device)?;
        Some(Bytes(device.memory.0 / 100 * tensorrt::USUAL_SHARE_PERCENT))
    })?;
    let once = plan.map_or(0, |plan| plan.context().0);
    Some(Bytes(limit.0.saturating_sub(once)))
}

/// What the plans of `bundle` take on a GPU with one run in flight, as planned when they were made: the largest of them.
pub fn memory_plan(bundle: &Bundle) -> Option<MemoryPlan> {
    let plans = bundle.plan_names().filter_map(|name| bundle.plan_facts(name).ok()?.memory);
    plans.max_by_key(|plan| plan.total)
}

/// Whether the GPU shares its memory with the CPU, as far as the driver tells.
pub fn is_integrated(gpu: &GpuOptions) -> bool {
    let found = Driver::load().and_then(devices).unwrap_or_default();
    found.into_iter().any(|device| device.ordinal == gpu.device && device.integrated)
}
