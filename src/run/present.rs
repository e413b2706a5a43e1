//! What holds at present for every row: which engine answers, and when it was last proved. Shared by all who write rows.

use crate::sinks::row::EngineStamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Which engine answers, and when its known answers last came out right.
#[derive(Debug)]
pub struct Present {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stamp: Arc<EngineStamp>,
    proved_at: Option<SystemTime>,
    has_rule: bool,
}

impl Present {
    /// What holds from the start on.
    pub fn new(stamp: EngineStamp, proved_at: Option<SystemTime>, has_rule: bool) -> Arc<Self> {
        Arc::new(Present { state: Mutex::new(State { stamp: Arc::new(stamp), proved_at, has_rule }) })
    }

    /// Of a run whose engines each have their own: no engine answers.
    pub fn unknown() -> Arc<Self> {
        let stamp = EngineStamp::default();
        Self::new(stamp, None, false)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which engine answers.
    pub fn stamp(&self) -> Arc<EngineStamp> {
        Arc::clone(&self.lock().stamp)
    }

    /// When the known answers last came out right.
    pub fn proved_at(&self) -> Option<SystemTime> {
        self.lock().proved_at
    }

    /// Whether the recipe has a decision rule.
    pub fn has_rule(&self) -> bool {
        self.lock().has_rule
    }

    /// The known answers came out right.
    pub fn proved(&self, at: SystemTime) {
        self.lock().proved_at = Some(at);
    }

    /// Another engine answers from now on.
    pub fn change(&self, stamp: EngineStamp, proved_at: Option<SystemTime>, has_rule: bool) {
        *self.lock() = State { stamp: Arc::new(stamp), proved_at, has_rule };
    }
}
