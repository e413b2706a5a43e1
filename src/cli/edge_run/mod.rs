//! `edge-run`: flags as typed, checked, then run.

mod bench;
mod checked;
mod kit;
mod pages;
mod streams;

use crate::camera::{CameraRequest, sim};
use crate::cli::baseline::{BaselineCommand, baseline};
use crate::cli::batch_flags::BatchFlags;
use crate::cli::doctor::{self, DoctorArgs};
use crate::cli::gpu_flags::GpuFlags;
use crate::cli::incident::{IncidentCommand, incident};
use crate::cli::product::{self, ProductArgs};
use crate::cli::replay::{ReplayArgs, replay_incident};
use crate::cli::service::{self, StateArgs, UnprovenCommand};
use crate::cli::{StopRequest, Terminal};
use crate::config::IncidentSettings;
use crate::config::run::RunConfig;
use crate::config::service::{ServiceSettings, Span};
use crate::error::{Error, Result};
use crate::ffi::signal;
use crate::run::depot::Delivery;
use crate::run::stop::{StopFlag, StopReason};
use crate::run::{self, Options};
use bench::{BenchArgs, bench};
use checked::{checked, cpu};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use streams::streams_of_config;

/// Runs a bundle on cameras and notices when its own answers go wrong.
#[derive(Debug, Parser)]
#[command(name = "edge-run", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Typed {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print or check a configuration file for many streams
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Render the simulated line to files
    #[command(subcommand)]
    Sim(SimCommand),
    /// Say what this machine has and lacks: drivers, libraries, devices, memory, clocks, heat
    Doctor(DoctorArgs),
    /// Results that stood on a self-test which then failed
    #[command(subcommand)]
    Unproven(UnprovenCommand),
    /// What was recorded around faults
    #[command(subcommand)]
    Incident(IncidentCommand),
    /// Run a recorded incident through an engine of this machine and say what differs
    Replay(ReplayArgs),
    /// What is usual on a line: show it, or make it the measure
    #[command(subcommand)]
    Baseline(BaselineCommand),
    /// Ask a running line for the last bundle that worked
    Rollback(StateArgs),
    /// Say which product a line makes, or ask a running line to change over
    Product(ProductArgs),
    /// Measure a bundle on this machine: Markdown, or JSON for programs
    Bench(BenchArgs),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print an example with every key
    Example,
    /// Check a file and say what it would run
    Check {
        /// The configuration file
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Write frames as PNG with YOLO labels
    Render {
        /// Folder to write to; made when missing
        folder: PathBuf,
        /// Number of frames
        #[arg(long, default_value_t = 100)]
        frames: u64,
        /// Seed; the same seed gives the same frames
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Further options of the simulated line, as after `sim:`
        #[arg(long, default_value = "")]
        options: String,
    },
}

/// What to run.
#[derive(Debug, Args)]
struct RunArgs {
    /// The bundle to run; with a stream's name, the one that answers this stream [default: the only one in the current
    /// folder, engines/ or /etc/edge-trt/]
    #[arg(long, value_name = "[STREAM=]FILE")]
    engine: Vec<String>,
    /// A camera: number, /dev path or stable link under /dev/v4l
    #[arg(long, value_name = "[NAME=]CAMERA")]
    camera: Vec<String>,
    /// A picture, folder, glob, replay:DIR, http://… or sim:…; may be given several times as NAME=SOURCE
    #[arg(long, value_name = "[NAME=]SOURCE")]
    source: Vec<String>,
    /// Streams from a file (see `edge-run config example`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["camera", "source"])]
    config: Option<PathBuf>,
    /// Wait for sources that are not there yet instead of failing
    #[arg(long)]
    wait: bool,
    /// How frames reach the engine [default: newest for cameras, every for files]
    #[arg(long, value_enum)]
    delivery: Option<DeliveryArg>,
    /// What makes a frame a part: every frame, or a trigger by `POST /trigger`
    #[arg(long, value_enum, default_value_t = TriggerArg::Every)]
    trigger: TriggerArg,
    #[command(flatten, next_help_heading = "Camera")]
    request: CameraRequest,
    /// Write results as JSON lines; `-` is standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write annotated pictures to this folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Address of the pages and /metrics, or `none` [default: 127.0.0.1:8080 for cameras and the simulated line]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// File that holds the token for access from elsewhere and for triggers
    #[arg(long, value_name = "FILE", conflicts_with = "read_only")]
    token_file: Option<PathBuf>,
    /// Serve the pages beyond this machine without a token; every POST is refused
    #[arg(long)]
    read_only: bool,
    /// Report boxes from this score on; what is judged does not change
    #[arg(long, value_name = "0..1")]
    conf: Option<f32>,
    /// Overlap above which boxes of one class are one object, for the report
    #[arg(long, value_name = "0..1")]
    iou: Option<f32>,
    /// Stop after this many results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// Stop after this time, as in 90s, 10m, 8h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Threads of the CPU engine [default: physical cores]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// CPU engine
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    cpu_backend: BackendArg,
    /// Compute halves as a GPU would, rounded after every operator; slow, to see what FP16 costs
    #[arg(long)]
    emulate_half: bool,
    /// Begin with this product of the configuration file [default: the one in the state folder, else the first]
    #[arg(long, value_name = "ID")]
    product: Option<String>,
    /// Spoil engine and cameras by this plan of faults, for acceptance tests
    #[cfg(feature = "inject")]
    #[arg(long, value_name = "FILE")]
    inject: Option<PathBuf>,
    #[command(flatten)]
    batch: BatchFlags,
    #[command(flatten, next_help_heading = "Service")]
    service: ServiceSettings,
    #[command(flatten, next_help_heading = "Incidents")]
    incident: IncidentSettings,
    #[command(flatten, next_help_heading = "GPU")]
    gpu: GpuFlags,
    /// Write the truth of the simulated line as JSON lines
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// No live figures on the terminal
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DeliveryArg {
    Newest,
    Every,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TriggerArg {
    Every,
    Http,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendArg {
    Auto,
    Rten,
    Onnxruntime,
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|span| span.0).map_err(|error| error.message().to_owned())
}

/// Runs what was typed.
///
/// # Errors
/// Of whatever part fails; the kind decides the exit code.
pub fn main(typed: Typed, terminal: &mut Terminal) -> Result<()> {
    match typed.command {
        Some(Command::Config(ConfigCommand::Example)) => terminal.data(RunConfig::EXAMPLE),
        Some(Command::Config(ConfigCommand::Check { file })) => check_config(&file, terminal),
        Some(Command::Sim(SimCommand::Render { folder, frames, seed, options })) => {
            render(&folder, frames, seed, &options, terminal)
        }
        Some(Command::Doctor(typed)) => doctor::run(typed, terminal),
        Some(Command::Unproven(command)) => service::unproven(command, terminal),
        Some(Command::Incident(command)) => incident(command, terminal),
        Some(Command::Replay(typed)) => replay_incident(&typed, terminal),
        Some(Command::Baseline(command)) => baseline(command, terminal),
        Some(Command::Rollback(args)) => service::rollback(args, terminal),
        Some(Command::Product(args)) => product::run(args, terminal),
        Some(Command::Bench(typed)) => bench(&typed, terminal),
        None => run_streams(typed.run, terminal),
    }
}

fn check_config(file: &Path, terminal: &mut Terminal) -> Result<()> {
    let config = RunConfig::read(file)?;
    for stream in streams_of_config(&config, file)? {
        terminal.data(format!("stream {}: {:?}\n", stream.name, stream.spec.place))?;
    }
    config.service.options().map_err(|error| error.at(file.display()))?;
    config.incident.options().map_err(|error| error.at(file.display()))?;
    terminal.data(format!("{}: valid\n", file.display()))
}

fn render(folder: &Path, frames: u64, seed: u64, options: &str, terminal: &mut Terminal) -> Result<()> {
    let options = sim::SimOptions { seed, ..sim::SimOptions::parse(options)? };
    sim::render(folder, &options, frames, 1, |_| {})?;
    terminal.say(format!("{frames} frames with labels in {}", folder.display()));
    Ok(())
}

fn run_streams(typed: RunArgs, terminal: &mut Terminal) -> Result<()> {
    terminal.set_quiet(typed.quiet);
    // The sample bundle, if it is the one to run, lies in a temporary file until the end of the run.
    #[cfg(feature = "inject")]
    let inject = typed.inject.clone();
    let (options, _sample) = checked(typed)?;
    let stop = StopFlag::default();
    let raised = stop.clone();
    StopRequest::call_on_signals(move || raised.raise(StopReason::Interrupted))?;
    reload_on_hang_up(&options, &stop)?;
    #[cfg(feature = "inject")]
    let outcome = match &inject {
        Some(plan) => {
            let engines = run::source::BundleEngines::of(&options);
            let injector = run::inject::Injector::new(run::inject::Plan::read(plan)?);
            terminal.warn(format!("{} faults on purpose from {}", injector.faults(), plan.display()));
            let source = run::inject::Injected::over(Arc::new(engines), injector);
            run::start_with(&options, source, &stop, &mut |line| terminal.say(line))?
        }
        None => run::start(&options, &stop, &mut |line| terminal.say(line))?,
    };
    #[cfg(not(feature = "inject"))]
    let outcome = run::start(&options, &stop, &mut |line| terminal.say(line))?;
    let total: u64 = outcome.results.values().sum();
    let parts: Vec<String> = outcome.results.iter().map(|(trust, count)| format!("{count} {}", trust.name())).collect();
    terminal.say(format!("{total} results: {}", if parts.is_empty() { "none".into() } else { parts.join(", ") }));
    Ok(())
}

/// SIGHUP asks for the bundle's file, where no terminal hangs up with it.
fn reload_on_hang_up(options: &Options, stop: &StopFlag) -> Result<()> {
    if std::io::stderr().is_terminal() {
        return Ok(());
    }
    signal::catch_hang_up().map_err(|error| Error::unexpected("SIGHUP cannot be caught").because(error))?;
    let (door, stop) = (Arc::clone(&options.service.reload.door), stop.clone());
    let look = move || {
        while !stop.sleep(Duration::from_millis(200)) {
            if signal::take_hang_up() {
                door.ask();
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(look)
        .map(drop)
        .map_err(|error| Error::unexpected("the thread for signals cannot be started").because(error))
}

impl From<DeliveryArg> for Delivery {
    fn from(typed: DeliveryArg) -> Self {
        match typed {
            DeliveryArg::Newest => Delivery::Newest,
            DeliveryArg::Every => Delivery::Every,
        }
    }
}

#[cfg(test)]
mod flags_and_keys;
