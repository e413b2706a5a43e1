//! From bundle to an engine that is believed: load, warm up, known answers.

use crate::bundle::Bundle;
use crate::bundle::golden::{self, Proof};
use crate::detections::Thresholds;
use crate::engine::cpu;
use crate::engine::{Engine, Inference};
use crate::error::{Error, Result};
use crate::frame::{Frame, Picture};
use crate::run::{Options, Say};
use crate::sinks::http::{Board, Phase};
use crate::units::{SizePx, milliseconds};
use std::time::Instant;

/// Runs before the first answer is used: caches fill, clocks rise, lazy work is done.
const WARMUP_RUNS: u32 = 2;

/// A bundle with its checks done; the engine is not loaded yet.
pub(super) struct Loaded {
    pub(super) bundle: Bundle,
    since: Instant,
}

impl Loaded {
    /// Opens the bundle and checks everything that needs no engine.
    pub(super) fn load(options: &Options) -> Result<Self> {
        let since = Instant::now();
        let bundle = Bundle::open(&options.bundle)?;
        let target = &bundle.manifest().target;
        if target.flavour != "cpu" {
            return Err(Error::machine_lacks(format!(
                "the bundle was built for `{}` ({}), expected a bundle for `cpu`",
                target.platform, target.flavour
            ))
            .at(options.bundle.display())
            .hint("build one for this machine: `edge-build MODEL.onnx --target cpu`"));
        }
        Ok(Loaded { bundle, since })
    }

    /// Loads the engine, warms it up and asks for the known answers.
    pub(super) fn prove(&self, options: &Options, board: &Board, say: Say<'_>) -> Result<(Box<dyn Engine>, Proof)> {
        let manifest = self.bundle.manifest();
        let reported = reported_thresholds(options, &manifest.thresholds);
        let judged_floor = manifest.thresholds.lowest_score();
        let floor = reported.as_ref().map_or(judged_floor, |reported| reported.lowest_score().min(judged_floor));
        let loading = Instant::now();
        let mut engine = cpu::load(
            &self.bundle.model()?,
            &manifest.input,
            &manifest.layout,
            manifest.classes.clone().into(),
            floor,
            &options.cpu,
        )
        .map_err(|error| error.at(options.bundle.display()))?;
        let load_ms = milliseconds(loading.elapsed());
        board.set_phase(Phase::WarmingUp);
        let warming = Instant::now();
        warm_up(engine.as_mut(), manifest.input.size)?;
        let warm_up_ms = milliseconds(warming.elapsed());
        board.set_phase(Phase::Proving);
        let proving = Instant::now();
        engine.set_score_floor(manifest.golden.score_floor.min(floor));
        let proof = golden::prove(engine.as_mut(), &self.bundle)?;
        engine.set_score_floor(floor);
        say(&format!(
            "engine {}: {}, {} classes, input {}, {}; loaded in {load_ms:.0} ms, warm in {warm_up_ms:.0} ms, proved on {} frames in {:.0} ms, ready after {:.0} ms",
            manifest.name,
            engine.info().backend,
            manifest.classes.len(),
            manifest.input.size,
            threads(engine.info().threads),
            proof.frames,
            milliseconds(proving.elapsed()),
            milliseconds(self.since.elapsed()),
        ));
        Ok((engine, proof))
    }
}

fn threads(count: u32) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

/// Runs a grey picture through the engine; the answers are not used.
fn warm_up(engine: &mut dyn Engine, size: SizePx) -> Result<()> {
    let picture = Picture::rgb(size, vec![114; size.pixels() * 3]);
    let frame = Frame {
        stream: "warmup".into(),
        number: 0,
        captured_at: None,
        arrived: Instant::now(),
        source: None,
        part: None,
        picture,
    };
    let mut answers: Vec<Inference> = Vec::new();
    for _ in 0..WARMUP_RUNS {
        answers.clear();
        engine.infer(&[&frame], &mut answers)?;
    }
    Ok(())
}

/// The thresholds of the report when flags ask for other ones than the manifest's; `--conf` and `--iou` override all.
pub(super) fn reported_thresholds(options: &Options, judged: &Thresholds) -> Option<Thresholds> {
    if options.conf.is_none() && options.iou.is_none() {
        return None;
    }
    let mut reported = judged.clone();
    if let Some(conf) = options.conf {
        reported.score = conf;
        reported.score_by_class.clear();
    }
    if let Some(iou) = options.iou {
        reported.iou = iou;
    }
    (reported != *judged).then_some(reported)
}
