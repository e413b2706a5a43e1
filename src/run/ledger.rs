//! Results since the last good proof: remembered in a ring, and written down as unproven when a proof fails or when the engine
//! that gave them goes without another one.

mod file;
mod unfinished;

use crate::decision::Decision;
use crate::error::Result;
use crate::sinks::row::Row;
use crate::units::count;
pub use file::{FILE, read};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
pub(super) use unfinished::Unfinished;

/// Results remembered one by one; of older ones the numbers from and to, by stream. Sixteen streams of 60 frames/s for the
/// longest interval between two proofs, and half as much again.
const KEPT: usize = 65_536;
/// Incidents that could not be written and wait for another try; the results of older ones stay counted.
const MOST_UNSAVED: usize = 64;

/// One result that stands on a proof which is not known to hold any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnprovenResult {
    /// The stream.
    pub stream: Arc<str>,
    /// Capture number; `None` for a part that got no frame.
    pub frame: Option<u64>,
    /// The part's id.
    pub part: Option<Arc<str>>,
    /// What was decided, where there is a rule.
    pub decision: Option<Decision>,
}

/// Results of one stream that are too many to be listed one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OlderResults {
    /// How many.
    pub results: u64,
    /// The first capture number among them.
    pub first_frame: Option<u64>,
    /// The last one.
    pub last_frame: Option<u64>,
}

/// Results between the last good proof and a failed one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproven {
    /// When the proof failed, RFC 3339.
    pub failed_at: String,
    /// When the last good proof was, RFC 3339.
    pub proved_at: Option<String>,
    /// Why it failed.
    pub why: String,
    /// Name of the bundle.
    pub bundle: String,
    /// Bundle id.
    pub sha256: String,
    /// Results older than those listed, by number only.
    pub older: u64,
    /// The same by stream.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub older_by_stream: BTreeMap<Arc<str>, OlderResults>,
    /// How many results there are is not known: the process ended before it could say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// The results in their order.
    pub results: Vec<UnprovenResult>,
}

/// Whose results they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered<'a> {
    /// Name of the bundle.
    pub(super) bundle: &'a str,
    /// Bundle id.
    pub(super) sha256: &'a str,
    /// The last good proof.
    pub(super) proved_at: Option<SystemTime>,
}

/// Remembers results and writes incidents down.
#[derive(Debug)]
pub(super) struct Ledger {
    results: VecDeque<UnprovenResult>,
    older: BTreeMap<Arc<str>, OlderResults>,
    file: Option<PathBuf>,
    unsaved: VecDeque<Unproven>,
}

impl Ledger {
    /// A ledger that writes to `folder`; without one, incidents are only counted and logged.
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Ledger {
            // Once for all: a vector that doubles under load would look like growth. Pages that are never used cost nothing.
            results: VecDeque::with_capacity(KEPT),
            older: BTreeMap::new(),
            file: folder.map(|folder| folder.join(FILE)),
            unsaved: VecDeque::new(),
        }
    }

    /// A result went out.
    pub(super) fn note(&mut self, row: &Row) {
        self.push(UnprovenResult {
            stream: Arc::clone(&row.stream),
            frame: row.number,
            part: row.part.clone(),
            decision: row.decision,
        });
    }

    fn push(&mut self, result: UnprovenResult) {
        if self.results.len() >= KEPT
            && let Some(oldest) = self.results.pop_front()
        {
            let older = self.older.entry(oldest.stream).or_default();
            older.results += 1;
            older.first_frame = older.first_frame.or(oldest.frame);
            older.last_frame = oldest.frame.or(older.last_frame);
        }
        self.results.push_back(result);
    }

    /// Whether no result waits for a proof.
    pub(super) fn is_settled(&self) -> bool {
        self.results.is_empty()
    }

    /// A proof of the engine that gave them came out right: all results so far stand.
    pub(super) fn proved(&mut self) {
        self.results.clear();
        self.older.clear();
        if !self.unsaved.is_empty()
            && let Err(error) = self.save()
        {
            log::debug!("unproven results still wait to be written: {error}");
        }
    }

    /// How many results wait for a proof.
    pub(super) fn waiting(&self) -> u64 {
        self.older.values().map(|older| older.results).sum::<u64>() + count(self.results.len())
    }

    /// A proof failed, or the engine goes without one: writes down what stood on the last good one, and forgets it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the file cannot be written: it is tried again with the next proof.
    pub(super) fn failed(&mut self, why: &str, answered: Answered<'_>) -> Result<()> {
        let older_by_stream = std::mem::take(&mut self.older);
        let older = older_by_stream.values().map(|older| older.results).sum();
        let results = self.results.drain(..).collect();
        self.write_down(Unproven {
            failed_at: text(SystemTime::now()),
            proved_at: answered.proved_at.map(text),
            why: why.to_owned(),
            bundle: answered.bundle.to_owned(),
            sha256: answered.sha256.to_owned(),
            older,
            older_by_stream,
            uncounted: false,
            results,
        })
    }

    fn write_down(&mut self, incident: Unproven) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        if self.unsaved.len() >= MOST_UNSAVED
            && let Some(lost) = self.unsaved.pop_front()
        {
            let results = lost.older + count(lost.results.len());
            log::error!("{results} unproven results of {} could not be written and are given up", lost.failed_at);
        }
        self.unsaved.push_back(incident);
        self.save()
    }

    fn save(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        while let Some(incident) = self.unsaved.front() {
            file::append(file, incident).map_err(|error| crate::aside::cannot_write(file, error))?;
            self.unsaved.pop_front();
        }
        Ok(())
    }
}

fn text(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(proved_at: Option<SystemTime>) -> Answered<'static> {
        Answered { bundle: "line1", sha256: "ab", proved_at }
    }

    fn result(number: u64) -> UnprovenResult {
        UnprovenResult { stream: "cam0".into(), frame: Some(number), part: Some("A1".into()), decision: None }
    }

    #[test]
    fn what_stood_on_the_last_proof_is_written_and_a_cut_line_spoils_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::new(Some(folder.path()));
        ledger.results.push_back(result(1));
        ledger.proved();
        ledger.results.push_back(result(2));
        ledger.results.push_back(result(3));
        assert_eq!(ledger.waiting(), 2);
        ledger.failed("moved", answered(Some(SystemTime::UNIX_EPOCH))).unwrap();
        let file = folder.path().join(FILE);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.extend_from_slice(br#"{"failed_at":"2026"#);
        std::fs::write(&file, &bytes).unwrap();
        ledger.results.push_back(result(4));
        ledger.failed("again", answered(None)).unwrap();
        let (incidents, broken) = read(folder.path()).unwrap();
        assert_eq!((incidents.len(), broken), (2, 1));
        assert_eq!(incidents[0].results, [result(2), result(3)]);
        assert_eq!(incidents[0].proved_at.as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(incidents[1].results, [result(4)]);
    }

    #[test]
    fn older_results_stay_counted_by_stream() {
        let mut ledger = Ledger::new(None);
        for number in 0..u64::try_from(KEPT).unwrap() + 10 {
            ledger.push(result(number));
        }
        let older = &ledger.older["cam0"];
        assert_eq!((older.results, older.first_frame, older.last_frame), (10, Some(0), Some(9)));
        assert_eq!(ledger.waiting(), count(KEPT) + 10);
        ledger.failed("moved", answered(None)).unwrap();
        assert!(ledger.is_settled() && ledger.older.is_empty());
    }

    #[test]
    fn what_cannot_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("state");
        let mut ledger = Ledger::new(Some(&inside));
        ledger.push(result(1));
        assert!(ledger.failed("moved", answered(None)).is_err());
        std::fs::create_dir(&inside).unwrap();
        ledger.push(result(2));
        ledger.proved();
        let (incidents, _) = read(&inside).unwrap();
        assert_eq!(incidents.len(), 1);
        assert_eq!(incidents[0].results, [result(1)]);
    }
}
