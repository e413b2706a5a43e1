//! `edge-run bench`.

use crate::bundle::Bundle;
use crate::cli::Terminal;
use crate::cli::edge_run::{BackendArg, cpu, kit};
use crate::cli::gpu_flags::GpuFlags;
use crate::config::run::{CpuConfig, GpuConfig};
use crate::error::{Error, Result};
use crate::run;
use crate::run::bench::BenchOptions;
use crate::units::{SizePx, index};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// The bundle
    #[arg(required_unless_present = "check")]
    bundle: Option<PathBuf>,
    /// Compare the GPU kernels with the CPU path instead; needs a GPU and no bundle
    #[arg(long, conflicts_with = "bundle")]
    check: bool,
    /// Let loads that must fail fail this often each instead, and compare what is left on the GPU
    #[arg(long, value_name = "N", conflicts_with_all = ["check", "kit"])]
    failed_loads: Option<u32>,
    /// Also write one archive with the figures, the plan's facts, the check of the kernels and what `doctor` says
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    kit: Option<PathBuf>,
    /// Measured runs of each kind
    #[arg(long, default_value_t = 1000)]
    runs: u32,
    /// Frames of the check that nothing grows; 0 leaves it out
    #[arg(long, default_value_t = 20_000)]
    growth_frames: u32,
    /// Also time every layer of a plan
    #[arg(long)]
    layers: bool,
    /// Measure this many streams at once instead: on the first of `--devices`, and on all of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with_all = ["check", "kit", "failed_loads"])]
    streams: Option<u32>,
    /// Size of the source picture [default: the first golden picture's]
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    size: Option<SizePx>,
    /// The figures as JSON
    #[arg(long)]
    json: bool,
    /// Also write the figures as JSON to this file
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Threads of the CPU engine [default: physical cores]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// CPU engine
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    cpu_backend: BackendArg,
    #[command(flatten, next_help_heading = "GPU")]
    gpu: GpuFlags,
}

fn parse_size(text: &str) -> Result<SizePx, String> {
    let wrong = || format!("found `{text}`, expected a size such as 1920x1080");
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let number = |text: &str| text.parse().ok().filter(|number| (1..=16_384).contains(number)).ok_or_else(wrong);
    Ok(SizePx::new(number(width)?, number(height)?))
}

/// The devices of `--streams`; each needs a stream.
fn devices(typed: &BenchArgs, first: u32) -> Result<Vec<u32>> {
    let mut devices = typed.gpu.devices(&GpuConfig::default());
    if devices.is_empty() {
        devices.push(first);
    }
    match typed.streams {
        Some(streams) if index(streams) < devices.len() => Err(Error::usage(format!(
            "found {streams} streams for {} devices, expected at least one a device",
            devices.len()
        ))),
        None if devices.len() > 1 => Err(Error::usage("found several `--devices`, expected `--streams` beside them")
            .hint("`edge-run bench x.edge --devices 0,1 --streams 16`")),
        _ => Ok(devices),
    }
}

pub(super) fn bench(typed: &BenchArgs, terminal: &mut Terminal) -> Result<()> {
    let gpu = typed.gpu.options();
    let Some(bundle) = &typed.bundle else {
        let mut lines = vec![];
        let checked = run::bench::check(gpu.device, &mut |line| lines.push(line.to_owned()));
        terminal.data(lines.join("\n") + "\n")?;
        return checked;
    };
    if let Some(times) = typed.failed_loads {
        let mut lines = vec![];
        let failed = run::bench::failures(&Bundle::open(bundle)?, times, &gpu, &mut |line| lines.push(line.to_owned()));
        terminal.data(lines.join("\n") + "\n")?;
        return failed;
    }
    let options = BenchOptions {
        bundle: bundle.clone(),
        runs: typed.runs,
        growth_runs: typed.growth_frames,
        layers: typed.layers,
        streams: typed.streams,
        devices: devices(typed, gpu.device)?,
        size: typed.size,
        cpu: cpu(typed.cpu_backend, typed.threads, false, &CpuConfig::default())?,
        gpu,
    };
    if let Some(file) = &typed.kit {
        return kit::kit(file, &options, terminal);
    }
    let report = run::bench::bench(&options, &mut |line| terminal.say(line))?;
    let json = serde_json::to_string_pretty(&report)
        .map_err(|error| Error::unexpected("the figures cannot be written as JSON").because(error))?;
    if let Some(file) = &typed.json_file {
        std::fs::write(file, &json)
            .map_err(|error| Error::output("the figures cannot be written").because(error).at(file.display()))?;
    }
    terminal.data(if typed.json { json + "\n" } else { report.to_markdown() })
}
