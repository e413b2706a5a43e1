//! Reload: open and check beside the running engine, shadow, swap between frames, probation, rollback. The old engine runs
//! on through every failure, and comes back by itself when the new one faults soon after the swap.

mod door;
mod last_good;
mod loading;
mod probation;
mod shadow;
mod watching;

pub use door::{ReloadDoor, Settled};

use super::{Service, short};
use crate::error::{Error, Result};
use crate::run::inspector::Inspector;
use crate::run::product::Shelf;
use crate::run::ready::Ready;
use crate::telemetry::Metric;
use probation::Before;
use shadow::Shadow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;
use watching::Watching;

/// A file of this name in the state folder asks for the last good bundle: `edge-run rollback`.
pub const ROLLBACK_REQUEST: &str = "rollback";

/// How bundles are replaced while the line runs.
#[derive(Debug, Clone)]
pub struct ReloadOptions {
    /// Whether the bundle's file is watched.
    pub watch: bool,
    /// A changed file must rest this long before it is looked at.
    pub rest: Duration,
    /// Frames that both engines answer before the swap.
    pub shadow_frames: u64,
    /// The shadow takes no longer than this; without frames the proof alone decides.
    pub shadow_limit: Duration,
    /// Least mean agreement of boxes in the shadow, 0..1.
    pub agreement: f64,
    /// The old engine stays ready this long after the swap.
    pub probation: Duration,
    /// Where requests come in and outcomes can be seen.
    pub door: Arc<ReloadDoor>,
}

impl Default for ReloadOptions {
    fn default() -> Self {
        ReloadOptions {
            watch: false,
            rest: Duration::from_secs(1),
            shadow_frames: 30,
            shadow_limit: Duration::from_secs(60),
            agreement: 0.8,
            probation: Duration::from_secs(30),
            door: Arc::default(),
        }
    }
}

/// A refusal, with the bundle's id where that was known.
struct Refusal {
    id: Option<String>,
    error: Error,
}

/// What the reloader is at.
enum Stage {
    Idle,
    Loading(Load),
    Shadow(Box<Shadow>),
}

/// A bundle that is being loaded beside the running one.
struct Load {
    outcome: Receiver<Result<Option<Ready>, Refusal>>,
    /// Its place on the shelf.
    place: usize,
    device: usize,
}

/// Where reloading stands.
pub(super) struct Reloader {
    stage: Stage,
    failed: BTreeSet<String>,
    /// One a place of the shelf.
    files: Vec<Watching>,
    /// Places whose file is to be looked at.
    waiting: VecDeque<usize>,
    before: Option<Before>,
}

impl Reloader {
    const MOST_FAILED: usize = 1000;

    pub(super) fn new(shelf: &Shelf) -> Self {
        Reloader {
            stage: Stage::Idle,
            failed: BTreeSet::new(),
            files: shelf.places.iter().map(|place| Watching::new(&place.path)).collect(),
            waiting: VecDeque::new(),
            before: None,
        }
    }

    pub(super) fn shadows(&self) -> bool {
        matches!(self.stage, Stage::Shadow(_))
    }

    /// Whether a swap waits for the batches in flight.
    pub(super) fn holds(&self) -> bool {
        matches!(&self.stage, Stage::Shadow(shadow) if shadow.holds)
    }
    fn remember_failed(&mut self, id: Option<String>) {
        if self.failed.len() < Self::MOST_FAILED {
            self.failed.extend(id);
        }
    }
}

impl Service<'_> {
    /// One look between two frames; never waits.
    pub(super) fn reload_step(&mut self, inspector: &mut Inspector) -> Result<()> {
        self.end_probation();
        let (reload, rollback) = self.options.service.reload.door.take();
        if rollback || self.rollback_file() {
            self.roll_back_by_hand(inspector);
        } else {
            self.queue_changed_files(reload);
        }
        if self.reload_is_idle()
            && let Some(place) = self.reloader.waiting.pop_front()
        {
            self.begin_reload(place);
        }
        match std::mem::replace(&mut self.reloader.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Loading(loading) => match loading.outcome.try_recv() {
                Err(TryRecvError::Empty) => self.reloader.stage = Stage::Loading(loading),
                Err(TryRecvError::Disconnected) => {
                    self.refuse(None, &Error::unexpected("the loading thread ended early"))
                }
                Ok(Ok(None)) => self.settle(Settled::Unchanged),
                Ok(Ok(Some(ready))) if loading.place == self.shelf.active => self.begin_shadow(ready),
                Ok(Ok(Some(ready))) => self.shelve(loading.place, loading.device, ready),
                Ok(Err(refusal)) => self.refuse(refusal.id, &refusal.error),
            },
            Stage::Shadow(shadow) => self.look_at_shadow(inspector, shadow)?,
        }
        Ok(())
    }

    /// The inspected bundle's file first, then those of other products.
    fn queue_changed_files(&mut self, asked: bool) {
        let asked = asked && (self.reload_is_idle() || self.settle_as_busy());
        let (active, options) = (self.shelf.active, &self.options.service.reload);
        let reloader = &mut self.reloader;
        let places = std::iter::once(active).chain((0..reloader.files.len()).filter(|place| *place != active));
        for place in places {
            let changed = options.watch && reloader.files[place].has_changed(options.rest);
            if (asked || changed) && !reloader.waiting.contains(&place) {
                reloader.waiting.push_back(place);
            }
        }
    }

    fn settle_as_busy(&self) -> bool {
        self.settle(Settled::Refused("another bundle is being looked at".into()));
        false
    }

    /// Whether no bundle is being loaded or shadowed.
    pub(super) fn reload_is_idle(&self) -> bool {
        matches!(self.reloader.stage, Stage::Idle)
    }

    /// Lets go of a bundle that is being looked at; it is looked at again later.
    pub(super) fn stop_reload(&mut self) {
        if !self.reload_is_idle() {
            self.reloader.stage = Stage::Idle;
            self.rolling_back = false;
            self.options.service.reload.door.ask();
        }
    }

    pub(super) fn settle(&self, how: Settled) {
        match &how {
            Settled::Swapped(id) => log::warn!("reload: bundle {} answers now", short(id)),
            Settled::Unchanged => log::info!("reload: the file holds the bundle that runs already"),
            Settled::Refused(why) => log::error!("reload refused, the old bundle goes on: {why}"),
            Settled::RolledBack(why) => log::error!("rolled back to bundle {}: {why}", short(self.bundle.id())),
        }
        let word = match &how {
            Settled::Swapped(_) => "swapped",
            Settled::Unchanged => "unchanged",
            Settled::Refused(_) => "refused",
            Settled::RolledBack(_) => "rolled_back",
        };
        self.telemetry.count(Metric::Reloads, self.labels().because(word));
        self.options.service.reload.door.settle(how);
    }

    pub(super) fn refuse(&mut self, id: Option<String>, error: &Error) {
        self.rolling_back = false;
        self.reloader.remember_failed(id);
        self.settle(Settled::Refused(error.to_string().replace('\n', " ")));
    }
}
