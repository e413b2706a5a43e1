//! `edge-run doctor`: the report as text or JSON, and the exit code.

use crate::cli::Terminal;
use crate::error::{Error, Result};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::run::doctor::{Report, Request, Trouble, examine};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;

/// What to look at.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// The bundle that is to run: exit code 10 when this machine cannot run it
    #[arg(long, value_name = "FILE")]
    engine: Option<PathBuf>,
    /// The TensorRT family that is to be there: trt8, trt10, trt11 or rtx; exit code 10 when it is not
    #[arg(long, value_name = "NAME", value_parser = super::parsed::<Flavour>, conflicts_with = "engine")]
    flavour: Option<Flavour>,
    /// Folder with TensorRT's libraries [default: EDGE_TENSORRT_DIR, then where the loader looks]
    #[arg(long, value_name = "DIR")]
    tensorrt_dir: Option<PathBuf>,
    /// The report for programs
    #[arg(long)]
    json: bool,
    /// Folder in whose dev, etc, proc and sys is looked
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Prints what this machine has and lacks.
///
/// # Errors
/// [`crate::ErrorKind::MachineLacks`] when what was asked for cannot run here, after the report was printed.
pub(super) fn run(typed: DoctorArgs, terminal: &mut Terminal) -> Result<()> {
    let request = Request {
        engine: typed.engine,
        flavour: typed.flavour,
        search: Search::new(typed.tensorrt_dir),
        root: typed.root,
    };
    let report = examine(&request)?;
    if typed.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Error::unexpected("the report cannot be written as JSON").because(error))?;
        terminal.data(text)?;
    } else {
        terminal.data(describe(&report).trim_end())?;
    }
    let Some(verdict) = report.asked.filter(|verdict| !verdict.can_run) else { return Ok(()) };
    let first = verdict.reasons.first();
    let why = first.map_or_else(|| "for an unknown reason".to_owned(), |reason| reason.what.clone());
    let more = match verdict.reasons.len() {
        0 | 1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    let error = Error::machine_lacks(format!("this machine cannot run `{}`: {why}{more}", verdict.what));
    Err(first.and_then(|reason| reason.way_out.clone()).into_iter().fold(error, Error::hint))
}

/// The report for people.
pub(super) fn describe(report: &Report) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "{name:<14}{value}");
    };
    board(report, &mut row);
    match (&report.driver.facts, &report.driver.missing) {
        (Some(driver), _) => {
            row("CUDA driver", &format!("CUDA {}", driver.cuda));
            for gpu in &driver.gpus {
                let free =
                    gpu.memory_free.map_or_else(|| "no context can be made".to_owned(), |free| format!("{free} free"));
                let shared = if gpu.integrated { ", shared with the CPU" } else { "" };
                let ecc = if gpu.ecc { ", error correction on" } else { "" };
                row("GPU", &format!("{} ({}), {}{shared}{ecc}, {free}", gpu.name, gpu.compute_capability, gpu.memory));
            }
        }
        (None, missing) => row("CUDA driver", &none(missing.as_ref())),
    }
    for library in &report.libraries {
        let value = library.facts.as_ref().map(|facts| format!("{} in {}", facts.version, facts.path.display()));
        row(&library.name, &value.unwrap_or_else(|| none(library.missing.as_ref())));
    }
    for gpu in report.health.facts.iter().flatten() {
        let clock = |now: Option<u32>| now.map_or_else(|| "?".to_owned(), |mhz| mhz.to_string());
        let mut value = format!("{}: {} of {} MHz", gpu.name, clock(gpu.clock_mhz), clock(gpu.highest_clock_mhz));
        let mut add = |part: Option<String>| value.extend(part.map(|part| format!(", {part}")));
        add(gpu.temperature_celsius.map(|celsius| format!("{celsius} °C")));
        add(gpu.power_watts.map(|watts| format!("{watts:.0} W")));
        add(gpu.ecc_uncorrected.map(|errors| format!("{errors} memory errors not corrected")));
        row("GPU health", &value);
    }
    let groups = report.identity.groups.join(", ");
    row("user", &format!("{} (groups: {groups})", report.identity.user));
    for node in &report.nodes {
        let usable = if node.usable { "usable" } else { "not usable" };
        row(
            "device",
            &format!("{}: {}, {}:{} {}, {usable}", node.path.display(), node.kind, node.owner, node.group, node.mode),
        );
    }
    for trouble in &report.troubles {
        row("trouble", &with_way_out(trouble));
    }
    if let Some(verdict) = &report.asked {
        match &verdict.by {
            Some(by) => row("can run", &format!("{}, by {by}", verdict.what)),
            None => verdict.reasons.iter().for_each(|reason| row("cannot run", &with_way_out(reason))),
        }
    }
    text
}

fn board(report: &Report, row: &mut dyn FnMut(&str, &str)) {
    let board = &report.board;
    let model = board.model.as_deref().unwrap_or("a machine without a device tree");
    let kernel = board.kernel.as_deref().unwrap_or("unknown");
    row("machine", &format!("{model}, {}, kernel {kernel}", board.architecture));
    for (name, value) in [
        ("Jetson Linux", &board.jetson_release),
        ("kernel module", &board.kernel_module),
        ("power mode", &board.power_mode),
    ] {
        if let Some(value) = value {
            row(name, value);
        }
    }
    if let (Some(available), Some(total)) = (board.memory_available, board.memory_total) {
        row("memory", &format!("{available} available of {total}"));
    }
    for clock in &board.clocks {
        let most = clock.most_mhz.map(|most| format!(" of {most:.0}")).unwrap_or_default();
        row("clock", &format!("{}: {:.0}{most} MHz", clock.name, clock.now_mhz));
    }
    for zone in &board.temperatures {
        row("temperature", &format!("{}: {:.1} °C", zone.name, zone.celsius));
    }
}

fn none(missing: Option<&Trouble>) -> String {
    missing.map_or_else(|| "none".to_owned(), |missing| format!("none: {}", missing.what))
}

fn with_way_out(trouble: &Trouble) -> String {
    match &trouble.way_out {
        Some(way_out) => format!("{} → {way_out}", trouble.what),
        None => trouble.what.clone(),
    }
}
