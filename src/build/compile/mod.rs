//! From a prepared graph to what the target runs.
//!
//! [`Compiler::choose`] decides before any work whether a plan can be made on this machine; [`plan::compile`] makes it;
//! [`faults`] knows what is known not to work; [`timings`] keeps what TensorRT measured for the next build.

pub mod asked;
mod entries;
pub mod faults;
pub mod plan;
pub mod readback;
pub mod timings;

pub use plan::{Compiled, Request, compile};
pub use readback::{ReadBack, ReadBackBy, read_back};

use crate::error::{Error, Result};
use crate::ffi::cuda::{Driver, devices};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::platform::{Platform, PlatformKind};
use crate::units::Bytes;
use std::time::Duration;

/// Compute capabilities × 10 that TensorRT-RTX builds for. 12.1 since 1.5; others are refused by its builder (seen with 1.7.1:
/// 8.7, 9.0, 10.0).
const RTX_CAPABILITIES: [u32; 6] = [75, 80, 86, 89, 120, 121];
/// Most scratch memory of a layer when nobody says otherwise.
const USUAL_WORKSPACE: Bytes = Bytes::gib(1);

/// What the user asked of the compiler.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// TensorRT family (`--flavour`).
    pub flavour: Option<Flavour>,
    /// Make no plan here (`--portable`).
    pub portable: bool,
    /// GPU memory that the bundle may use (`--gpu-budget`).
    pub gpu_budget: Option<Bytes>,
    /// Most scratch memory of a layer (`--workspace`).
    pub workspace: Option<Bytes>,
    /// TensorRT's optimisation level, 0 to 5.
    pub optimization_level: Option<u8>,
    /// Give up after this long (`--time-limit`).
    pub time_limit: Option<Duration>,
    /// Where TensorRT's libraries are looked for.
    pub search: Search,
    /// How the plan is read back where it was made on a GPU; `None`: in this process.
    pub read_back: Option<ReadBackBy>,
    /// Keep a plan that does not prove itself, or whose layers are not as asked: what is wrong is told. For measuring.
    pub keep_unproved: bool,
}

/// How the graph becomes an engine on the target.
#[derive(Debug, Clone)]
pub enum Compiler {
    /// The CPU engine runs the graph as it is: nothing to compile.
    Cpu,
    /// The plan is made on the device, by `edge-build finish`.
    Portable {
        /// The family that was asked for, if any.
        flavour: Option<Flavour>,
        /// GPU memory that the bundle may use.
        budget: Option<Bytes>,
    },
    /// A plan is made here.
    Plan(PlanOrder),
}

/// A plan that can be made on this machine.
#[derive(Debug, Clone)]
pub struct PlanOrder {
    /// The family.
    pub flavour: Flavour,
    /// Compute capability × 10.
    pub compute_capability: u32,
    /// GPU memory that the bundle may use.
    pub budget: Bytes,
    /// Most scratch memory of a layer.
    pub workspace: Bytes,
    /// TensorRT's optimisation level; `None` for its own.
    pub optimization_level: Option<u8>,
    /// Give up after this long.
    pub time_limit: Option<Duration>,
    /// Where TensorRT's libraries are looked for.
    pub search: Search,
    /// How the plan is read back where it was made on a GPU; `None`: in this process.
    pub read_back: Option<ReadBackBy>,
    /// Keep a plan that does not prove itself, or whose layers are not as asked.
    pub keep_unproved: bool,
}

impl Compiler {
    /// The compiler for `platform`, or the reason why there is none: asked before any work is done.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`] when no plan for the target can be made on this machine, with the ways out;
    /// [`crate::ErrorKind::Usage`] when a flag is missing or does not fit the target.
    pub fn choose(platform: &Platform, wishes: &Wishes) -> Result<Compiler> {
        if platform.kind == PlatformKind::Cpu {
            return match wishes {
                Wishes { portable: false, flavour: None, gpu_budget: None, workspace: None, .. } => Ok(Compiler::Cpu),
                _ => Err(Error::usage(
                    "found target `cpu` with a flag for GPUs, expected none of `--flavour`, `--portable`, \
                                       `--gpu-budget`, `--workspace`",
                )),
            };
        }
        let budget = budget(platform, wishes)?;
        if wishes.portable {
            return Ok(Compiler::Portable { flavour: wishes.flavour, budget: Some(budget) });
        }
        let flavour = flavour(platform, wishes)?;
        Ok(Compiler::Plan(PlanOrder {
            flavour,
            compute_capability: capability(platform)?,
            budget,
            workspace: workspace(budget, wishes)?,
            optimization_level: wishes.optimization_level,
            time_limit: wishes.time_limit,
            search: wishes.search.clone(),
            read_back: wishes.read_back,
            keep_unproved: wishes.keep_unproved,
        }))
    }

    /// TensorRT family, `any` for a portable bundle that names none, or `cpu`, as the manifest states it.
    pub fn flavour(&self) -> &'static str {
        match self {
            Compiler::Cpu => "cpu",
            Compiler::Portable { flavour, .. } => flavour.map_or("any", Flavour::name),
            Compiler::Plan(order) => order.flavour.name(),
        }
    }

    /// GPU memory that the bundle may use.
    pub fn budget(&self) -> Option<Bytes> {
        match self {
            Compiler::Cpu => None,
            Compiler::Portable { budget, .. } => *budget,
            Compiler::Plan(order) => Some(order.budget),
        }
    }
}

/// Compute capability × 10 as a platform states it.
fn capability(platform: &Platform) -> Result<u32> {
    let text = platform.compute_capability.as_ref().map_or("", |sourced| sourced.value.as_str());
    parse_capability(text).ok_or_else(|| {
        Error::usage(format!("found compute capability `{text}`, expected one like `8.6`"))
            .at(format!("platform `{}`", platform.name))
    })
}

/// `8.6` → 86.
pub(super) fn parse_capability(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    (major < 100 && minor < 10).then_some(major * 10 + minor)
}

fn budget(platform: &Platform, wishes: &Wishes) -> Result<Bytes> {
    match (wishes.gpu_budget, platform.budget(), &platform.memory) {
        (Some(asked), _, Some(memory)) if asked > memory.total => Err(Error::usage(format!(
            "found `--gpu-budget` of {asked}, expected at most the {} of target `{}`",
            memory.total, platform.name
        ))),
        (Some(Bytes(0)), _, _) => Err(Error::usage("found `--gpu-budget` of 0 B, expected more")),
        (Some(asked), _, _) => Ok(asked),
        (None, Some(budget), _) => Ok(budget),
        (None, None, _) => Err(Error::usage(format!("found no memory size for target `{}`", platform.name))
            .hint("say how much GPU memory the bundle may use, as in `--gpu-budget 4GiB`")),
    }
}

fn workspace(budget: Bytes, wishes: &Wishes) -> Result<Bytes> {
    match wishes.workspace {
        Some(asked) if asked > budget => {
            Err(Error::usage(format!("found `--workspace` of {asked}, expected at most the budget of {budget}")))
        }
        Some(asked) => Ok(asked),
        None => Ok(USUAL_WORKSPACE.min(Bytes(budget.0 / 2))),
    }
}

/// The family: as asked, else the only one that can be built here.
fn flavour(platform: &Platform, wishes: &Wishes) -> Result<Flavour> {
    if let Some(flavour) = wishes.flavour {
        return buildable(platform, flavour).map(|()| flavour);
    }
    let mut served: Vec<Flavour> = platform.flavours.iter().filter_map(|family| family.name.parse().ok()).collect();
    served.dedup();
    let (mut possible, mut reasons) = (vec![], vec![]);
    for &flavour in &served {
        match buildable(platform, flavour) {
            Ok(()) => possible.push(flavour),
            Err(error) => reasons.push(error),
        }
    }
    match possible.as_slice() {
        [one] => Ok(*one),
        [] => Err(reasons.into_iter().next().unwrap_or_else(|| {
            Error::usage(format!("found no TensorRT family for target `{}`, expected `--flavour`", platform.name))
        })),
        several => {
            let names: Vec<_> = several.iter().map(|flavour| format!("`{flavour}`")).collect();
            Err(Error::usage(format!("found several families for target `{}`, expected `--flavour`", platform.name))
                .hint(format!("this machine can build {}", names.join(" and "))))
        }
    }
}

/// Whether this machine can make a plan of that family for the target.
fn buildable(platform: &Platform, flavour: Flavour) -> Result<()> {
    let wanted = capability(platform)?;
    let reason = if flavour.builds_without_gpu() {
        let known =
            RTX_CAPABILITIES.contains(&wanted) && !platform.lacks.iter().any(|lack| lack.value == "tensorrt-rtx");
        if known {
            return Ok(());
        }
        format!("{} does not build for compute capability {}", flavour.product(), dotted(wanted))
    } else {
        let found = match Driver::load().and_then(devices) {
            Ok(found) if found.iter().any(|device| device.compute_capability == wanted) => return Ok(()),
            Ok(found) => {
                let found: Vec<_> = found.iter().map(|device| dotted(device.compute_capability)).collect();
                format!("one of {}", found.join(", "))
            }
            Err(_) => "no GPU".to_owned(),
        };
        format!(
            "{} needs a GPU of compute capability {} to build, this machine has {found}",
            flavour.product(),
            dotted(wanted)
        )
    };
    let message = format!("no plan for target `{}` can be made here: {reason}", platform.name);
    Err(Error::machine_lacks(message).hint(format!(
        "either `--portable`: writes the bundle without a plan, and `edge-build finish` on the {title} adds it; or run this \
         same command on a {title}, for instance as a CI runner",
        title = platform.title
    )))
}

/// 86 → `8.6`.
pub fn dotted(capability: u32) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod tests;
