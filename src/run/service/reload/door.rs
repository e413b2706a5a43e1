//! Where requests for another bundle come in, and how they ended.

use std::sync::{Mutex, PoisonError};

/// How a request for another bundle ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The bundle with this id answers now.
    Swapped(String),
    /// The file holds the bundle that runs already.
    Unchanged,
    /// The old one goes on; why.
    Refused(String),
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
}

impl ReloadDoor {
    fn lock(&self) -> std::sync::MutexGuard<'_, DoorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to look at the bundle's file.
    pub fn ask(&self) {
        self.lock().reload = true;
    }

    /// Asks for the last bundle that worked.
    pub fn ask_rollback(&self) {
        self.lock().rollback = true;
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
