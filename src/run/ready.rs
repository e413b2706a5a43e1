//! From bundle to an engine that is believed: load, warm up, known answers.

use crate::bundle::Bundle;
use crate::bundle::golden::{Agreement, Prover};
use crate::detections::Thresholds;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, Picture};
use crate::run::Options;
use crate::run::host::{Host, Loader, Trouble};
use crate::run::known::KnownHere;
use crate::run::product;
use crate::run::source::EngineSource;
use crate::sinks::http::{Board, Phase};
use crate::sinks::row::EngineStamp;
use crate::units::{SizePx, milliseconds};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Runs before the first answer is used: caches fill, clocks rise, lazy work is done.
const WARMUP_RUNS: u32 = 2;
/// Loading takes no longer.
pub(super) const LOAD_LIMIT: Duration = Duration::from_secs(600);
/// A call before the usual time is known.
const FIRST_CALL_LIMIT: Duration = Duration::from_secs(120);
/// Least limit of a call in service.
const LEAST_CALL_LIMIT: Duration = Duration::from_secs(2);

/// An engine, warm and proved, with what proves it again.
pub(super) struct Ready {
    pub(super) bundle: Arc<Bundle>,
    pub(super) host: Host,
    pub(super) prover: Prover,
    /// How long a call may take in service.
    pub(super) call_limit: Duration,
    /// What one golden frame takes.
    pub(super) proof_cost: Duration,
    pub(super) proved_at: SystemTime,
    load_ms: f64,
    warm_up_ms: f64,
    proof_ms: f64,
}

/// What loading needs to know.
pub(super) struct Loading<'a> {
    pub(super) source: &'a Arc<dyn EngineSource>,
    pub(super) options: &'a Options,
    /// Called several times a second while this waits.
    pub(super) tick: &'a dyn Fn(),
    pub(super) device: usize,
    /// The prover of an engine of the same bundle on the same device, whose answers bind this one.
    pub(super) before: Option<&'a Prover>,
    /// The board that shows the phases: at the start, not beside a running engine.
    pub(super) show: Option<&'a Board>,
}

impl Loading<'_> {
    /// Loads the engine of `bundle`, warms it up and asks for the known answers.
    pub(super) fn ready(&self, bundle: Arc<Bundle>) -> Result<Ready> {
        let manifest = bundle.manifest();
        let since = Instant::now();
        let mut prover = Prover::new(&bundle)?;
        if let Some(before) = self.before {
            prover.inherit(before);
        }
        let tick = self.tick;
        let mut host = Host::start(self.loader(&bundle), LOAD_LIMIT, tick)?;
        let load_ms = milliseconds(since.elapsed());
        let mut known = self.options.service.state.as_deref().map(|state| {
            let device = self.source.device_label(self.device);
            let half = self.options.cpu.emulate_half.to_string();
            KnownHere::of(state, &bundle, &device, host.info(), &[("emulate_half", half)])
        });
        if let (Some(known), None) = (&mut known, self.before) {
            known.fill(&mut prover);
        }
        self.show(Phase::WarmingUp);
        let warming = Instant::now();
        warm_up(&mut host, manifest.input.size, FIRST_CALL_LIMIT, tick)?;
        let warm_up_ms = milliseconds(warming.elapsed());
        self.show(Phase::Proving);
        let mut ready = Ready {
            host,
            prover,
            call_limit: FIRST_CALL_LIMIT,
            proof_cost: Duration::ZERO,
            proved_at: SystemTime::now(),
            load_ms,
            warm_up_ms,
            proof_ms: 0.0,
            bundle,
        };
        let proving = Instant::now();
        let (_, slowest) = prove_all(&mut ready.host, &mut ready.prover, FIRST_CALL_LIMIT, tick, true).map_err(
            |error| match &known {
                Some(known) => at_start(known.explain(error), &ready.bundle),
                None => at_start(error, &ready.bundle),
            },
        )?;
        if let Some(known) = &known {
            known.keep(&ready.prover);
        }
        ready.proved_at = SystemTime::now();
        ready.proof_ms = milliseconds(proving.elapsed());
        let frames = u32::try_from(ready.prover.len()).unwrap_or(u32::MAX).max(1);
        ready.proof_cost = proving.elapsed() / frames;
        ready.call_limit = self.options.service.call_limit.unwrap_or((slowest * 10).max(LEAST_CALL_LIMIT));
        Ok(ready)
    }

    fn loader(&self, bundle: &Arc<Bundle>) -> Loader {
        let floor = product::lowest_score(self.options, bundle.path(), bundle.manifest());
        let (source, bundle, device) = (Arc::clone(self.source), Arc::clone(bundle), self.device);
        Box::new(move || source.load(&bundle, floor, device))
    }

    fn show(&self, phase: Phase) {
        if let Some(board) = self.show {
            board.set_phase(phase);
        }
    }
}

impl Ready {
    /// An engine that has been in service before.
    pub(super) fn again(bundle: Arc<Bundle>, host: Host, prover: Prover, call_limit: Duration) -> Self {
        let (proof_cost, proved_at) = (Duration::ZERO, SystemTime::now());
        Ready { bundle, host, prover, call_limit, proof_cost, proved_at, load_ms: 0.0, warm_up_ms: 0.0, proof_ms: 0.0 }
    }

    /// The line for people.
    pub(super) fn line(&self, since: Instant) -> String {
        let (manifest, info) = (self.bundle.manifest(), self.host.info());
        format!(
            "engine {}: {}, {} classes, input {}, {}; loaded in {:.0} ms, warm in {:.0} ms, proved on {} frames in {:.0} ms, ready after {:.0} ms",
            manifest.name,
            info.backend,
            manifest.classes.len(),
            manifest.input.size,
            threads(info.threads),
            self.load_ms,
            self.warm_up_ms,
            self.prover.len(),
            self.proof_ms,
            milliseconds(since.elapsed()),
        )
    }

    /// What results say of it.
    pub(super) fn stamp(&self) -> EngineStamp {
        EngineStamp {
            bundle: self.bundle.manifest().name.clone(),
            sha256: self.bundle.id().to_owned(),
            backend: self.host.info().backend.clone(),
            classes: Arc::clone(&self.host.info().classes),
            device: None,
            product: None,
            label: None,
        }
    }
}

fn threads(count: u32) -> String {
    match count {
        0 => "on the GPU".into(),
        1 => "1 thread".into(),
        _ => format!("{count} threads"),
    }
}

fn at_start(error: Error, bundle: &Bundle) -> Error {
    let path = bundle.path().display();
    let place = error.place().map_or_else(|| path.to_string(), |inner| format!("{path}, {inner}"));
    error.moved_to(place).hint(
        "the engine on this machine does not answer as it did when the bundle was built: do not use it; \
         compare with `--cpu-backend rten`, or build the bundle again on this machine",
    )
}

/// Asks for all known answers; the largest difference and the slowest call.
pub(super) fn prove_all(
    host: &mut Host,
    prover: &mut Prover,
    limit: Duration,
    tick: &dyn Fn(),
    learn: bool,
) -> Result<(Agreement, Duration)> {
    worst_of(prover.len(), |index| prove_one(host, prover, index, limit, tick, learn))
}

/// Proves so many times; the largest difference and the slowest call.
fn worst_of(
    times: usize,
    mut prove: impl FnMut(usize) -> Result<(Agreement, Duration)>,
) -> Result<(Agreement, Duration)> {
    let mut worst = Agreement::default();
    let mut slowest = Duration::ZERO;
    for time in 0..times {
        let (agreement, took) = prove(time)?;
        worst = worst.or_worse(agreement);
        slowest = slowest.max(took);
    }
    Ok((worst, slowest))
}

/// Asks every lane for one known answer; what the comparisons showed and how long the slowest call took. The other slots of a
/// batch get the known pictures that follow it: a lane or a slot that fails is seen, whichever it is.
pub(super) fn prove_one(
    host: &mut Host,
    prover: &mut Prover,
    index: usize,
    limit: Duration,
    tick: &dyn Fn(),
    learn: bool,
) -> Result<(Agreement, Duration)> {
    worst_of(host.lanes(), |_| prove_next_lane(host, prover, index, limit, tick, learn))
}

/// The host gives calls with a floor of their own to its lanes in turn.
fn prove_next_lane(
    host: &mut Host,
    prover: &mut Prover,
    index: usize,
    limit: Duration,
    tick: &dyn Fn(),
    learn: bool,
) -> Result<(Agreement, Duration)> {
    let of_slot = |slot: usize| (index + slot) % prover.len().max(1);
    let asked: Vec<usize> = (0..host.batch()).map(of_slot).collect();
    let Some(frames) = asked.iter().map(|&known| prover.frame(known)).collect() else {
        return Err(Error::unexpected(format!("there is no golden frame {index}")));
    };
    let since = Instant::now();
    let failed = |trouble| error_of(trouble).at("golden frame");
    let answers = host.call_all(frames, Some(prover.score_floor()), limit, tick).map_err(failed)?;
    let took = since.elapsed();
    let layout = host.info().layout.clone();
    let mut worst = Agreement::default();
    for (slot, (known, answer)) in asked.into_iter().zip(answers).enumerate() {
        let inference = answer.map_err(failed)?;
        let compared = if learn {
            prover.compare_and_learn(known, &inference, &layout)
        } else {
            prover.compare(known, &inference, &layout)
        };
        host.recycle(inference);
        let agreement = compared.map_err(|error| match slot {
            0 => error,
            _ => Error::new(error.kind(), format!("slot {slot} of the batch: {}", error.message())),
        })?;
        worst = worst.or_worse(agreement);
    }
    Ok((worst, took))
}

/// A stuck call as an error.
pub(super) fn error_of(trouble: Trouble) -> Error {
    match trouble {
        Trouble::Failed(error) => error,
        Trouble::Stuck(limit) => {
            Error::new(ErrorKind::TimeLimit, format!("the engine has not answered within {:.1} s", limit.as_secs_f64()))
        }
        Trouble::GivenUp => Error::unexpected("the engine was given up"),
    }
}

/// Runs a grey picture through the engine; the answers are not used.
pub(super) fn warm_up(host: &mut Host, size: SizePx, limit: Duration, tick: &dyn Fn()) -> Result<()> {
    let picture = Picture::rgb(size, vec![114; size.pixels() * 3]);
    let frame = Arc::new(Frame::new("warmup", 0, picture));
    for _ in 0..WARMUP_RUNS {
        let answer = host.call(Arc::clone(&frame), None, limit, tick).map_err(error_of)?;
        host.recycle(answer);
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
