//! Rows for parts that nobody answered.

use super::present::Present;
use crate::decision::parts::Decided;
use crate::frame::StreamName;
use crate::guard::{Reason, Trust};
use crate::sinks::row::Row;
use crate::units::milliseconds;
use std::sync::Arc;

/// Makes rows for parts that nobody answered.
pub(super) struct Blank {
    pub(super) names: Vec<StreamName>,
    pub(super) presents: Vec<Arc<Present>>,
}

impl Blank {
    pub(super) fn row(&self, stream: usize, decided: Option<Decided>, reason: Reason) -> Row {
        let present = &self.presents[stream];
        Row {
            stream: Arc::clone(&self.names[stream]),
            number: None,
            captured_at: None,
            source: None,
            trust: Trust::Fault,
            reasons: vec![reason],
            observed: Vec::new(),
            standing: Default::default(),
            decision: decided.as_ref().filter(|_| present.has_rule()).map(|decided| decided.decision),
            age_ms: decided.as_ref().map_or(0.0, |decided| milliseconds(decided.triggered.elapsed())),
            part: decided.map(|decided| decided.part),
            proved_at: present.proved_at(),
            detections: None,
            boxes_before_nms: 0,
            timings: Default::default(),
            memory: Default::default(),
            engine: present.stamp(),
            frame: None,
        }
    }
}
