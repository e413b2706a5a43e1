//! `edge-run doctor`: what this machine has, what it lacks, and whether it can run what is asked for.
//!
//! ```text
//! system files ─ board, nodes ─┐
//! driver, TensorRT, NVML ──────┼─ report ─ verdict ─▶ exit 0, or 10 with the reasons
//! bundle or flavour asked for ─┘
//! ```

pub mod board;
pub mod nodes;
mod verdict;

use crate::error::{Error, Result};
use crate::ffi::cuda::{Context, Driver, Wait, devices};
use crate::ffi::nvml::{self, GpuHealth};
use crate::ffi::tensorrt::Library;
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::units::Bytes;
use board::Board;
use nodes::{Identity, Node};
use serde::Serialize;
use std::path::PathBuf;
pub use verdict::Verdict;

/// From this temperature on chips of this kind slow down soon.
const HOT_CELSIUS: f64 = 85.0;
/// Every family, in the order of the report.
const FLAVOURS: [Flavour; 4] = [Flavour::Trt8, Flavour::Trt10, Flavour::Trt11, Flavour::Rtx];

/// What to look at.
#[derive(Debug, Clone)]
pub struct Request {
    /// Bundle that is to run.
    pub engine: Option<PathBuf>,
    /// TensorRT family that is to be there.
    pub flavour: Option<Flavour>,
    /// Where TensorRT's libraries are looked for.
    pub search: Search,
    /// Folder in whose `dev`, `etc`, `proc` and `sys` is looked: `/`, another one in tests.
    pub root: PathBuf,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this program.
    pub edge_run: &'static str,
    /// What the system's files say.
    pub board: Board,
    /// The CUDA driver with its GPUs.
    pub driver: Found<DriverFacts>,
    /// TensorRT's libraries by family.
    pub libraries: Vec<Found<LibraryFacts>>,
    /// Temperature, clocks and memory errors of discrete GPUs.
    pub health: Found<Vec<GpuHealth>>,
    /// Device nodes of GPUs and cameras.
    pub nodes: Vec<Node>,
    /// Who this process is.
    pub identity: Identity,
    /// What is wrong whatever is to run.
    pub troubles: Vec<Trouble>,
    /// Whether what was asked for can run; `None` when nothing was.
    pub asked: Option<Verdict>,
}

/// Something that is there, or why not.
#[derive(Debug, Clone, Serialize)]
pub struct Found<T> {
    /// As in `CUDA driver`.
    pub name: String,
    /// What is there.
    pub facts: Option<T>,
    /// Why nothing is.
    pub missing: Option<Trouble>,
}

/// Something that is wrong, with the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// What was found and expected.
    pub what: String,
    /// What helps, where something does.
    pub way_out: Option<String>,
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Self {
        let text = error.to_string();
        let place = error.place().map(|place| format!(" (at {place})")).unwrap_or_default();
        let what = text.lines().next().unwrap_or_default();
        Trouble { what: format!("{what}{place}"), way_out: error.hint_text().map(str::to_owned) }
    }
}

/// The CUDA driver.
#[derive(Debug, Clone, Serialize)]
pub struct DriverFacts {
    /// The CUDA version that it speaks.
    pub cuda: String,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
}

/// One GPU.
#[derive(Debug, Clone, Serialize)]
pub struct Gpu {
    /// Product name.
    pub name: String,
    /// As in `8.7`.
    pub compute_capability: String,
    /// Memory that the driver reports; on a Jetson that of the whole board.
    pub memory: Bytes,
    /// Free memory, measured with a context of our own; `None` when none could be made.
    pub memory_free: Option<Bytes>,
    /// Whether CPU and GPU share their memory.
    pub integrated: bool,
    /// Whether error correction is on.
    pub ecc: bool,
}

/// A TensorRT library.
#[derive(Debug, Clone, Serialize)]
pub struct LibraryFacts {
    /// As in `trt10`.
    pub flavour: &'static str,
    /// As in `10.3.0`.
    pub version: String,
    /// Where it lies.
    pub path: PathBuf,
}

impl<T> Found<T> {
    fn of(name: &str, outcome: Result<T>) -> Found<T> {
        match outcome {
            Ok(facts) => Found { name: name.to_owned(), facts: Some(facts), missing: None },
            Err(error) => Found { name: name.to_owned(), facts: None, missing: Some(Trouble::from(&error)) },
        }
    }
}

/// Looks at this machine.
///
/// # Errors
/// Only those of a bundle that cannot be opened; what the machine lacks is part of the report.
pub fn examine(request: &Request) -> Result<Report> {
    let board = board::look(&request.root);
    let (nodes, identity) = nodes::look(&request.root);
    let driver = Found::of("CUDA driver", driver());
    let libraries: Vec<_> = FLAVOURS.iter().map(|&flavour| library(flavour, &request.search)).collect();
    let health = Found::of(
        "GPU health",
        nvml::health().map_err(|reason| Error::machine_lacks(format!("found no NVIDIA management library: {reason}"))),
    );
    let mut troubles: Vec<Trouble> = nodes::troubles(&nodes, &identity)
        .into_iter()
        .map(|(what, way_out)| Trouble { what, way_out: Some(way_out) })
        .collect();
    troubles.extend(wear(&board, health.facts.as_deref().unwrap_or_default()));
    let mut report = Report {
        edge_run: env!("CARGO_PKG_VERSION"),
        board,
        driver,
        libraries,
        health,
        nodes,
        identity,
        troubles,
        asked: None,
    };
    report.asked = verdict::of(request, &report)?;
    Ok(report)
}

fn driver() -> Result<DriverFacts> {
    let driver = Driver::load()?;
    let gpus = devices(driver)?.into_iter().map(|device| {
        let free = Context::new(driver, device.ordinal, Wait::Block).and_then(|context| context.memory());
        Gpu {
            name: device.name,
            compute_capability: format!("{}.{}", device.compute_capability / 10, device.compute_capability % 10),
            memory: device.memory,
            memory_free: free.ok().map(|figures| figures.free),
            integrated: device.integrated,
            ecc: device.ecc,
        }
    });
    Ok(DriverFacts { cuda: driver.version().to_string(), gpus: gpus.collect() })
}

fn library(flavour: Flavour, search: &Search) -> Found<LibraryFacts> {
    let facts = Library::open(flavour, search).map(|library| LibraryFacts {
        flavour: flavour.name(),
        version: library.version().to_string(),
        path: library.path().to_owned(),
    });
    Found::of(flavour.product(), facts)
}

/// Heat, throttling and memory errors: the machine works and will not for long, or not as fast as it should.
fn wear(board: &Board, health: &[GpuHealth]) -> Vec<Trouble> {
    let mut found = vec![];
    let mut say = |what: String, way_out: &str| {
        found.push(Trouble { what, way_out: Some(way_out.to_owned()) });
    };
    let cool = "better cooling, or a lower power mode (`nvpmodel`)";
    for zone in board.temperatures.iter().filter(|zone| zone.celsius >= HOT_CELSIUS) {
        say(format!("`{}` is at {:.0} °C, expected below {HOT_CELSIUS:.0} °C", zone.name, zone.celsius), cool);
    }
    for line in &board.throttling {
        say(format!("clocks are held down: {line}"), cool);
    }
    for gpu in health {
        if let Some(reasons) = gpu.throttled_by.as_ref().filter(|reasons| !reasons.is_empty()) {
            say(
                format!("clocks of {} are held down: {}", gpu.name, reasons.join(", ")),
                "better cooling or power supply",
            );
        }
        if let Some(errors) = gpu.ecc_uncorrected.filter(|&errors| errors > 0) {
            say(
                format!("{} counted {errors} memory errors that could not be corrected", gpu.name),
                "reset the GPU; if they come again, replace it",
            );
        }
    }
    found
}

#[cfg(test)]
mod tests;
