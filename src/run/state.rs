//! The state folder: what outlives the process. One process at a time.

use super::incident;
use crate::aside::cannot_write;
use crate::error::{Error, Result};
use std::fs::{File, TryLockError};
use std::path::Path;

/// A state folder that this process holds; dropped, it is free.
#[derive(Debug)]
pub(super) struct StateFolder {
    _lock: File,
}

impl StateFolder {
    /// Makes the folder and takes it for this process.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when it cannot be written, [`crate::ErrorKind::Usage`] when another process has it.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        Self::take_by(folder, "lock", ("this state folder", "--state DIR"))
    }

    /// The same for a folder of incidents that lies elsewhere.
    ///
    /// # Errors
    /// As [`StateFolder::take`].
    pub(super) fn take_for_incidents(folder: &Path) -> Result<Self> {
        Self::take_by(folder, incident::LOCK, ("this folder of incidents", "--incident-folder DIR"))
    }

    fn take_by(folder: &Path, name: &str, (what, flag): (&str, &str)) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
        let path = folder.join(name);
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|error| cannot_write(&path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(StateFolder { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::usage(format!("another edge-run uses {what}"))
                .at(folder.display())
                .hint(format!("give each its own: `{flag}`"))),
            Err(TryLockError::Error(error)) => Err(cannot_write(&path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        let first = StateFolder::take(&inner).unwrap();
        let error = StateFolder::take(&inner).unwrap_err();
        assert!(error.message().contains("another edge-run"), "{error}");
        drop(first);
        StateFolder::take(&inner).unwrap();
        let first = StateFolder::take_for_incidents(&inner).unwrap();
        let error = StateFolder::take_for_incidents(&inner).unwrap_err().to_string();
        assert!(error.contains("folder of incidents") && error.contains("--incident-folder"), "{error}");
        drop(first);
    }
}
