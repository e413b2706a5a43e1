//! What a stream shows of its last row, and what it counts.

use crate::decision::Decision;
use crate::detections::Detection;
use crate::engine::{EngineTimings, MemoryFigures};
use crate::frame::Frame;
use crate::guard::{Reason, Standing, Trust};
use crate::sinks::row::{EngineStamp, Row};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What a stream shows; buffers are reused from row to row.
#[derive(Debug, Default)]
pub(in crate::sinks::http) struct Latest {
    pub(in crate::sinks::http) answered: Option<Instant>,
    /// When an engine last gave an answer, whatever the guard said of it.
    pub(in crate::sinks::http) inferred: Option<Instant>,
    pub(in crate::sinks::http) number: u64,
    pub(in crate::sinks::http) captured_at: Option<SystemTime>,
    pub(in crate::sinks::http) trust: Option<Trust>,
    pub(in crate::sinks::http) trust_since: Option<Instant>,
    pub(in crate::sinks::http) reasons: Vec<Reason>,
    pub(in crate::sinks::http) observed: Vec<Reason>,
    pub(in crate::sinks::http) standing: Standing,
    pub(in crate::sinks::http) decision: Option<Decision>,
    pub(in crate::sinks::http) decision_part: Option<Arc<str>>,
    pub(in crate::sinks::http) decision_since: Option<Instant>,
    pub(in crate::sinks::http) last_reject: Option<Instant>,
    pub(in crate::sinks::http) proved_at: Option<SystemTime>,
    pub(in crate::sinks::http) detections: Vec<Detection>,
    pub(in crate::sinks::http) boxes_before_nms: u64,
    pub(in crate::sinks::http) timings: EngineTimings,
    pub(in crate::sinks::http) memory: MemoryFigures,
    pub(in crate::sinks::http) engine: Option<Arc<EngineStamp>>,
    pub(in crate::sinks::http) frame: Option<Arc<Frame>>,
    pub(in crate::sinks::http) totals: Totals,
    pub(in crate::sinks::http) ages: Recent,
    pub(in crate::sinks::http) lost: Option<(Instant, String)>,
}

/// Counts since the start of the run.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(in crate::sinks::http) struct Totals {
    pub(in crate::sinks::http) trusted: u64,
    pub(in crate::sinks::http) suspect: u64,
    pub(in crate::sinks::http) fault: u64,
    pub(in crate::sinks::http) pass: u64,
    pub(in crate::sinks::http) reject: u64,
    pub(in crate::sinks::http) not_inspected: u64,
}

/// The ages and times of the last results.
#[derive(Debug)]
pub(in crate::sinks::http) struct Recent {
    pub(in crate::sinks::http) values: [(f64, Option<Instant>); Recent::KEPT],
    pub(in crate::sinks::http) next: usize,
}

impl Recent {
    pub(in crate::sinks::http) const KEPT: usize = 128;

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

/// Rows with one of these reasons were not answered by an engine.
fn was_inferred(row: &Row) -> bool {
    let without_answer = [Reason::EngineError, Reason::Late, Reason::Changeover, Reason::Unreadable, Reason::NoPicture];
    !row.reasons.iter().any(|reason| without_answer.contains(reason))
}

impl Latest {
    /// Shows what this row says.
    pub(super) fn take(&mut self, row: &Row, now: Instant) {
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
