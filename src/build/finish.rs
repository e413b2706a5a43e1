//! The second half of a portable bundle: a plan for this machine.

use super::compile::readback::add_read_back;
use super::compile::{Compiler, Request, Wishes, compile, parse_capability};
use super::gate::{self, DeviceGate, PlanToAsk, Recorded};
use super::memory::{self, Circumstances};
use super::watcher::Watcher;
use crate::bundle::plan::PlanFacts;
use crate::bundle::{Bundle, MODEL, stage_with_additions, write_with_additions};
use crate::error::{Error, Result};
use crate::ffi::cuda::{Driver, devices};
use crate::ffi::tensorrt::Library;
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::platform::Platform;
use std::path::Path;

/// Families in the order in which they are looked for when neither bundle nor user names one.
const PREFERENCE: [Flavour; 4] = [Flavour::Trt10, Flavour::Trt8, Flavour::Trt11, Flavour::Rtx];

/// Compiles the graph of the bundle at `path` for this machine, reads the plan back, proves it and adds it; returns its name.
///
/// # Errors
/// [`crate::ErrorKind::MachineLacks`]: no driver, no GPU of the bundle's compute capability, no TensorRT;
/// [`crate::ErrorKind::Usage`]: a bundle for the CPU, which needs no plan, or a gate that does not fit the bundle;
/// [`crate::ErrorKind::Refused`]: a plan that does not prove itself, or whose layers are not as asked;
/// [`crate::ErrorKind::Accuracy`]: a plan that fails `gate`; and those of compiling and writing. The bundle is left as it was.
pub fn finish(path: &Path, wishes: &Wishes, gate: Option<&DeviceGate>, watcher: &mut dyn Watcher) -> Result<String> {
    let bundle = Bundle::open(path)?;
    let at = |error: Error| if error.place().is_some() { error } else { error.at(path.display()) };
    let target = &bundle.manifest().target;
    if target.flavour == "cpu" {
        return Err(at(Error::usage("found a bundle for the CPU, which runs as it is and needs no plan")));
    }
    if wishes.portable {
        return Err(at(Error::usage("found `--portable`, expected none: finishing is making the plan")));
    }
    let named = wishes.flavour.or_else(|| target.flavour.parse().ok());
    let capability = match (&target.compute_capability, named) {
        (Some(capability), _) => capability.clone(),
        (None, _) => this_gpu()?,
    };
    if named != Some(Flavour::Rtx) || gate.is_some() {
        check_gpu(&capability)?;
    }
    let flavour = match named {
        Some(flavour) => flavour,
        None => found(&wishes.search)?,
    };
    // The budget stands in the manifest: the compute capability is all that is needed of the platform.
    let platform = Platform::find(&capability)?;
    let budget = wishes.gpu_budget.or(target.budget);
    let wishes = Wishes { flavour: Some(flavour), portable: false, gpu_budget: budget, ..wishes.clone() };
    let Compiler::Plan(order) = Compiler::choose(&platform, &wishes).map_err(at)? else {
        return Err(Error::unexpected("found no plan to make for a GPU"));
    };
    let manifest = bundle.manifest();
    let model = bundle.read(MODEL)?;
    let about = Circumstances {
        input: &manifest.input,
        layout: &manifest.layout,
        precision: &manifest.precision.found,
        budget: order.budget,
        alarm_percent: platform.plan.alarm_percent,
        kind: Platform::find(&manifest.target.platform).map_or(platform.kind, |known| known.kind),
    };
    let recorded = gate.map(|gate| Recorded::open(manifest, gate, watcher)).transpose()?;
    let memory = memory::plan(&model, &about, watcher).map_err(at)?;
    let request = Request::new(order.clone(), &model, &manifest.layout, &manifest.precision.found).map_err(at)?;
    let compiled = compile(request, watcher).map_err(at)?;
    watcher.check_stop()?;
    let entries = compiled.into_entries(&order, bundle.id(), Some(memory))?;
    let staged = stage_with_additions(path, &bundle, &entries)?;
    let mut entries = add_read_back(entries, &order, staged.aside(), watcher).map_err(at)?;
    if let Some(recorded) = recorded {
        let facts = PlanFacts::of_entries(&entries)?;
        let name = facts.name();
        let result =
            recorded.judge(PlanToAsk { bundle: staged.aside(), name: &name, search: &order.search }, watcher)?;
        gate::plan::tell(&result, watcher)?;
        entries = PlanFacts { gate: Some(result), ..facts }.into_entries_of(entries)?;
    } else if manifest.gate.as_ref().is_some_and(|gate| gate.original.map50.is_some()) {
        watcher.say("gate: the graph was judged on the CPU, this plan is not; `--gate DIR --labels DIR` with the same pictures judges it");
    }
    drop(staged);
    watcher.check_stop()?;
    let name = entries.keys().find_map(|name| Some(name.strip_prefix("plans/")?.strip_suffix(".plan")?.to_owned()));
    write_with_additions(path, &bundle, &entries)?;
    Ok(name.unwrap_or_default())
}

/// The compute capability of this machine's first GPU.
fn this_gpu() -> Result<String> {
    let found = devices(Driver::load()?)?;
    let first =
        found.first().ok_or_else(|| Error::machine_lacks("found no GPU, expected one to finish the bundle for"))?;
    Ok(super::compile::dotted(first.compute_capability))
}

/// A plan is made on the GPU it is for.
fn check_gpu(capability: &str) -> Result<()> {
    let hint = "run this on the machine that the bundle was built for";
    let found = devices(Driver::load().map_err(|error| {
        Error::machine_lacks(format!(
            "a plan for compute capability {capability} is made on such a GPU, {}",
            error.message()
        ))
        .at("CUDA driver")
        .hint(hint)
    })?)?;
    if found.iter().any(|device| Some(device.compute_capability) == parse_capability(capability)) {
        return Ok(());
    }
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    Err(Error::machine_lacks(format!("found {}, expected a GPU of compute capability {capability}", found.join(", ")))
        .hint(hint))
}

/// The first family whose library this machine has.
fn found(search: &Search) -> Result<Flavour> {
    let mut reasons = vec![];
    for flavour in PREFERENCE {
        match Library::open(flavour, search) {
            Ok(_) => return Ok(flavour),
            Err(error) => reasons.push(error.message().to_owned()),
        }
    }
    Err(Error::machine_lacks(format!("found no TensorRT: {}", reasons.join("; ")))
        .hint("install the TensorRT of this system, or name its folder with `--tensorrt-dir` or `EDGE_TENSORRT_DIR`"))
}
