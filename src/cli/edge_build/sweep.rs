//! `edge-build sweep`.

use super::flags::{CpuFlags, duration, unit};
use super::{json_text, order};
use crate::aside::{self, AsideFile};
use crate::build::Options;
use crate::build::sweep::{Line, Sweep, SweepOrder, sweep};
use crate::build::watcher::Watcher;
use crate::cli::{StopRequest, Terminal, parsed};
use crate::config::Recipe;
use crate::config::precision::{Calibrator, Precision};
use crate::config::recipe::ImageSize;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::platform::{Platform, PlatformKind};
use crate::units::SizePx;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flags of `sweep`.
#[derive(Debug, Args)]
pub struct SweepFlags {
    /// ONNX exports; several of one model at different sizes, or one that takes any size
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<PathBuf>,
    /// Machines that it should fit, as in `edge-build targets`; `cpu` times this machine's CPU [default: every GPU target]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub target: Vec<String>,
    /// Network inputs in pixels [default: the export's own, or 320 to 1280 where it takes any]
    #[arg(long, value_name = "N|WIDTHxHEIGHT,…", value_delimiter = ',')]
    pub imgsz: Vec<String>,
    /// Precisions: as-exported, fp16, int8 [default: all three]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = precision)]
    pub precision: Vec<Precision>,
    /// Pictures a run
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,
    /// Folder with pictures of good parts, for the ranges of fp16 and int8
    #[arg(long, value_name = "DIR")]
    pub calibration: Option<PathBuf>,
    /// Folder with pictures that judge the accuracy [default: half of `--calibration`]
    #[arg(long, value_name = "DIR")]
    pub gate: Option<PathBuf>,
    /// Folder with YOLO labels of the gate's pictures
    #[arg(long, value_name = "DIR")]
    pub labels: Option<PathBuf>,
    /// How ranges are cut off for int8: max, entropy, percentile or mse [default: mse]
    #[arg(long, value_name = "NAME", value_parser = parsed::<Calibrator>)]
    pub calibrator: Option<Calibrator>,
    /// Least score of a detection, 0 to 1 [default: 0.25]
    #[arg(long, value_name = "SCORE", value_parser = unit)]
    pub conf: Option<f32>,
    /// Boxes of one class that overlap more than this are one object, 0 to 1 [default: 0.7]
    #[arg(long, value_name = "IOU", value_parser = unit)]
    pub iou: Option<f32>,
    /// Text file with one class name a line, for models without names of their own
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// How the outputs are to be read, where shape and metadata leave two readings
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<String>,
    /// Most sizes and precisions that are built and timed; 0 times nothing
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub finalists: u32,
    /// Begin nothing new after this long; what was measured is kept (exit code 9)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// TensorRT family of the plans that are timed [default: the only one that this machine can build for the target]
    #[arg(long, value_name = "NAME", value_parser = parsed::<Flavour>)]
    pub flavour: Option<Flavour>,
    /// TensorRT's optimisation level of the plans that are timed, 0 to 5 [default: TensorRT's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=5))]
    pub optimization_level: Option<u8>,
    /// Folder with TensorRT's libraries [default: EDGE_TENSORRT_DIR, then where the loader looks]
    #[arg(long, value_name = "DIR")]
    pub tensorrt_dir: Option<PathBuf>,
    /// How the CPU engine runs.
    #[command(flatten)]
    pub cpu: CpuFlags,
    /// Write a page with plots and table
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// JSON instead of the table, for programs
    #[arg(long)]
    pub json: bool,
    /// Only warnings and errors beside the table
    #[arg(short, long)]
    pub quiet: bool,
}

fn precision(text: &str) -> Result<Precision, String> {
    [Precision::AsExported, Precision::Fp16, Precision::Int8]
        .into_iter()
        .find(|precision| precision.name().replace(' ', "-") == text)
        .ok_or_else(|| format!("found `{text}`, expected as-exported, fp16 or int8"))
}

/// Sweeps and prints.
pub(super) fn run(flags: &SweepFlags, terminal: &mut Terminal) -> Result<()> {
    terminal.set_quiet(flags.quiet);
    let order = check(flags)?;
    flags.html.as_deref().map(aside::check).transpose()?;
    let stop = StopRequest::on_signals()?;
    let found = sweep(&order, &mut Said { terminal, stop })?;
    if flags.json {
        terminal.data(json_text(&found)?)?;
    } else {
        terminal.data(table(&found))?;
    }
    found.remarks.iter().for_each(|remark| terminal.warn(remark));
    if let Some(path) = &flags.html {
        write(path, &found)?;
        terminal.say(format_args!("wrote {}", path.display()));
    }
    if found.lines.iter().all(|line| line.refused.is_some()) {
        let count = found.lines.len();
        return Err(Error::refused(format!("none of {count} combinations can be built"))
            .hint("the reasons stand in the lines; an export fixed at one size has to be made again for another"));
    }
    if found.time_limit_reached {
        return Err(Error::new(
            ErrorKind::TimeLimit,
            "the time limit was reached; what was measured until then is above",
        )
        .hint("give more with `--time-limit`, or sweep over less"));
    }
    Ok(())
}

fn check(flags: &SweepFlags) -> Result<SweepOrder> {
    let first = flags.models.first().ok_or_else(|| Error::usage("found no model, expected one"))?;
    let mut recipe = Recipe::for_model(first);
    recipe.calibration.clone_from(&flags.calibration);
    recipe.gate.pictures.clone_from(&flags.gate);
    recipe.gate.labels.clone_from(&flags.labels);
    recipe.calibrator = flags.calibrator.unwrap_or(recipe.calibrator);
    recipe.thresholds.score = flags.conf.unwrap_or(recipe.thresholds.score);
    recipe.thresholds.iou = flags.iou.unwrap_or(recipe.thresholds.iou);
    if flags.labels.is_some() && flags.gate.is_none() && flags.calibration.is_none() {
        return Err(
            Error::usage("found labels without pictures, expected both").hint("give the pictures with `--gate DIR`")
        );
    }
    let size = |text: &String| order::size(&ImageSize::Text(text.clone()));
    let mut sizes = flags.imgsz.iter().map(size).collect::<Result<Vec<SizePx>>>()?;
    sizes.dedup();
    let mut batches = flags.batch.clone();
    batches.sort_unstable();
    batches.dedup();
    let platforms = match flags.target.as_slice() {
        [] => Platform::all()?.into_iter().filter(|platform| platform.kind != PlatformKind::Cpu).collect(),
        names => names.iter().map(|name| Platform::find(name)).collect::<Result<Vec<_>>>()?,
    };
    let all = [Precision::AsExported, Precision::Fp16, Precision::Int8];
    let precisions =
        all.into_iter().filter(|one| flags.precision.is_empty() || flags.precision.contains(one)).collect();
    Ok(SweepOrder {
        models: flags.models.clone(),
        sizes,
        precisions,
        batches,
        platforms,
        recipe,
        options: Options {
            names: flags.names.as_deref().map(order::read_names).transpose()?,
            layout: flags.layout.as_deref().map(str::parse).transpose()?,
            ..Options::default()
        },
        cpu: flags.cpu.options(),
        flavour: flags.flavour,
        optimization_level: flags.optimization_level,
        search: Search::new(flags.tensorrt_dir.clone()),
        finalists: flags.finalists,
        time_limit: flags.time_limit,
    })
}

/// Lines about what is being measured.
struct Said<'a> {
    terminal: &'a mut Terminal,
    stop: StopRequest,
}

impl Watcher for Said<'_> {
    fn say(&mut self, line: &str) {
        self.terminal.say(line);
    }

    fn warn(&mut self, line: &str) {
        self.terminal.warn(line);
    }

    fn step(&mut self, _: &str, _: u64, _: u64) {}

    fn check_stop(&self) -> Result<()> {
        self.stop.check()
    }
}

fn write(path: &Path, found: &Sweep) -> Result<()> {
    let mut file = AsideFile::create(path)?;
    file.write_all(found.to_html().as_bytes())
        .map_err(|error| Error::output("the page cannot be written").because(error).at(path.display()))?;
    file.commit()
}

/// The table for people.
fn table(found: &Sweep) -> String {
    let several = found.lines.iter().any(|line| Some(&line.model) != found.lines.first().map(|first| &first.model));
    let measured = found.lines.iter().any(|line| line.accuracy.is_some());
    let timed = found.lines.iter().any(|line| line.time.is_some());
    let mut head = vec!["INPUT", "PRECISION", "BATCH", "ACTIVATIONS", "MEMORY", "FITS"];
    if several {
        head.insert(0, "MODEL");
    }
    if measured {
        head.extend(["MAP50", "RECALL", "FALSE", "GATE"]);
    }
    if timed {
        head.push("MS/PICTURE");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(found.lines.iter().map(|line| row(line, several, measured, timed)));
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() == columns).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut lines: Vec<String> = Vec::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        lines.push(cells.join("  ").trim_end().to_owned());
    }
    lines.push("\nMemory of one context as the graph asks for it, estimated, without the CUDA context.".to_owned());
    if found.lines.iter().any(|line| line.precision == Precision::Int8) {
        lines.push("int8 is counted like fp16: the safe side, as part of the graph stays in half.".to_owned());
    }
    if found.lines.iter().any(|line| line.memory.is_some_and(|memory| memory.scaled)) {
        lines.push("~: needs another export at that size; scaled by area.".to_owned());
    }
    lines.extend(hints(found));
    lines.join("\n")
}

fn row(line: &Line, several: bool, measured: bool, timed: bool) -> Vec<String> {
    let mut row = vec![line.size.to_string(), line.precision.name().to_owned(), line.batch.to_string()];
    if several {
        row.insert(0, line.model.clone());
    }
    let about = if line.memory.is_some_and(|memory| memory.scaled) { "~" } else { "" };
    let shown = line.memory.map(|memory| (memory.activations.to_string(), memory.total.to_string()));
    let (activations, total) = shown.unwrap_or(("-".to_owned(), "-".to_owned()));
    row.extend([format!("{about}{activations}"), format!("{about}{total}")]);
    if let Some(refused) = &line.refused {
        row.push(format!("refused: {}", refused.reason));
        return row;
    }
    row.push(fits(line));
    if measured {
        row.extend(match &line.accuracy {
            Some(found) => [
                found.map50.map_or_else(|| "-".to_owned(), |map50| format!("{map50:.4}")),
                format!("{:.4}", found.recall),
                found.false_boxes.to_string(),
                match found.passed {
                    Some(true) => "passed".to_owned(),
                    Some(false) => format!("failed: {}", found.failed.join(", ")),
                    None => "-".to_owned(),
                },
            ],
            None => {
                let why = line.accuracy_missing.clone().unwrap_or_default();
                ["-".to_owned(), "-".to_owned(), "-".to_owned(), why]
            }
        });
    }
    if timed {
        row.push(
            line.time.as_ref().map_or_else(String::new, |time| format!("{:.3} ({})", time.ms_a_picture, time.target)),
        );
    }
    row
}

/// `all 10`, or those that it does not fit.
fn fits(line: &Line) -> String {
    let not: Vec<&str> = line.fits.iter().filter(|fit| !fit.fits).map(|fit| fit.target.as_str()).collect();
    match (line.fits.as_slice(), not.as_slice()) {
        ([], _) => "-".to_owned(),
        ([one], []) => format!("{:.1} % of {}", crate::build::sweep::share(one.total, one.budget), one.budget),
        ([one], _) => format!("no: {} of {}", one.total, one.budget),
        (all, []) => format!("all {}", all.len()),
        (all, not) if not.len() == all.len() => "none".to_owned(),
        (all, not) => format!("{} of {}, not {}", all.len() - not.len(), all.len(), not.join(" ")),
    }
}

/// The ways out of the refusals, each once.
fn hints(found: &Sweep) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for hint in found.lines.iter().filter_map(|line| line.refused.as_ref()?.hint.clone()) {
        let hint = format!("hint: {hint}");
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}
