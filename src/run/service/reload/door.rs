//! Where requests for another bundle come in, and how they ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a request for another bundle ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The bundle with this id answers now.
    Swapped(String),
    /// The same, after the line has stood still for it: there was no room for both.
    SwappedWithGap {
        /// The bundle's id.
        id: String,
        /// How long nobody answered.
        gap: Duration,
    },
    /// The file holds the bundle that runs already.
    Unchanged,
    /// The old one goes on; why.
    Refused(String),
    /// The old one goes on: there is no room for both, or none at all; why.
    DoesNotFit(String),
    /// The bundle before answers again; why.
    RolledBack(String),
}

/// Requests for another bundle, from signals, HTTP and tests, and how they ended.
#[derive(Debug, Default)]
pub struct ReloadDoor {
    state: Mutex<DoorState>,
}

#[derive(Debug, Default)]
struct DoorState {
    reload: bool,
    rollback: bool,
    settled: u64,
    last: Option<Settled>,
    /// Doors of the single bundles, where a run has several.
    below: Vec<Arc<ReloadDoor>>,
}

impl ReloadDoor {
    /// A door for one of several bundles: what `above` is asked for, this one is asked for too.
    pub fn below(above: &ReloadDoor) -> Arc<Self> {
        let door = Arc::new(ReloadDoor::default());
        above.lock().below.push(Arc::clone(&door));
        door
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, DoorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to look at the bundle's file.
    pub fn ask(&self) {
        let mut state = self.lock();
        state.below.iter().for_each(|door| door.ask());
        state.reload = true;
    }

    /// Asks for the last bundle that worked.
    pub fn ask_rollback(&self) {
        let mut state = self.lock();
        state.below.iter().for_each(|door| door.ask_rollback());
        state.rollback = true;
    }

    /// Requests that have ended, and how the last one did.
    pub fn settled(&self) -> (u64, Option<Settled>) {
        let state = self.lock();
        (state.settled, state.last.clone())
    }

    pub(super) fn take(&self) -> (bool, bool) {
        let mut state = self.lock();
        (std::mem::take(&mut state.reload), std::mem::take(&mut state.rollback))
    }

    pub(super) fn settle(&self, how: Settled) {
        let mut state = self.lock();
        state.settled += 1;
        state.last = Some(how);
    }
}
