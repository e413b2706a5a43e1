//! `edge-run replay`: the frames that were recorded around a fault, once more through an engine here.

use crate::bundle::Bundle;
use crate::bundle::signature::PublicKey;
use crate::cli::Terminal;
use crate::cli::gpu_flags::GpuFlags;
use crate::cli::incident::to_json;
use crate::cli::sample::SampleBundle;
use crate::engine::Engine;
use crate::engine::cpu::CpuOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::run::incident::recording::Recording;
use crate::run::incident::replay::{AskedTolerance, Outcome, Replay, Replayed, replay, short};
use crate::run::machine;
use clap::Args;
use std::path::{Path, PathBuf};

/// What to run again.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The zip that `edge-run incident export` wrote, or the folder of an incident
    incident: PathBuf,
    /// The bundle to run [default: the one in the zip, or where it lay then]
    #[arg(long, value_name = "FILE")]
    engine: Option<PathBuf>,
    /// Run on the CPU although there is a GPU
    #[arg(long)]
    cpu: bool,
    /// Edges may be apart by this much [default: 0.5 on the backend of then, else what the bundle allows]
    #[arg(long, value_name = "PX")]
    tolerance_px: Option<f32>,
    /// Scores may be apart by this much [default: 0.005 on the backend of then, else what the bundle allows]
    #[arg(long, value_name = "0..1")]
    tolerance_score: Option<f32>,
    /// Threads of the CPU engine [default: physical cores]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// CPU engine: auto, rten or onnxruntime
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    cpu_backend: String,
    /// Run only bundles that are signed with this public Ed25519 key (PEM)
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// The comparison as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "GPU")]
    gpu: GpuFlags,
}

/// Runs `edge-run replay`.
///
/// # Errors
/// [`ErrorKind::Source`] when the recording cannot be used, [`ErrorKind::Refused`] when an answer differs (exit 3: this engine
/// does not give the recorded answers), and those of the engine.
pub(super) fn replay_incident(typed: &ReplayArgs, terminal: &mut Terminal) -> Result<()> {
    let recording = Recording::open(&typed.incident)?;
    let found = BundleFile::find(typed, &recording)?;
    let bundle = Bundle::open(found.path())?;
    if let Some(key) = typed.trust.as_deref().map(PublicKey::read).transpose()? {
        key.check(&bundle)?;
    }
    let mut engine = load(typed, &bundle, recording.report().engine.score_floor, terminal)?;
    let asked = AskedTolerance { px: typed.tolerance_px, score: typed.tolerance_score };
    let mut unprinted = None;
    let replayed = replay(&recording, &bundle, &mut *engine, asked, &mut |frame| {
        if !typed.json && unprinted.is_none() {
            unprinted = terminal.data(line(frame)).err();
        }
    })?;
    if let Some(error) = unprinted {
        return Err(error);
    }
    if typed.json {
        terminal.data(to_json(&replayed)?)?;
    }
    verdict(&replayed, terminal)
}

/// Differences shown for one frame; `--json` has all.
const SHOWN: usize = 5;

fn line(frame: &Replayed) -> String {
    let number = frame.frame.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let outcome = match frame.outcome {
        Outcome::Same => "same",
        Outcome::Differs => "DIFFERS",
        Outcome::NotRun => "not run: no picture",
    };
    let [boxes_then, boxes_now] = frame.boxes;
    let [candidates_then, candidates_now] = frame.candidates;
    let mut text = format!(
        "{} {number:>6}  {:7}  boxes {boxes_then} now {boxes_now}, before NMS {candidates_then} now {candidates_now}, \
         apart {:.2} px {:.4}  {outcome}",
        frame.stream,
        frame.trust.name(),
        frame.apart_px,
        frame.apart_score
    );
    if frame.outcome == Outcome::NotRun {
        text = format!("{} {number:>6}  {:7}  {outcome}", frame.stream, frame.trust.name());
    }
    for difference in frame.differences.iter().take(SHOWN) {
        text.push_str("\n    ");
        text.push_str(difference);
    }
    if frame.differences.len() > SHOWN {
        text.push_str(&format!("\n    and {} more", frame.differences.len() - SHOWN));
    }
    text
}

fn verdict(replayed: &Replay, terminal: &mut Terminal) -> Result<()> {
    let (recorded, now, tolerance) = (&replayed.recorded, &replayed.now, replayed.tolerance);
    terminal.say(format!("recorded by {} {}, {}", recorded.bundle, short(&recorded.sha256), recorded.backend));
    terminal.say(format!("run again by {} {}, {}", now.bundle, short(&now.sha256), now.backend));
    terminal.say(format!("the same within {} px and {} of score", tolerance.px, tolerance.score));
    terminal.say(format!(
        "{} frames: {} the same, {} differ, {} not run",
        replayed.frames.len(),
        replayed.same,
        replayed.differ,
        replayed.not_run
    ));
    if replayed.differ > 0 {
        return Err(Error::refused(format!(
            "{} of {} recorded answers differ from those of this engine",
            replayed.differ,
            replayed.same + replayed.differ
        ))
        .hint("a frame that the guard called a fault is expected to differ on a healthy engine"));
    }
    if replayed.same == 0 {
        return Err(Error::source_failed("found no frame with a picture, expected at least one to run again"));
    }
    Ok(())
}

fn load(typed: &ReplayArgs, bundle: &Bundle, floor: f32, terminal: &mut Terminal) -> Result<Box<dyn Engine>> {
    let cpu = CpuOptions { backend: typed.cpu_backend.parse()?, threads: typed.threads, emulate_half: false };
    if typed.cpu {
        return machine::load_on_cpu(bundle, floor, &cpu);
    }
    match machine::load(bundle, floor, &cpu, &typed.gpu.options()) {
        Err(error) if matches!(error.kind(), ErrorKind::MachineLacks | ErrorKind::Refused) => {
            if machine::is_for_cpu(bundle) {
                return Err(error);
            }
            terminal.warn(format!("on the CPU, because no GPU here runs this bundle: {}", error.message()));
            machine::load_on_cpu(bundle, floor, &cpu)
        }
        other => other,
    }
}

/// The bundle to run, and what keeps its file alive.
enum BundleFile {
    Given(PathBuf),
    Sample(SampleBundle),
}

impl BundleFile {
    fn path(&self) -> &Path {
        match self {
            BundleFile::Given(path) => path,
            BundleFile::Sample(sample) => sample.path(),
        }
    }

    /// As asked for; else the one in the zip; else the one that answered then, where it still lies or as the sample.
    fn find(typed: &ReplayArgs, recording: &Recording) -> Result<BundleFile> {
        if let Some(path) = &typed.engine {
            return Ok(BundleFile::Given(path.clone()));
        }
        if let Some(bytes) = recording.bundle()? {
            return Ok(BundleFile::Sample(SampleBundle::unpack_bytes("replay", &bytes)?));
        }
        let engine = &recording.report().engine;
        let sample = SampleBundle::unpack()?;
        for found in [BundleFile::Given(PathBuf::from(&engine.path)), BundleFile::Sample(sample)] {
            if Bundle::open(found.path()).is_ok_and(|bundle| bundle.id() == engine.sha256) {
                return Ok(found);
            }
        }
        Err(Error::usage(format!(
            "found no bundle {}, expected the one that answered in this incident",
            short(&engine.sha256)
        ))
        .at(recording.place().display())
        .hint("name a bundle with `--engine FILE`, or export the incident with `--with-bundle`"))
    }
}
