//! Whether the run before came to an orderly end: a small file that lies in the state folder while a line runs.

use super::{Answered, Ledger, Unproven, text};
use crate::error::Result;
use crate::run::kept;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const FILE: &str = "running.json";
/// What is written down of a run that did not.
const WHY: &str = "the process ended without a last self-test (killed, crashed, or the power failed)";

#[derive(Debug, Serialize, Deserialize)]
struct Running {
    started_at: String,
    bundle: String,
    sha256: String,
}

/// The file of this run; [`Unfinished::finished`] takes it away.
#[derive(Debug)]
pub(in crate::run) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Says in `folder` that a run begins. Where the run before left the same word, its last results stand on no later proof: that
    /// is written down, and returned as a line for people.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the folder cannot be written.
    pub(in crate::run) fn begin(
        folder: &Path,
        answered: Answered<'_>,
        ledger: &mut Ledger,
    ) -> Result<(Unfinished, Option<String>)> {
        let path = folder.join(FILE);
        let before = match kept::read::<Running>(&path) {
            Ok(before) => before,
            Err(error) => {
                log::warn!("what the run before left cannot be read: {error}");
                Some(Running { started_at: String::new(), bundle: String::new(), sha256: String::new() })
            }
        };
        let word = before.map(|before| ledger.ended_unproved(before)).transpose()?;
        let running = Running {
            started_at: text(SystemTime::now()),
            bundle: answered.bundle.to_owned(),
            sha256: answered.sha256.to_owned(),
        };
        kept::write(&path, &running)?;
        Ok((Unfinished { path }, word))
    }

    /// The run has come to an orderly end: its last results are proved, or marked.
    pub(in crate::run) fn finished(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::warn!("{} cannot be removed: {error}", self.path.display());
        }
    }
}

impl Ledger {
    fn ended_unproved(&mut self, before: Running) -> Result<String> {
        let line = format!(
            "the run before (started {}) {}: its results whose `proved_at` is the last one are unproven",
            if before.started_at.is_empty() { "at an unknown time" } else { &before.started_at },
            WHY.trim_start_matches("the process "),
        );
        self.write_down(Unproven {
            failed_at: text(SystemTime::now()),
            proved_at: None,
            why: WHY.to_owned(),
            bundle: before.bundle,
            sha256: before.sha256,
            older: 0,
            older_by_stream: Default::default(),
            uncounted: true,
            results: Vec::new(),
        })?;
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn begin(folder: &Path) -> (Unfinished, Option<String>) {
        let mut ledger = Ledger::new(Some(folder));
        let answered = Answered { bundle: "line1", sha256: "ab", proved_at: None };
        Unfinished::begin(folder, answered, &mut ledger).unwrap()
    }

    #[test]
    fn an_orderly_end_leaves_nothing_and_any_other_end_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let (run, word) = begin(folder.path());
        assert_eq!(word, None);
        run.finished();
        let (run, word) = begin(folder.path());
        assert_eq!(word, None);
        drop(run);
        let (run, word) = begin(folder.path());
        assert!(word.unwrap().contains("ended without a last self-test"));
        run.finished();
        let (incidents, _) = read(folder.path()).unwrap();
        assert_eq!(incidents.len(), 1);
        assert!(incidents[0].uncounted && incidents[0].bundle == "line1");
    }

    #[test]
    fn a_damaged_word_is_one_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(begin(folder.path()).1.unwrap().contains("at an unknown time"));
    }
}
