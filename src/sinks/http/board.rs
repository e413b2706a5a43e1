//! The board: what the run publishes and the pages read. Each stream has one slot; writing to it copies a few hundred bytes
//! into buffers that are already there, under a lock that readers hold no longer than such a copy takes.

use super::products::Products;
use super::reload::ReloadView;
use crate::decision::Decision;
use crate::detections::Detection;
use crate::engine::{EngineTimings, MemoryFigures};
use crate::error::Result;
use crate::frame::{Frame, StreamName};
use crate::guard::{Reason, Standing, Trust};
use crate::sinks::Sink;
use crate::sinks::row::{EngineStamp, Row};
use crate::units::index;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

/// Where the run stands. Only [`Phase::Ready`] makes `/readyz` green.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The bundle is being opened and checked.
    Starting,
    /// The engine runs without its answers being used.
    WarmingUp,
    /// The known answers are being tried.
    Proving,
    /// Warm-up and proof are done.
    Ready,
    /// The engine is not to be believed; recovery is under way.
    Fault,
    /// Another product's engine is being put in and proved.
    ChangingOver,
    /// The engine is gone while another bundle is loaded in its place: there is no room for both.
    Reloading,
    /// The run is ending.
    Stopping,
}

const PHASES: [Phase; 8] = [
    Phase::Starting,
    Phase::WarmingUp,
    Phase::Proving,
    Phase::Ready,
    Phase::Fault,
    Phase::ChangingOver,
    Phase::Reloading,
    Phase::Stopping,
];

/// One stream as the pages see it; fixed for the whole run.
#[derive(Debug, Clone)]
pub struct StreamSetup {
    /// Its name.
    pub name: StreamName,
    /// Frames come all the time: silence is a fault. `false` for streams that only answer triggers.
    pub continuous: bool,
    /// The recipe has a decision rule for it, at the start of the run.
    pub has_rule: bool,
}

/// What a stream shows; buffers are reused from row to row.
#[derive(Debug, Default)]
pub(super) struct Latest {
    pub(super) answered: Option<Instant>,
    /// When an engine last gave an answer, whatever the guard said of it.
    pub(super) inferred: Option<Instant>,
    pub(super) number: u64,
    pub(super) captured_at: Option<SystemTime>,
    pub(super) trust: Option<Trust>,
    pub(super) trust_since: Option<Instant>,
    pub(super) reasons: Vec<Reason>,
    pub(super) observed: Vec<Reason>,
    pub(super) standing: Standing,
    pub(super) decision: Option<Decision>,
    pub(super) decision_part: Option<Arc<str>>,
    pub(super) decision_since: Option<Instant>,
    pub(super) last_reject: Option<Instant>,
    pub(super) proved_at: Option<SystemTime>,
    pub(super) detections: Vec<Detection>,
    pub(super) boxes_before_nms: u64,
    pub(super) timings: EngineTimings,
    pub(super) memory: MemoryFigures,
    pub(super) engine: Option<Arc<EngineStamp>>,
    pub(super) frame: Option<Arc<Frame>>,
    pub(super) totals: Totals,
    pub(super) ages: Recent,
    pub(super) lost: Option<(Instant, String)>,
}

/// Counts since the start of the run.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Totals {
    pub(super) trusted: u64,
    pub(super) suspect: u64,
    pub(super) fault: u64,
    pub(super) pass: u64,
    pub(super) reject: u64,
    pub(super) not_inspected: u64,
}

/// The ages and times of the last results.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) values: [(f64, Option<Instant>); Recent::KEPT],
    pub(super) next: usize,
}

impl Recent {
    pub(super) const KEPT: usize = 128;

    fn push(&mut self, age_ms: f64, now: Instant) {
        self.values[self.next] = (age_ms, Some(now));
        self.next = (self.next + 1) % Self::KEPT;
    }
}

impl Default for Recent {
    fn default() -> Self {
        Recent { values: [(0.0, None); Self::KEPT], next: 0 }
    }
}

pub(super) struct Slot {
    pub(super) setup: StreamSetup,
    /// Number of the engine that answers it.
    pub(super) engine: usize,
    /// Milliseconds after the start of the board, plus 1; 0 is never.
    pub(super) arrived: AtomicU64,
    has_rule: AtomicBool,
    latest: Mutex<Latest>,
}

impl Slot {
    pub(super) fn has_rule(&self) -> bool {
        self.has_rule.load(Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the pages list of one incident.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IncidentNote {
    /// Its name.
    pub id: String,
    /// When it was seen, RFC 3339.
    pub at: String,
    /// The streams that it is about.
    pub streams: Vec<String>,
    /// What was seen first: a check of the guard, or `self_test`, `slow`, `device_lost`, `answer`.
    pub reason: String,
    /// The same for people.
    pub what: String,
    /// Steps of the recovery ladder; the last one worked when `recovered_after_ms` is there.
    pub steps: Vec<String>,
    /// How long it lasted; `None`: it lasts.
    pub recovered_after_ms: Option<f64>,
    /// The run ended with it.
    pub ended: bool,
    /// Its details lie on the disk.
    pub kept: bool,
}

/// What the run publishes for pages and health checks; shared by `Arc`. [`Board::of_engine`] is the same board as one of several
/// engines sees it.
pub struct Board {
    shown: Arc<Shown>,
    /// Whose phase and heartbeat this one says; `None`: all engines'.
    engine: Option<usize>,
}

impl std::ops::Deref for Board {
    type Target = Shown;

    fn deref(&self) -> &Shown {
        &self.shown
    }
}

/// What all views of a board share.
pub struct Shown {
    pub(super) slots: Vec<Slot>,
    incidents: Mutex<VecDeque<IncidentNote>>,
    pub(super) incident_folder: OnceLock<PathBuf>,
    pub(super) started: Instant,
    engines: Vec<EngineSigns>,
    products: Mutex<Products>,
}

/// Where one engine stands, and when its thread last moved.
#[derive(Debug, Default)]
struct EngineSigns {
    heartbeat: AtomicU64,
    phase: AtomicU8,
    /// What pages and metrics call it; empty until it is known.
    label: Mutex<String>,
    devices: Mutex<Vec<DeviceView>>,
    reload: Mutex<ReloadView>,
}

impl EngineSigns {
    /// The heartbeat of an engine whose work is done.
    const RETIRED: u64 = u64::MAX;

    fn phase(&self) -> Phase {
        PHASES.get(index(u32::from(self.phase.load(Relaxed)))).copied().unwrap_or(Phase::Starting)
    }

    fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heartbeat.load(Relaxed))
    }
}

/// One device as the pages show it, where there are several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceView {
    device: String,
    /// `serving`, `standby`, `loading` or `down`.
    role: &'static str,
    why: Option<String>,
    proved_at: Option<String>,
    used_bytes: Option<u64>,
    total_bytes: Option<u64>,
    own_bytes: Option<u64>,
    temperature_celsius: Option<u32>,
}

/// Memory and heat of a device, as far as its driver tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceState {
    /// Memory in use by all programs, bytes.
    pub used_bytes: Option<u64>,
    /// Memory in all, bytes.
    pub total_bytes: Option<u64>,
    /// What this process holds of it, bytes.
    pub own_bytes: Option<u64>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<u32>,
}

impl DeviceView {
    /// The device `device` in `role` (`serving`, `standby`, `loading`, `down`), `why` it is down, and when it was last proved.
    pub fn new(
        device: String,
        role: &'static str,
        why: Option<String>,
        proved_at: Option<SystemTime>,
        state: DeviceState,
    ) -> Self {
        DeviceView {
            device,
            role,
            why,
            proved_at: super::snapshot::time_text(proved_at),
            used_bytes: state.used_bytes,
            total_bytes: state.total_bytes,
            own_bytes: state.own_bytes,
            temperature_celsius: state.temperature_celsius,
        }
    }
}

impl Board {
    /// Incidents listed; older ones are on the disk.
    pub const INCIDENTS: usize = 20;

    /// A board for these streams, in the phase [`Phase::Starting`].
    pub fn new(streams: Vec<StreamSetup>) -> Arc<Self> {
        let engines = vec![0; streams.len()];
        Self::of_several(streams, &engines)
    }

    /// As [`Board::new`]; the stream at each place is answered by the engine whose number stands there.
    pub fn of_several(streams: Vec<StreamSetup>, engine_of: &[usize]) -> Arc<Self> {
        let engines = engine_of.iter().max().map_or(1, |most| most + 1);
        let slot = |(place, setup): (usize, StreamSetup)| Slot {
            has_rule: AtomicBool::new(setup.has_rule),
            setup,
            engine: engine_of.get(place).copied().unwrap_or(0),
            arrived: AtomicU64::new(0),
            latest: Mutex::default(),
        };
        let shown = Arc::new(Shown {
            slots: streams.into_iter().enumerate().map(slot).collect(),
            incidents: Mutex::default(),
            incident_folder: OnceLock::new(),
            started: Instant::now(),
            engines: (0..engines).map(|_| EngineSigns::default()).collect(),
            products: Mutex::default(),
        });
        Arc::new(Board { shown, engine: None })
    }

    /// The same board for the engine with this number: phase and heartbeat are those of that engine.
    pub fn of_engine(&self, engine: usize) -> Arc<Self> {
        Arc::new(Board { shown: Arc::clone(&self.shown), engine: Some(engine) })
    }

    fn signs(&self) -> &[EngineSigns] {
        let all = &self.shown.engines[..];
        match self.engine {
            Some(engine) => all.get(engine..=engine).unwrap_or(all),
            None => all,
        }
    }

    /// Changes what is known of the products.
    pub fn change_products<R>(&self, change: impl FnOnce(&mut Products) -> R) -> R {
        change(&mut self.products.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there is a decision rule from now on, for every stream of the engine.
    pub fn set_has_rule(&self, has_rule: bool) {
        self.own_slots().for_each(|slot| slot.has_rule.store(has_rule, Relaxed));
    }

    /// The engine's thread moves. To be called in every turn of its loop, also when there is nothing to do, at least once
    /// a second.
    pub fn heartbeat(&self) {
        let now_ms = self.now_ms();
        self.signs().iter().for_each(|signs| signs.heartbeat.store(now_ms, Relaxed));
    }

    /// The engine has no more work: it moves no more and is not missed.
    pub fn retire(&self) {
        self.signs().iter().for_each(|signs| signs.heartbeat.store(EngineSigns::RETIRED, Relaxed));
    }

    /// Milliseconds since the engine's thread last moved (since the start, before it first did); of several the longest.
    pub fn heartbeat_age_ms(&self) -> u64 {
        let now_ms = self.now_ms();
        self.signs().iter().map(|signs| signs.age_ms(now_ms)).max().unwrap_or(0)
    }

    /// Says where the run stands.
    pub fn set_phase(&self, phase: Phase) {
        let position = PHASES.iter().position(|known| *known == phase).unwrap_or(0);
        let position = u8::try_from(position).unwrap_or(0);
        self.signs().iter().for_each(|signs| signs.phase.store(position, Relaxed));
    }

    /// Where the run stands: a fault of any engine is one of the run, and it is ready when all are.
    pub fn phase(&self) -> Phase {
        let phases = || self.signs().iter().map(EngineSigns::phase);
        let fault = phases().find(|phase| *phase == Phase::Fault);
        fault.or_else(|| phases().find(|phase| *phase != Phase::Ready)).unwrap_or(Phase::Ready)
    }

    /// Which device serves this engine and what stands by; empty where there is one device.
    pub fn show_devices(&self, devices: Vec<DeviceView>) {
        let signs = self.signs().iter().take(1);
        signs.for_each(|signs| signs.devices.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&devices));
    }

    /// The devices of this engine; of a whole run those of all engines, one after the other.
    pub(super) fn devices(&self) -> Vec<DeviceView> {
        let of = |signs: &EngineSigns| signs.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.signs().iter().flat_map(of).collect()
    }

    /// Changes what is known of this engine's reloads.
    pub fn change_reload(&self, change: impl FnOnce(&mut ReloadView)) {
        if let Some(signs) = self.signs().first() {
            change(&mut signs.reload.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The reloads of this engine; of a whole run one of each engine.
    pub(super) fn reloads(&self) -> Vec<ReloadView> {
        let of = |signs: &EngineSigns| signs.reload.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.signs().iter().map(of).collect()
    }

    /// What pages and metrics call this engine, as long as no result has said it.
    pub fn name_engine(&self, label: &str) {
        let signs = self.signs().iter().take(1);
        signs.for_each(|signs| label.clone_into(&mut signs.label.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// What it was called; of a whole run the first engine's.
    pub(super) fn engine_name(&self) -> Option<String> {
        let label = self.signs().first()?.label.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(label).filter(|label| !label.is_empty())
    }

    /// One view for each engine.
    pub(super) fn by_engine(&self) -> impl Iterator<Item = Arc<Board>> {
        (0..self.shown.engines.len()).map(|engine| self.of_engine(engine))
    }

    /// The streams that this engine answers; of a whole run all.
    pub(super) fn own_slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| self.engine.is_none_or(|engine| engine == slot.engine))
    }

    /// A frame of `stream` has arrived, whether or not it will be answered. Unknown streams are ignored.
    pub fn frame_arrived(&self, stream: &str) {
        if let Some(slot) = self.slot(stream) {
            slot.arrived.store(self.now_ms() + 1, Relaxed);
        }
    }

    /// The source of `stream` is lost: its page shows no picture until [`Board::source_back`].
    pub fn source_lost(&self, stream: &str, why: &str) {
        if let Some(slot) = self.slot(stream) {
            let mut latest = slot.lock();
            latest.frame = None;
            latest.detections.clear();
            match &mut latest.lost {
                Some((_, known)) => *known = why.to_owned(),
                none => *none = Some((Instant::now(), why.to_owned())),
            }
        }
    }

    /// The source of `stream` delivers again.
    pub fn source_back(&self, stream: &str) {
        if let Some(slot) = self.slot(stream) {
            slot.lock().lost = None;
        }
    }

    /// An incident has begun, or more is known of it.
    pub fn note_incident(&self, note: IncidentNote) {
        let mut incidents = self.incidents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = incidents.iter_mut().find(|known| known.id == note.id) {
            let kept = known.kept;
            *known = note;
            known.kept |= kept;
            return;
        }
        if incidents.len() >= Self::INCIDENTS {
            incidents.pop_front();
        }
        incidents.push_back(note);
    }

    /// The last incidents, newest first.
    pub fn incidents(&self) -> Vec<IncidentNote> {
        self.incidents.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    /// Where the details of incidents are written; pages read them there. Said once.
    pub fn keep_incidents_in(&self, folder: &Path) {
        let _said_before = self.incident_folder.set(folder.to_owned());
    }

    /// The sink that publishes rows on this board.
    pub fn sink(self: &Arc<Self>) -> BoardSink {
        BoardSink { board: Arc::clone(self) }
    }
}

impl Shown {
    pub(super) fn slot(&self, stream: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| *slot.setup.name == *stream)
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

/// Publishes every row; never fails and never waits for a reader.
pub struct BoardSink {
    board: Arc<Board>,
}

impl Sink for BoardSink {
    fn put(&mut self, row: &Row) -> Result<()> {
        if let Some(slot) = self.board.slot(&row.stream) {
            slot.lock().take(row, Instant::now());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Rows with one of these reasons were not answered by an engine.
fn was_inferred(row: &Row) -> bool {
    let without_answer = [Reason::EngineError, Reason::Late, Reason::Changeover, Reason::Unreadable, Reason::NoPicture];
    !row.reasons.iter().any(|reason| without_answer.contains(reason))
}

impl Latest {
    fn take(&mut self, row: &Row, now: Instant) {
        self.answered = Some(now);
        if was_inferred(row) {
            self.inferred = Some(now);
        }
        if self.trust != Some(row.trust) {
            self.trust_since = Some(now);
        }
        self.trust = Some(row.trust);
        self.reasons.clone_from(&row.reasons);
        self.observed.clone_from(&row.observed);
        self.standing = row.standing;
        self.proved_at = row.proved_at;
        self.engine = Some(Arc::clone(&row.engine));
        if row.number.is_some() {
            self.take_frame(row, now);
        }
        if row.reasons.contains(&Reason::NoPicture) {
            self.frame = None;
        } else if self.frame.is_some() {
            self.lost = None;
        }
        match row.trust {
            Trust::Trusted => self.totals.trusted += 1,
            Trust::Suspect => self.totals.suspect += 1,
            Trust::Fault => self.totals.fault += 1,
        }
        if let Some(decision) = row.decision {
            self.decide(decision, row, now);
        }
    }

    /// What only rows with a frame have; a part that got none leaves the last picture as it is.
    fn take_frame(&mut self, row: &Row, now: Instant) {
        self.number = row.number.unwrap_or(self.number);
        self.captured_at = row.captured_at;
        self.detections.clear();
        self.detections.extend_from_slice(row.usable_detections().unwrap_or_default());
        self.boxes_before_nms = row.boxes_before_nms;
        self.timings = row.timings;
        self.memory = row.memory;
        self.frame = row.frame.clone();
        self.ages.push(row.age_ms, now);
    }

    fn decide(&mut self, decision: Decision, row: &Row, now: Instant) {
        match decision {
            Decision::Pass => self.totals.pass += 1,
            Decision::Reject => {
                self.totals.reject += 1;
                self.last_reject = Some(now);
            }
            Decision::NotInspected => self.totals.not_inspected += 1,
        }
        if self.decision != Some(decision) {
            self.decision_since = Some(now);
        }
        self.decision = Some(decision);
        self.decision_part = row.part.clone();
    }
}
