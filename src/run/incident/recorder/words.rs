//! The words of an incident: its reason, its name, its line on the page.

use super::super::report::{Report, time_text};
use crate::guard::ladder::Cause;
use crate::guard::{Reason, Severity};
use crate::sinks::http::IncidentNote;
use crate::sinks::row::Row;
use std::time::SystemTime;

/// The reason that weighs most: hard before soft, then as the guard orders them.
pub(super) fn first_reason(row: &Row) -> Reason {
    let weighs = |reason: &&Reason| reason.severity() != Severity::Hard;
    row.reasons.iter().min_by_key(weighs).copied().unwrap_or(Reason::EngineError)
}

pub(super) fn reason_of(cause: Option<Cause>) -> &'static str {
    match cause {
        Some(Cause::Slow) => "slow",
        Some(Cause::DeviceLost) => "device_lost",
        Some(Cause::Answer) => "answer",
        Some(Cause::Proof) | None => "self_test",
    }
}

/// `20260101T000000Z-nan`, with a number from the second incident of this run on.
pub(super) fn id_of(at: SystemTime, reason: &str, number: u64) -> String {
    let time: String = time_text(at).chars().take(19).filter(|c| c.is_ascii_alphanumeric()).collect();
    format!("{time}Z-{number:03}-{reason}")
}

/// What the page says of an incident.
pub(in crate::run::incident) fn note_of(report: &Report, kept: bool) -> IncidentNote {
    IncidentNote {
        id: report.id.clone(),
        at: report.seen_at.clone(),
        streams: report.streams.clone(),
        reason: report.reason.clone(),
        what: report.what.clone(),
        steps: report.steps.clone(),
        recovered_after_ms: report.recovered_after_ms,
        ended: report.ended.is_some(),
        kept,
    }
}
