//! Flags as typed. Their help texts are the reference of the command line.

use super::sweep::SweepFlags;
use crate::build::compile::Wishes;
use crate::cli::parsed;
use crate::config::precision::{Border, Calibrator, Rest};
use crate::engine::cpu::{CpuBackend, CpuOptions};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::units::Bytes;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Turns a YOLO ONNX export into a verified bundle.
#[derive(Debug, Parser)]
#[command(
    name = "edge-build",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 done, 2 usage or recipe, 3 model or bundle refused, 4 does not fit the memory budget, 5 accuracy gate failed, 6 pictures cannot be read, \
                  9 time limit, 10 this machine lacks something, 11 output cannot be written, 130 interrupted. \
                  EDGE_LOG=info shows more."
)]
pub struct Flags {
    /// What to do instead of building.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to build.
    #[command(flatten)]
    pub build: BuildFlags,
}

/// What edge-build does besides building.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the targets that are built in
    Targets {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Show what a bundle is
    Inspect {
        /// The bundle (*.edge)
        bundle: PathBuf,
        /// The manifest with the bundle's id, for programs
        #[arg(long)]
        json: bool,
    },
    /// Add a plan for this machine to a bundle that was built with --portable
    Finish {
        /// The bundle (*.edge)
        bundle: PathBuf,
        /// How the plan is made.
        #[command(flatten)]
        gpu: GpuFlags,
        /// What judges it.
        #[command(flatten)]
        gate: DeviceGateFlags,
    },
    /// What a plan answers for pictures, named on standard input, as JSON; the accuracy gate starts it in a process of its own
    #[command(hide = true)]
    AskPlan {
        /// The bundle (*.edge)
        bundle: PathBuf,
        /// Name of the plan in it
        plan: String,
        /// Folder with TensorRT's libraries
        #[arg(long, value_name = "DIR")]
        tensorrt_dir: Option<PathBuf>,
    },
    /// What a plan is on this machine, as JSON; `finish` starts it in a process of its own
    #[command(hide = true)]
    ReadBack {
        /// The bundle (*.edge)
        bundle: PathBuf,
        /// Name of the plan in it
        plan: String,
        /// Folder with TensorRT's libraries
        #[arg(long, value_name = "DIR")]
        tensorrt_dir: Option<PathBuf>,
    },
    /// Compare sizes, precisions and batches: memory, fit, accuracy, time
    Sweep(SweepFlags),
    /// Put a plan that somebody else made into a bundle, on the machine that runs it
    Wrap(WrapFlags),
    /// Sign a bundle and its plans, for `edge-run --trust`
    Sign {
        /// The bundle (*.edge)
        bundle: PathBuf,
        /// Private Ed25519 key as PEM: `openssl genpkey -algorithm ed25519 -out line.key`
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Check a bundle again: hashes, manifest, known answers on the CPU engine
    Verify {
        /// The bundle (*.edge)
        bundle: PathBuf,
        /// How the CPU engine runs.
        #[command(flatten)]
        cpu: CpuFlags,
    },
}

/// Flags of `wrap`.
#[derive(Debug, Args)]
pub struct WrapFlags {
    /// The plan, or an engine file of Ultralytics
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// Where the bundle goes [default: beside the plan, ending in .edge]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Name of the bundle in results and logs [default: from the output]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Text file with one class name a line, for plans without names of their own
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// How the outputs are to be read, where shape and metadata leave two readings
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<String>,
    /// Folder with pictures for the known answers
    #[arg(long, value_name = "DIR")]
    pub golden: Option<PathBuf>,
    /// Least score of a detection, 0 to 1 [default: 0.25]
    #[arg(long, value_name = "SCORE", value_parser = unit)]
    pub conf: Option<f32>,
    /// Boxes of one class that overlap more than this are one object, 0 to 1 [default: 0.7]
    #[arg(long, value_name = "IOU", value_parser = unit)]
    pub iou: Option<f32>,
    /// GPU memory that the bundle may use [default: 80 % of the GPU's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub gpu_budget: Option<Bytes>,
    /// Folder with TensorRT's libraries [default: EDGE_TENSORRT_DIR, then where the loader looks]
    #[arg(long, value_name = "DIR")]
    pub tensorrt_dir: Option<PathBuf>,
}

/// Flags of a build; they go before what a recipe says.
#[derive(Debug, Args)]
pub struct BuildFlags {
    /// An ONNX export, a recipe.toml, or a folder that holds one
    #[arg(value_name = "MODEL|RECIPE", required = true)]
    pub input: Option<PathBuf>,
    /// Machine to build for: a name from `edge-build targets`, a compute capability, or a platform file [default: this machine]
    #[arg(long, value_name = "NAME|N.N|FILE")]
    pub target: Option<String>,
    /// Folder with pictures of good parts: the guard's reference, and some of them become known answers
    #[arg(long, value_name = "DIR")]
    pub calibration: Option<PathBuf>,
    /// Folder with pictures for the known answers
    #[arg(long, value_name = "DIR")]
    pub golden: Option<PathBuf>,
    /// Where the bundle goes [default: beside the model, ending in .edge]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Name of the bundle in results and logs [default: from the output]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Network input in pixels, where the model leaves it open
    #[arg(long, value_name = "N|WIDTHxHEIGHT")]
    pub imgsz: Option<String>,
    /// Pictures a run; an export fixed at 1 is rewritten for up to 32
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Option<u32>,
    /// How the outputs are to be read, where shape and metadata leave two readings
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<String>,
    /// Tensors that become the outputs: the graph is cut behind them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub outputs: Vec<String>,
    /// Text file with one class name a line, for models without names of their own
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// Least score of a detection, 0 to 1 [default: 0.25]
    #[arg(long, value_name = "SCORE", value_parser = unit)]
    pub conf: Option<f32>,
    /// Boxes of one class that overlap more than this are one object, 0 to 1 [default: 0.7]
    #[arg(long, value_name = "IOU", value_parser = unit)]
    pub iou: Option<f32>,
    /// Precision and the gate that judges it.
    #[command(flatten)]
    pub precision: PrecisionFlags,
    /// What is made for a GPU.
    #[command(flatten)]
    pub gpu: GpuFlags,
    /// How the CPU engine runs.
    #[command(flatten)]
    pub cpu: CpuFlags,
    /// Only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Build even when the bundle is there and was made from the same inputs
    #[arg(long)]
    pub rebuild: bool,
    /// End with one JSON line on standard output, for programs: bundle, id, key, rebuilt or not, sizes, gate, error
    #[arg(long)]
    pub json: bool,
    /// Write the gate's limits as test cases into a JUnit XML file, also of a gate that failed
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// Precision and the gate that judges it.
#[derive(Debug, Args)]
pub struct PrecisionFlags {
    /// Half precision, except what must stay in float
    #[arg(long, conflicts_with = "int8")]
    pub fp16: bool,
    /// 8-bit convolutions with ranges from `--calibration`
    #[arg(long)]
    pub int8: bool,
    /// How ranges are cut off for `--int8`: max, entropy, percentile or mse [default: mse]
    #[arg(long, value_name = "NAME", value_parser = parsed::<Calibrator>)]
    pub calibrator: Option<Calibrator>,
    /// What the rest computes in with `--int8`: half or float [default: half for a GPU, float for a CPU]
    #[arg(long, value_name = "TYPE", value_parser = parsed::<Rest>)]
    pub int8_rest: Option<Rest>,
    /// Convolutions that stay out of INT8, by name or part of the network, as in `model.10,model.22/m.0`
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    pub int8_keep: Vec<String>,
    /// Whether the first convolution, which reads the picture, is INT8 as well: yes or no [default: yes for a GPU]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub int8_first: Option<bool>,
    /// Convolutions with fewer channels in and out, per group, stay out of INT8; 0 for none [default: 32 for a GPU]
    #[arg(long, value_name = "N")]
    pub int8_few_channels: Option<u32>,
    /// Whether depthwise convolutions are INT8: yes or no [default: yes]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub int8_depthwise: Option<bool>,
    /// Whether the convolutions of attentions are INT8: yes or no [default: no for a GPU]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub int8_attention: Option<bool>,
    /// Whether residual sums add what is stored in 8 bits on both sides: yes or no [default: yes for a GPU]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub int8_sums: Option<bool>,
    /// Whether the head's output convolutions read what is stored in 8 bits: yes or no [default: yes for a GPU]
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub int8_head_inputs: Option<bool>,
    /// Type of the converted graph's inputs and outputs: fp32 or fp16 [default: fp32]
    #[arg(long, value_name = "TYPE", value_parser = parsed::<Border>)]
    pub io: Option<Border>,
    /// Folder with pictures that judge `--fp16` or `--int8` against the export [default: half of `--calibration`]
    #[arg(long, value_name = "DIR")]
    pub gate: Option<PathBuf>,
    /// Folder with YOLO labels of the gate's pictures
    #[arg(long, value_name = "DIR")]
    pub labels: Option<PathBuf>,
    /// Folder for the report, also of a failed gate [default: beside the bundle, when it passes]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// What is made for a GPU.
#[derive(Debug, Args)]
pub struct GpuFlags {
    /// TensorRT family: trt8, trt10, trt11 or rtx [default: the only one that this machine can build for the target]
    #[arg(long, value_name = "NAME", value_parser = parsed::<Flavour>)]
    pub flavour: Option<Flavour>,
    /// Make no plan here; `edge-build finish` on the device adds it
    #[arg(long)]
    pub portable: bool,
    /// GPU memory that the bundle may use [default: the target's, less its margin]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub gpu_budget: Option<Bytes>,
    /// Most scratch memory of a layer [default: 1 GiB, at most half of the budget]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub workspace: Option<Bytes>,
    /// TensorRT's optimisation level, 0 (builds fast) to 5 (runs fast) [default: TensorRT's own]
    #[arg(long, value_name = "0-5", value_parser = clap::value_parser!(u8).range(0..=5))]
    pub optimization_level: Option<u8>,
    /// Give up compiling after this long, as in 90s or 20m; exit code 9
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// Folder with TensorRT's libraries [default: EDGE_TENSORRT_DIR, then where the loader looks]
    #[arg(long, value_name = "DIR")]
    pub tensorrt_dir: Option<PathBuf>,
    /// Keep a plan that does not prove itself or whose precision is not as asked, for measuring
    #[arg(long, hide = true)]
    pub keep_unproved: bool,
}

/// What judges a plan on the device.
#[derive(Debug, Args)]
pub struct DeviceGateFlags {
    /// Folder with the pictures that judged the bundle when it was built: they judge the plan as well; one that fails is not added
    #[arg(long, value_name = "DIR", requires = "labels")]
    pub gate: Option<PathBuf>,
    /// Folder with their YOLO labels
    #[arg(long, value_name = "DIR", requires = "gate")]
    pub labels: Option<PathBuf>,
}

/// How the CPU engine runs.
#[derive(Debug, Args)]
pub struct CpuFlags {
    /// Threads of the CPU engine [default: one a physical core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Library that runs the network: auto, rten or onnxruntime [default: auto]
    #[arg(long, value_name = "NAME", value_parser = parsed::<CpuBackend>)]
    pub cpu_backend: Option<CpuBackend>,
}

impl GpuFlags {
    /// As the compiler takes them.
    pub(super) fn wishes(&self) -> Wishes {
        Wishes {
            flavour: self.flavour,
            portable: self.portable,
            gpu_budget: self.gpu_budget,
            workspace: self.workspace,
            optimization_level: self.optimization_level,
            time_limit: self.time_limit,
            search: Search::new(self.tensorrt_dir.clone()),
            read_back: Some(super::read_back::in_its_own_process),
            keep_unproved: self.keep_unproved,
        }
    }
}

impl CpuFlags {
    /// As the engine takes them.
    pub fn options(&self) -> CpuOptions {
        CpuOptions { backend: self.cpu_backend.unwrap_or_default(), threads: self.threads, ..CpuOptions::default() }
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("expected yes or no".to_owned()),
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|error: crate::Error| match error.hint_text() {
        Some(hint) => format!("{}; {hint}", error.message()),
        None => error.message().to_owned(),
    })
}

/// `90s`, `20m`, `1h`, or seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    let number = number.parse::<f64>().ok().filter(|number| *number > 0.0);
    number
        .and_then(|number| Duration::try_from_secs_f64(number * seconds).ok())
        .ok_or_else(|| "expected a time like `90s`, `20m` or `1h`".to_owned())
}

/// A number from 0 to 1.
pub(super) fn unit(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}
