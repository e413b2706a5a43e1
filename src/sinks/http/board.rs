//! The board: what the run publishes and the pages read. Each stream has one slot; writing to it copies a few hundred bytes
//! into buffers that are already there, under a lock that readers hold no longer than such a copy takes.

mod latest;
mod signs;

pub(super) use latest::{Latest, Recent, Totals};
use signs::EngineSigns;
pub use signs::{DeviceState, DeviceView, Phase};

use super::products::Products;
use super::reload::ReloadView;
use crate::error::Result;
use crate::frame::StreamName;
use crate::sinks::Sink;
use crate::sinks::row::Row;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

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
        self.signs().iter().for_each(|signs| signs.beat(now_ms));
    }

    /// The engine has no more work: it moves no more and is not missed.
    pub fn retire(&self) {
        self.signs().iter().for_each(EngineSigns::retire);
    }

    /// Milliseconds since the engine's thread last moved (since the start, before it first did); of several the longest.
    pub fn heartbeat_age_ms(&self) -> u64 {
        let now_ms = self.now_ms();
        self.signs().iter().map(|signs| signs.age_ms(now_ms)).max().unwrap_or(0)
    }

    /// Says where the run stands.
    pub fn set_phase(&self, phase: Phase) {
        self.signs().iter().for_each(|signs| signs.set_phase(phase));
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
        signs.for_each(|signs| signs.devices().clone_from(&devices));
    }

    /// The devices of this engine; of a whole run those of all engines, one after the other.
    pub(super) fn devices(&self) -> Vec<DeviceView> {
        self.signs().iter().flat_map(|signs| signs.devices().clone()).collect()
    }

    /// Changes what is known of this engine's reloads.
    pub fn change_reload(&self, change: impl FnOnce(&mut ReloadView)) {
        if let Some(signs) = self.signs().first() {
            change(&mut signs.reload());
        }
    }

    /// The reloads of this engine; of a whole run one of each engine.
    pub(super) fn reloads(&self) -> Vec<ReloadView> {
        self.signs().iter().map(|signs| signs.reload().clone()).collect()
    }

    /// What pages and metrics call this engine, as long as no result has said it.
    pub fn name_engine(&self, label: &str) {
        let signs = self.signs().iter().take(1);
        signs.for_each(|signs| label.clone_into(&mut signs.label()));
    }

    /// What it was called; of a whole run the first engine's.
    pub(super) fn engine_name(&self) -> Option<String> {
        let label = self.signs().first()?.label().clone();
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
