//! The board at one moment, as the pages and `/healthz` get it.

use super::board::{Board, DeviceView, IncidentNote, Latest, Phase, Recent, Slot, Totals};
use super::products::Products;
use super::reload::ReloadView;
use crate::decision::Decision;
use crate::engine::MemoryFigures;
use crate::guard::{Reason, Standing, Trust};
use crate::sinks::row::write_time;
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{BoxPx, float64, milliseconds};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// After which silence something counts as failed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A continuous stream without an inferred frame for longer than this is red in `/healthz`.
    pub stream_silent_after: Duration,
    /// An engine's thread that has not moved for longer than this is not answering (`/livez`, `/healthz`).
    pub engine_stuck_after: Duration,
    /// The same until the run is ready for the first time: loading and warming up may take longer.
    pub start_stuck_after: Duration,
    /// Pictures and decisions older than this are not shown as present.
    pub stale_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            stream_silent_after: Duration::from_secs(5),
            engine_stuck_after: Duration::from_secs(10),
            start_stuck_after: Duration::from_secs(120),
            stale_after: Duration::from_secs(2),
        }
    }
}

/// Everything the pages show.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot {
    at: Option<String>,
    version: &'static str,
    uptime_s: f64,
    pub(super) phase: Phase,
    pub(super) ready: bool,
    /// All engines as one.
    pub(super) engine: EngineView,
    /// One a bundle.
    pub(super) engines: Vec<EngineView>,
    /// Of all engines; empty where there is one device.
    devices: Vec<DeviceView>,
    pub(super) products: ProductsView,
    pub(super) streams: Vec<StreamView>,
    /// The last incidents, newest first.
    incidents: Vec<IncidentNote>,
}

/// The products by id; none without `[[product]]`.
#[derive(Debug, Default, Serialize)]
pub(super) struct ProductsView {
    active: Option<Arc<str>>,
    wanted: Option<Arc<str>>,
    known: Vec<Arc<str>>,
    /// Whether this run takes commands, so that a page may offer to change over.
    pub(super) commands: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct EngineView {
    /// What pages and metrics call it.
    label: Option<String>,
    bundle: Option<String>,
    sha256: Option<String>,
    backend: Option<String>,
    phase: Phase,
    pub(super) ready: bool,
    pub(super) answering: bool,
    pub(super) heartbeat_age_ms: u64,
    proved_at: Option<String>,
    pub(super) memory_bytes: MemoryFigures,
    process_resident_bytes: Option<u64>,
    /// Mean number of frames that shared a run, since the start; `None` before the first.
    frames_per_run: Option<f64>,
    /// The streams that it answers.
    streams: Vec<String>,
    /// Empty where there is one device.
    devices: Vec<DeviceView>,
    reload: ReloadView,
}

/// How a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StreamState {
    /// No frame yet.
    Waiting,
    /// Frames are being answered.
    Live,
    /// Nothing new, and more was to be expected.
    Silent,
    /// The source is lost.
    Lost,
}

/// The one word of the operator's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    Pass,
    Reject,
    NotInspected,
    /// No rule: answers are trusted.
    Running,
    /// No rule: the guard has doubts.
    Check,
}

#[derive(Debug, Serialize)]
pub(super) struct StreamView {
    pub(super) name: String,
    pub(super) state: StreamState,
    pub(super) healthy: bool,
    pub(super) word: Word,
    since_s: f64,
    /// What stands in the way, as a reason's name or `starting`, `stopping`, `engine_stuck`, `camera_lost`, `silent`.
    pub(super) because: Option<&'static str>,
    lost: Option<String>,
    pub(super) trust: Option<Trust>,
    reasons: Vec<Reason>,
    observed: Vec<Reason>,
    guard: Standing,
    decision: Option<Decision>,
    part: Option<String>,
    frame: u64,
    captured_at: Option<String>,
    pub(super) frame_age_ms: Option<f64>,
    pub(super) inferred_age_ms: Option<f64>,
    last_reject_s: Option<f64>,
    fps: f64,
    age_p50_ms: f64,
    age_p99_ms: f64,
    timings_ms: TimingsView,
    boxes_before_nms: u64,
    detections: Vec<DetectionView>,
    pub(super) picture: bool,
    totals: Totals,
    frames_dropped: u64,
}

#[derive(Debug, Serialize)]
struct TimingsView {
    preprocess: f64,
    transfer: f64,
    inference: f64,
    postprocess: f64,
}

#[derive(Debug, Serialize)]
struct DetectionView {
    class: String,
    score: f32,
    #[serde(rename = "box")]
    edges: BoxPx,
}

/// Boxes listed for one stream; the picture shows them all.
const BOXES_LISTED: usize = 12;

impl Snapshot {
    pub(super) fn take(board: &Board, telemetry: &Telemetry, limits: &Limits) -> Self {
        let now = Instant::now();
        let now_ms = board.now_ms();
        let mut engines: Vec<EngineView> =
            board.by_engine().map(|own| EngineView::take(&own, telemetry, limits)).collect();
        let streams = board.slots.iter().map(|slot| {
            let own = &engines[slot.engine];
            let look = Look { now, now_ms, phase: own.phase, answering: own.answering, limits };
            let latest = slot.lock();
            let mut view = look.stream(slot, &latest);
            drop(latest);
            view.frames_dropped = telemetry.total(Metric::FramesDropped, Labels::stream(&view.name));
            view
        });
        let streams = streams.collect();
        let phase = board.phase();
        let mut engine = match &engines[..] {
            [only] => only.clone(),
            _ => EngineView::take(board, telemetry, limits),
        };
        let ready = phase == Phase::Ready && engine.answering && engines.iter().all(|engine| engine.ready);
        engine.ready = ready;
        if let [only] = &mut engines[..] {
            only.ready = ready;
        }
        Snapshot {
            at: time_text(Some(SystemTime::now())),
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: tenth(board.started.elapsed().as_secs_f64()),
            phase,
            ready,
            devices: engine.devices.clone(),
            engine,
            engines,
            products: board.change_products(|products| ProductsView::of(products)),
            streams,
            incidents: board.incidents(),
        }
    }

    /// Whether everything is as it should be: `/healthz`.
    pub(super) fn healthy(&self) -> bool {
        self.ready && self.streams.iter().all(|stream| stream.healthy)
    }
}

impl ProductsView {
    fn of(products: &Products) -> Self {
        ProductsView {
            active: products.active.clone(),
            wanted: products.wanted.clone(),
            known: products.known.iter().map(|place| Arc::clone(&place.id)).collect(),
            commands: false,
        }
    }
}

impl EngineView {
    /// One engine, or with the board of a whole run all of them: then what results say is that of the newest one.
    fn take(board: &Board, telemetry: &Telemetry, limits: &Limits) -> Self {
        let phase = board.phase();
        let heartbeat_age_ms = board.heartbeat_age_ms();
        let stuck_after = match phase {
            Phase::Ready | Phase::Fault | Phase::ChangingOver | Phase::Reloading => limits.engine_stuck_after,
            _ => limits.start_stuck_after,
        };
        let answering = Duration::from_millis(heartbeat_age_ms) <= stuck_after;
        let mut engine = EngineView {
            label: board.engine_name(),
            bundle: None,
            sha256: None,
            backend: None,
            phase,
            ready: false,
            answering,
            heartbeat_age_ms,
            proved_at: None,
            memory_bytes: MemoryFigures::default(),
            process_resident_bytes: crate::telemetry::resident_bytes(),
            frames_per_run: None,
            streams: board.own_slots().map(|slot| slot.setup.name.to_string()).collect(),
            devices: board.devices(),
            reload: board.reloads().into_iter().next().unwrap_or_default(),
        };
        let mut fault = false;
        let mut newest = None;
        for slot in board.own_slots() {
            let latest = slot.lock();
            if latest.answered > newest {
                newest = latest.answered;
                engine.show(&latest);
            }
            fault |= latest.trust == Some(Trust::Fault) && latest.reasons.iter().any(|reason| reason.is_engine_fault());
        }
        engine.ready = phase == Phase::Ready && answering && !fault;
        let labels = Labels::engine(engine.label());
        let batches = telemetry.total(Metric::Batches, labels);
        if batches > 0 {
            let frames = telemetry.total(Metric::BatchFrames, labels);
            engine.frames_per_run = Some(tenth(float64(frames) / float64(batches)));
        }
        engine
    }

    /// What metrics call it.
    pub(super) fn label(&self) -> &str {
        self.label.as_deref().or(self.bundle.as_deref()).unwrap_or("none")
    }

    fn show(&mut self, latest: &Latest) {
        if let Some(stamp) = &latest.engine {
            self.label = Some(stamp.label().to_owned());
            self.bundle = Some(stamp.bundle.clone());
            self.sha256 = Some(stamp.sha256.clone());
            self.backend = Some(stamp.backend.clone());
        }
        self.proved_at = time_text(latest.proved_at);
        self.memory_bytes = latest.memory;
    }
}

struct Look<'a> {
    now: Instant,
    now_ms: u64,
    phase: Phase,
    answering: bool,
    limits: &'a Limits,
}

impl Look<'_> {
    fn stream(&self, slot: &Slot, latest: &Latest) -> StreamView {
        let state = self.state(slot, latest);
        let (word, because, since) = self.word(slot, latest, state);
        let inferred_age_ms = latest.inferred.map(|at| self.ms_since(at));
        let limit_ms = milliseconds(self.limits.stream_silent_after);
        let in_time = !slot.setup.continuous || inferred_age_ms.is_some_and(|age_ms| age_ms <= limit_ms);
        let shown = state == StreamState::Live;
        let (age_p50_ms, age_p99_ms, fps) = latest.ages.figures(self.now);
        StreamView {
            name: slot.setup.name.to_string(),
            state,
            healthy: in_time && state != StreamState::Lost && latest.trust != Some(Trust::Fault),
            word,
            since_s: since.map_or(0.0, |at| tenth(self.ms_since(at) / 1e3)),
            because,
            lost: latest.lost.as_ref().map(|(_, why)| why.clone()),
            trust: latest.trust,
            reasons: latest.reasons.clone(),
            observed: latest.observed.clone(),
            guard: latest.standing,
            decision: latest.decision,
            part: latest.decision_part.as_deref().map(str::to_owned),
            frame: latest.number,
            captured_at: time_text(latest.captured_at),
            frame_age_ms: self.frame_age_ms(slot, latest),
            inferred_age_ms,
            last_reject_s: latest.last_reject.map(|at| tenth(self.ms_since(at) / 1e3)),
            fps: tenth(fps),
            age_p50_ms: tenth(age_p50_ms),
            age_p99_ms: tenth(age_p99_ms),
            timings_ms: TimingsView {
                preprocess: hundredth(latest.timings.preprocess_ms),
                transfer: hundredth(latest.timings.transfer_ms),
                inference: hundredth(latest.timings.inference_ms),
                postprocess: hundredth(latest.timings.postprocess_ms),
            },
            boxes_before_nms: latest.boxes_before_nms,
            detections: if shown { boxes(latest) } else { Vec::new() },
            picture: shown && latest.frame.is_some(),
            totals: latest.totals,
            frames_dropped: 0,
        }
    }

    fn state(&self, slot: &Slot, latest: &Latest) -> StreamState {
        if latest.lost.is_some() || (latest.reasons.contains(&Reason::NoPicture) && slot.setup.continuous) {
            return StreamState::Lost;
        }
        match latest.answered {
            None => StreamState::Waiting,
            Some(at) if slot.setup.continuous && self.now - at > self.limits.stale_after => StreamState::Silent,
            Some(_) => StreamState::Live,
        }
    }

    /// The word, what stands in the way, and since when.
    fn word(&self, slot: &Slot, latest: &Latest, state: StreamState) -> (Word, Option<&'static str>, Option<Instant>) {
        let obstacle = match (self.phase, state) {
            (Phase::Starting | Phase::WarmingUp | Phase::Proving, _) => Some(("starting", None)),
            (Phase::Stopping, _) => Some(("stopping", latest.answered)),
            _ if !self.answering => Some(("engine_stuck", latest.answered)),
            (_, StreamState::Lost) => {
                Some(("camera_lost", latest.lost.as_ref().map(|(at, _)| *at).or(latest.inferred)))
            }
            (_, StreamState::Silent) => Some(("silent", latest.answered)),
            (_, StreamState::Waiting) => Some(("starting", None)),
            (Phase::Fault, _) => Some(("engine_error", latest.answered)),
            (Phase::Reloading, _) => Some(("reloading", latest.answered)),
            (Phase::ChangingOver, _) => Some((Reason::Changeover.name(), latest.answered)),
            _ => None,
        };
        if let Some((because, since)) = obstacle {
            return (Word::NotInspected, Some(because), since);
        }
        let because = latest.reasons.first().map(|reason| reason.name());
        if latest.trust == Some(Trust::Fault) {
            return (Word::NotInspected, because, latest.trust_since);
        }
        match latest.decision {
            Some(Decision::Pass) => (Word::Pass, because, latest.decision_since),
            Some(Decision::Reject) => (Word::Reject, because, latest.decision_since),
            Some(Decision::NotInspected) => (Word::NotInspected, because.or(Some("late")), latest.decision_since),
            None if slot.has_rule() => (Word::NotInspected, Some("no_part"), latest.trust_since),
            None if latest.trust == Some(Trust::Suspect) => (Word::Check, because, latest.trust_since),
            None => (Word::Running, None, latest.trust_since),
        }
    }

    fn frame_age_ms(&self, slot: &Slot, latest: &Latest) -> Option<f64> {
        let arrived = slot.arrived.load(std::sync::atomic::Ordering::Relaxed);
        let by_count =
            (arrived > 0).then(|| milliseconds(Duration::from_millis(self.now_ms.saturating_sub(arrived - 1))));
        let by_row = latest.inferred.map(|at| self.ms_since(at));
        match (by_count, by_row) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn ms_since(&self, at: Instant) -> f64 {
        tenth(milliseconds(self.now.saturating_duration_since(at)))
    }
}

impl Recent {
    /// Age p50 and p99 in ms, and results a second.
    fn figures(&self, now: Instant) -> (f64, f64, f64) {
        let mut ages = [0.0; Recent::KEPT];
        let mut found = 0;
        let mut first = None;
        for (age_ms, at) in &self.values {
            let Some(at) = at else { continue };
            if now.saturating_duration_since(*at) < Duration::from_secs(10) {
                ages[found] = *age_ms;
                found += 1;
                first = Some(first.map_or(*at, |first: Instant| first.min(*at)));
            }
        }
        let ages = &mut ages[..found];
        ages.sort_by(f64::total_cmp);
        let at = |share: usize| ages.get((found * share / 100).min(found.saturating_sub(1))).copied().unwrap_or(0.0);
        let seconds = first.map_or(0.0, |first| now.saturating_duration_since(first).as_secs_f64());
        let fps = if seconds > 0.05 { crate::units::length(found) / seconds } else { 0.0 };
        (at(50), at(99), fps)
    }
}

fn boxes(latest: &Latest) -> Vec<DetectionView> {
    let class =
        |class_id| latest.engine.as_ref().map_or_else(String::new, |stamp| stamp.class_name(class_id).to_owned());
    let view = |detection: &crate::detections::Detection| DetectionView {
        class: class(detection.class_id),
        score: detection.score,
        edges: detection.edges,
    };
    latest.detections.iter().take(BOXES_LISTED).map(view).collect()
}

pub(super) fn time_text(time: Option<SystemTime>) -> Option<String> {
    let mut text = Vec::with_capacity(24);
    (write_time(time?, &mut text)).then(|| String::from_utf8_lossy(&text).into_owned())
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
