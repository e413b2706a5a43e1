//! Reload: open and check beside the running engine, shadow, swap between frames, probation, rollback. The old engine runs
//! on through every failure, and comes back by itself when the new one faults soon after the swap.

mod door;
mod gap;
mod last_good;
mod loading;
mod probation;
mod room;
mod shadow;
mod watching;

pub use door::{ReloadDoor, Settled};

use super::{Service, short};
use crate::bundle::Bundle;
use crate::error::{Error, ErrorKind, Result};
use crate::run::inspector::Inspector;
use crate::run::product::Shelf;
use crate::run::ready::Ready;
use crate::sinks::http::{ReloadEnd, ReloadState};
use crate::telemetry::Metric;
use crate::units::milliseconds;
use gap::Gap;
use probation::Before;
use shadow::Shadow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
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
    /// Whether the line may stand still for a bundle that does not fit beside the running one.
    pub gap: bool,
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
            gap: false,
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
    Gap(Box<Gap>),
}

/// A bundle that is being loaded beside the running one.
struct Load {
    outcome: Receiver<Result<Found, Refusal>>,
    /// Its place on the shelf.
    place: usize,
    device: usize,
}

/// What looking at a bundle's file has given.
enum Found {
    /// The bundle that runs already.
    Same,
    /// Another one, loaded and proved.
    Ready(Box<Ready>),
    /// Another one that has room only in place of the running one; why.
    InPlace(Arc<Bundle>, Error),
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
    /// After a swap with a gap: the bundle before, and how long it comes back on a fault.
    way_back: Option<(Arc<Bundle>, Instant)>,
    /// No bundle is looked at before: the engine on probation takes the room.
    paused_until: Option<Instant>,
    /// What the pages were told last.
    told: ReloadState,
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
            way_back: None,
            paused_until: None,
            told: ReloadState::Idle,
        }
    }

    pub(super) fn shadows(&self) -> bool {
        matches!(self.stage, Stage::Shadow(_))
    }

    /// Whether a swap waits for the batches in flight.
    pub(super) fn holds(&self) -> bool {
        match &self.stage {
            Stage::Shadow(shadow) => shadow.holds,
            Stage::Gap(gap) => gap.holds,
            Stage::Idle | Stage::Loading(_) => false,
        }
    }

    fn state(&self) -> ReloadState {
        match &self.stage {
            Stage::Loading(_) => ReloadState::Loading,
            Stage::Shadow(_) => ReloadState::Shadow,
            Stage::Gap(_) => ReloadState::Gap,
            Stage::Idle if self.before.is_some() || self.way_back.is_some() => ReloadState::Probation,
            Stage::Idle => ReloadState::Idle,
        }
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
            && self.reloader.paused_until.is_none_or(|until| Instant::now() >= until)
            && let Some(place) = self.reloader.waiting.pop_front()
        {
            self.reloader.paused_until = None;
            self.begin_reload(place);
        }
        match std::mem::replace(&mut self.reloader.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Loading(loading) => match loading.outcome.try_recv() {
                Err(TryRecvError::Empty) => self.reloader.stage = Stage::Loading(loading),
                Err(TryRecvError::Disconnected) => {
                    self.refuse(None, &Error::unexpected("the loading thread ended early"))
                }
                Ok(Ok(Found::Same)) => self.settle(Settled::Unchanged),
                Ok(Ok(Found::Ready(ready))) if loading.place == self.shelf.active => self.begin_shadow(*ready),
                Ok(Ok(Found::Ready(ready))) => self.shelve(loading.place, loading.device, *ready),
                Ok(Ok(Found::InPlace(bundle, why))) => self.begin_gap(loading.place, bundle, &why),
                Ok(Err(refusal)) => self.refuse(refusal.id, &refusal.error),
            },
            Stage::Shadow(shadow) => self.look_at_shadow(inspector, shadow)?,
            Stage::Gap(gap) => self.look_at_gap(inspector, gap)?,
        }
        let state = self.reloader.state();
        if std::mem::replace(&mut self.reloader.told, state) != state {
            self.board.change_reload(|reload| reload.state = state);
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
            self.keep_books(None);
            self.rolling_back = false;
            self.options.service.reload.door.ask();
        }
    }

    pub(super) fn settle(&self, how: Settled) {
        match &how {
            Settled::Swapped(id) => log::warn!("reload: bundle {} answers now", short(id)),
            Settled::SwappedWithGap { id, gap } => {
                log::warn!("reload: bundle {} answers now; nobody did for {:.1} s", short(id), gap.as_secs_f64());
            }
            Settled::Unchanged => log::info!("reload: the file holds the bundle that runs already"),
            Settled::Refused(why) | Settled::DoesNotFit(why) => {
                log::error!("reload refused, the old bundle goes on: {why}")
            }
            Settled::RolledBack(why) => log::error!("rolled back to bundle {}: {why}", short(self.bundle.id())),
        }
        let end = end_of(&how);
        self.telemetry.count(Metric::Reloads, self.labels().because(end.how));
        self.board.change_reload(|reload| reload.note(end));
        self.keep_books(None);
        // Another bundle may leave another room.
        let _said_at_the_start = self.say_room();
        self.options.service.reload.door.settle(how);
    }

    pub(super) fn refuse(&mut self, id: Option<String>, error: &Error) {
        self.rolling_back = false;
        self.reloader.remember_failed(id);
        let why = error.to_string().replace('\n', " ");
        let fits = error.kind() != ErrorKind::Budget;
        self.settle(if fits { Settled::Refused(why) } else { Settled::DoesNotFit(why) });
    }
}

/// What pages and metrics say of it.
fn end_of(how: &Settled) -> ReloadEnd {
    let end = |how, why: Option<&String>| ReloadEnd { how, why: why.cloned(), ..ReloadEnd::default() };
    match how {
        Settled::Swapped(_) => end("swapped", None),
        Settled::SwappedWithGap { gap, .. } => ReloadEnd { gap_ms: Some(milliseconds(*gap)), ..end("swapped", None) },
        Settled::Unchanged => end("unchanged", None),
        Settled::Refused(why) => end("refused", Some(why)),
        Settled::DoesNotFit(why) => end("does_not_fit", Some(why)),
        Settled::RolledBack(why) => end("rolled_back", Some(why)),
    }
}
