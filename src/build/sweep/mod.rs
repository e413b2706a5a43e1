//! One model (or several exports of it) at many sizes, precisions and batches: memory from the graph, fit for each target,
//! accuracy through the gate, time of the finalists.
//!
//! ```text
//! models × sizes × precisions × batches ─ prepare ─ memory ─ accuracy ─ finalists ─ time, best batch ─▶ Sweep
//! ```
//!
//! What cannot be built is a line with its reason; it ends nothing. After the time limit the rest is left unmeasured, and says so.

mod accuracy;
mod finalists;
mod finder;
mod lines;
mod page;
mod timing;

pub use accuracy::Accuracy;
pub use finder::{BatchSearch, Ended, Step};
pub use lines::{Fit, Line, MemoryNeed, Refusal};
pub use page::share;
pub use timing::Timed;

use super::Options;
use super::watcher::Watcher;
use crate::bundle::gate::GateResult;
use crate::config::Recipe;
use crate::config::precision::Precision;
use crate::engine::cpu::CpuOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::platform::Platform;
use crate::units::{Bytes, SizePx};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to sweep over.
#[derive(Debug, Clone)]
pub struct SweepOrder {
    /// The exports.
    pub models: Vec<PathBuf>,
    /// Input sizes; empty: each export's own, or the usual ones for an export of any size.
    pub sizes: Vec<SizePx>,
    /// Precisions.
    pub precisions: Vec<Precision>,
    /// Pictures a run.
    pub batches: Vec<u32>,
    /// Machines that it should fit.
    pub platforms: Vec<Platform>,
    /// Thresholds, calibration, gate; its model is not read.
    pub recipe: Recipe,
    /// What the model leaves open besides size and batch.
    pub options: Options,
    /// How the CPU engine runs.
    pub cpu: CpuOptions,
    /// TensorRT family for plans that are timed.
    pub flavour: Option<Flavour>,
    /// TensorRT's optimisation level for plans that are timed.
    pub optimization_level: Option<u8>,
    /// Where TensorRT's libraries are looked for.
    pub search: Search,
    /// Most size-and-precision pairs that are timed; 0 times nothing.
    pub finalists: u32,
    /// Nothing new is begun after this long.
    pub time_limit: Option<Duration>,
}

/// What a sweep found.
#[derive(Debug, Clone, Serialize)]
pub struct Sweep {
    /// Machines that were asked for.
    pub targets: Vec<SweepTarget>,
    /// One line a model, size, precision and batch, in this order.
    pub lines: Vec<Line>,
    /// Remarks that belong to no line, each once.
    pub remarks: Vec<String>,
    /// Whether the time limit left something unmeasured.
    pub time_limit_reached: bool,
}

/// A machine of a sweep.
#[derive(Debug, Clone, Serialize)]
pub struct SweepTarget {
    /// As after `--target`.
    pub name: String,
    /// For people.
    pub title: String,
    /// GPU memory that a bundle may use; `None` for the CPU.
    pub budget: Option<Bytes>,
}

/// Carries out `order`.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] for folders that cannot serve, [`crate::ErrorKind::Interrupted`]; a model or a combination that
/// is refused is a line, not an error.
pub fn sweep(order: &SweepOrder, watcher: &mut dyn Watcher) -> Result<Sweep> {
    let mut clock =
        Clock { inner: watcher, until: order.time_limit.map(|limit| Instant::now() + limit), remarks: vec![] };
    let mut sweep = Sweep {
        targets: order.platforms.iter().map(target).collect(),
        lines: Vec::new(),
        remarks: Vec::new(),
        time_limit_reached: false,
    };
    for model in &order.models {
        clock.inner.check_stop()?;
        sweep.lines.extend(lines::of_model(order, model, &mut clock)?);
    }
    accuracy::measure(order, &mut sweep.lines, &mut clock)?;
    timing::measure(order, &mut sweep.lines, &mut clock)?;
    sweep.time_limit_reached = clock.is_over();
    sweep.remarks = clock.remarks;
    Ok(sweep)
}

impl Sweep {
    /// The page for people: plots and table, needs no other file.
    pub fn to_html(&self) -> String {
        page::html(self)
    }
}

fn target(platform: &Platform) -> SweepTarget {
    SweepTarget { name: platform.name.clone(), title: platform.title.clone(), budget: platform.budget() }
}

/// A watcher that ends long work at the time limit and keeps remarks for the end.
struct Clock<'a> {
    inner: &'a mut dyn Watcher,
    until: Option<Instant>,
    remarks: Vec<String>,
}

impl Clock<'_> {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

impl Watcher for Clock<'_> {
    fn say(&mut self, line: &str) {
        log::info!("{line}");
    }

    fn warn(&mut self, line: &str) {
        if !self.remarks.iter().any(|known| known == line) {
            self.remarks.push(line.to_owned());
        }
    }

    fn step(&mut self, _: &str, _: u64, _: u64) {}

    fn judged(&mut self, _: &GateResult) {}

    fn check_stop(&self) -> Result<()> {
        self.inner.check_stop()?;
        if self.is_over() {
            Err(Error::new(ErrorKind::TimeLimit, "not measured: the time limit was reached"))
        } else {
            Ok(())
        }
    }
}

/// What an error means for a line: a reason, unless the user or a defect ended everything.
fn reason(error: Error) -> Result<String> {
    match error.kind() {
        ErrorKind::Interrupted | ErrorKind::Unexpected => Err(error),
        _ => Ok(error.message().to_owned()),
    }
}

#[cfg(test)]
mod tests;
