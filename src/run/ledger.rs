//! Results since the last good proof: remembered in a ring, and written down as unproven when a proof fails.
//!
//! `unproven.jsonl` in the state folder holds one line an incident. A line that was cut off by a crash is passed over.

use crate::aside::cannot_write;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::sinks::row::Row;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Name of the file in the state folder.
pub const FILE: &str = "unproven.jsonl";
/// Results remembered; older ones are only counted.
const KEPT: usize = 16_384;

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
    /// The results in their order.
    pub results: Vec<UnprovenResult>,
}

/// Remembers results and writes incidents down.
#[derive(Debug)]
pub struct Ledger {
    results: VecDeque<UnprovenResult>,
    older: u64,
    file: Option<PathBuf>,
}

impl Ledger {
    /// A ledger that writes to `folder`; without one, incidents are only counted and logged.
    pub fn new(folder: Option<&Path>) -> Self {
        Ledger { results: VecDeque::with_capacity(KEPT), older: 0, file: folder.map(|folder| folder.join(FILE)) }
    }

    /// A result went out.
    pub fn note(&mut self, row: &Row) {
        if self.results.len() >= KEPT {
            self.results.pop_front();
            self.older += 1;
        }
        self.results.push_back(UnprovenResult {
            stream: Arc::clone(&row.stream),
            frame: row.number,
            part: row.part.clone(),
            decision: row.decision,
        });
    }

    /// A proof came out right: everything so far stands.
    pub fn proved(&mut self) {
        self.results.clear();
        self.older = 0;
    }

    /// A proof failed: writes down what stood on the last good one, and forgets it. Returns how many results that are.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the file cannot be written; the count is in the log then.
    pub fn failed(&mut self, why: &str, bundle: (&str, &str), proved_at: Option<SystemTime>) -> Result<u64> {
        let total = self.older + crate::units::count(self.results.len());
        let incident = Unproven {
            failed_at: text(SystemTime::now()),
            proved_at: proved_at.map(text),
            why: why.to_owned(),
            bundle: bundle.0.to_owned(),
            sha256: bundle.1.to_owned(),
            older: std::mem::take(&mut self.older),
            results: self.results.drain(..).collect(),
        };
        if let Some(file) = &self.file {
            append(file, &incident).map_err(|error| cannot_write(file, error))?;
        }
        Ok(total)
    }
}

fn text(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}

fn append(file: &Path, incident: &Unproven) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(incident)?;
    line.push(b'\n');
    let mut open = OpenOptions::new().create(true).append(true).read(true).open(file)?;
    let length = open.seek(SeekFrom::End(0))?;
    if length > 0 {
        let mut last = [0_u8];
        open.seek(SeekFrom::End(-1))?;
        open.read_exact(&mut last)?;
        // A line that was cut off gets an end of its own, so that this one stays whole.
        if last != *b"\n" {
            line.insert(0, b'\n');
        }
    }
    open.write_all(&line)?;
    open.sync_data()
}

/// The incidents in the state folder, oldest first; lines that are not whole are passed over and counted.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when the folder has no such file.
pub fn read(folder: &Path) -> Result<(Vec<Unproven>, u64)> {
    let file = folder.join(FILE);
    let text = match std::fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.is_dir() => Vec::new(),
        Err(error) => {
            return Err(Error::usage("the list of unproven results cannot be read")
                .because(error)
                .at(file.display())
                .hint("name the folder that edge-run was given with `--state`"));
        }
    };
    let mut broken = 0;
    let mut incidents = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(incident) => incidents.push(incident),
            Err(_) => broken += 1,
        }
    }
    Ok((incidents, broken))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(ledger.failed("moved", ("line1", "ab"), Some(SystemTime::UNIX_EPOCH)).unwrap(), 2);
        let file = folder.path().join(FILE);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.extend_from_slice(br#"{"failed_at":"2026"#);
        std::fs::write(&file, &bytes).unwrap();
        ledger.results.push_back(result(4));
        assert_eq!(ledger.failed("again", ("line1", "ab"), None).unwrap(), 1);
        let (incidents, broken) = read(folder.path()).unwrap();
        assert_eq!((incidents.len(), broken), (2, 1));
        assert_eq!(incidents[0].results, [result(2), result(3)]);
        assert_eq!(incidents[0].proved_at.as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(incidents[1].results, [result(4)]);
    }

    #[test]
    fn an_empty_folder_has_none_and_a_missing_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), (vec![], 0));
        assert!(read(&folder.path().join("missing")).is_err());
    }
}
