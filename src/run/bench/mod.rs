//! `edge-run bench`: what this bundle costs on this machine, and whether the project's own bounds hold here.

mod failures;
mod gpu;
mod machine_facts;
mod report;
mod slots;
mod streams;

pub use failures::failures;
pub use report::{Figure, Report};

use super::machine;
use crate::bundle::Bundle;
use crate::detections::{Detection, Detector};
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::{CheckLine, GpuOptions, check_kernels};
use crate::engine::{Engine, Inference};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, Picture};
use crate::units::{SizePx, index, milliseconds};
use std::path::PathBuf;
use std::time::Instant;

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The bundle.
    pub bundle: PathBuf,
    /// Measured runs of each kind.
    pub runs: u32,
    /// Runs of the check for growth; 0 leaves it out.
    pub growth_runs: u32,
    /// Whether every layer of a plan is timed too.
    pub layers: bool,
    /// Measure this many streams on `devices` instead.
    pub streams: Option<u32>,
    /// Ordinals of the GPUs for `streams`, at least one; with a bundle for the CPU each is an engine of its own.
    pub devices: Vec<u32>,
    /// Size of the source picture; `None` takes the first golden picture as it is.
    pub size: Option<SizePx>,
    /// The CPU engine.
    pub cpu: CpuOptions,
    /// The GPU engine.
    pub gpu: GpuOptions,
}

/// Measures.
///
/// # Errors
/// As [`machine::load`], and what the engine reports.
pub fn bench(options: &BenchOptions, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let since = Instant::now();
    let bundle = Bundle::open(&options.bundle)?;
    let opened_ms = milliseconds(since.elapsed());
    let mut report = Report::new(&bundle);
    report.figure("opening the bundle, hashes compared", opened_ms, "ms");
    let frame = source_frame(&bundle, options.size)?;
    let picture = &frame.picture;
    report
        .note(format!("source picture: {} {:?}, stride {} bytes", picture.size, picture.format, picture.stride_bytes));
    if let Some(streams) = options.streams {
        streams::measure(options, streams, &bundle, &frame, &mut report, say)?;
    } else if machine::is_for_cpu(&bundle) {
        cpu(options, &bundle, &frame, &mut report, say)?;
    } else {
        gpu::measure(options, &bundle, &frame, &mut report, say)?;
    }
    report.machine.append(&mut machine_facts::read());
    Ok(report)
}

/// The kernels against the CPU path; the lines for people.
///
/// # Errors
/// [`ErrorKind::MachineLacks`] without a GPU; [`ErrorKind::Device`] when something differs, after `say` was told.
pub fn check(device: u32, say: &mut dyn FnMut(&str)) -> Result<()> {
    let lines: Vec<CheckLine> = check_kernels(device)?;
    let mut failed = 0;
    for line in &lines {
        match &line.difference {
            None => say(&format!("PASS {}", line.what)),
            Some(difference) => {
                failed += 1;
                say(&format!("FAIL {}: {difference}", line.what));
            }
        }
    }
    say(&format!("{} of {} comparisons of the kernels with the CPU path are equal", lines.len() - failed, lines.len()));
    if failed > 0 {
        return Err(Error::new(
            ErrorKind::Device,
            format!("{failed} comparisons of the kernels with the CPU path differ"),
        ));
    }
    Ok(())
}

/// The first golden picture, brought to `size` by repeating or leaving out pixels.
fn source_frame(bundle: &Bundle, size: Option<SizePx>) -> Result<Frame> {
    let first = bundle.golden()?.frames.into_iter().next();
    let picture = first.map(|frame| frame.picture).ok_or_else(|| Error::refused("found no golden picture"))?;
    let picture = match size {
        Some(size) => resampled(&picture, size),
        None => picture,
    };
    Ok(Frame::new("bench", 0, picture))
}

/// The first golden picture as it is.
fn resident(bundle: &Bundle) -> Result<Frame> {
    source_frame(bundle, None)
}

fn resampled(picture: &Picture, size: SizePx) -> Picture {
    let each = picture.format.row_bytes(1);
    let mut pixels = Vec::with_capacity(3 * size.pixels());
    for row in 0..size.height_px {
        let from = u64::from(row) * u64::from(picture.size.height_px) / u64::from(size.height_px.max(1));
        for column in 0..size.width_px {
            let at = u64::from(column) * u64::from(picture.size.width_px) / u64::from(size.width_px.max(1));
            let start =
                usize::try_from(from).unwrap_or(0) * picture.stride_bytes + usize::try_from(at).unwrap_or(0) * each;
            let pixel = &picture.pixels.as_slice()[start..start + each];
            pixels.extend_from_slice(if each == 3 { pixel } else { &[0, 0, 0] });
            if each == 1 {
                let length = pixels.len();
                pixels[length - 3..].fill(pixel[0]);
            }
        }
    }
    Picture::rgb(size, pixels)
}

fn cpu(
    options: &BenchOptions,
    bundle: &Bundle,
    frame: &Frame,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let manifest = bundle.manifest();
    let since = Instant::now();
    let mut engine = machine::load(bundle, manifest.thresholds.lowest_score(), &options.cpu, &options.gpu)?;
    report.figure("loading the engine", milliseconds(since.elapsed()), "ms");
    report.engine = engine.info().backend.clone();
    say(&format!("{}: {} runs", report.engine, options.runs));
    let mut detector = Detector::new(&manifest.thresholds, &manifest.classes)?;
    let (mut answers, mut detections) = (Vec::new(), Vec::new());
    let frames = vec![frame; index(manifest.input.batch)];
    let mut times = vec![];
    let cpu_before = machine_facts::process_cpu_ms();
    for _ in 0..options.runs.max(1) {
        let since = Instant::now();
        engine.infer(&frames, &mut answers)?;
        detect_all(&mut detector, engine.as_mut(), &mut answers, &mut detections);
        times.push(milliseconds(since.elapsed()));
    }
    let cpu_ms = machine_facts::process_cpu_ms() - cpu_before;
    report.spread("frame in memory → final boxes", &mut times);
    report.figure("CPU time a frame", cpu_ms / f64::from(options.runs.max(1) * manifest.input.batch), "ms");
    Ok(())
}

/// NMS over all answers; their buffers go back.
fn detect_all(
    detector: &mut Detector,
    engine: &mut dyn Engine,
    answers: &mut Vec<Inference>,
    detections: &mut Vec<Detection>,
) {
    for answer in answers.drain(..) {
        detector.detect(&answer.candidates, &answer.letterbox, &engine.info().layout, detections);
        engine.recycle(answer);
    }
}
