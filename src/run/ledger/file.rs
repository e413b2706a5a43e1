//! `unproven.jsonl` in the state folder: one line an incident. A line that was cut off by a crash is passed over. A full file is put
//! aside as `unproven.jsonl.1`; what it replaces is gone.

use super::Unproven;
use crate::error::{Error, Result};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Name of the file in the state folder.
pub const FILE: &str = "unproven.jsonl";
/// Size at which the file is put aside.
const MOST_BYTES: u64 = 64 << 20;

/// Appends `incident` to `file`; it is on the disk then.
pub(super) fn append(file: &Path, incident: &Unproven) -> io::Result<()> {
    append_below(file, incident, MOST_BYTES)
}

fn append_below(file: &Path, incident: &Unproven, most_bytes: u64) -> io::Result<()> {
    let mut line = serde_json::to_vec(incident)?;
    line.push(b'\n');
    let open = || OpenOptions::new().create(true).append(true).read(true).open(file);
    let mut opened = open()?;
    let mut length = opened.seek(SeekFrom::End(0))?;
    if length >= most_bytes {
        drop(opened);
        std::fs::rename(file, before(file))?;
        opened = open()?;
        length = 0;
    }
    if length > 0 {
        let mut last = [0_u8];
        opened.seek(SeekFrom::End(-1))?;
        opened.read_exact(&mut last)?;
        // A line that was cut off gets an end of its own, so that this one stays whole.
        if last != *b"\n" {
            line.insert(0, b'\n');
        }
    }
    if let Err(error) = opened.write_all(&line) {
        // Half a line of a full disk would be read as damage for ever.
        let _ = opened.set_len(length);
        return Err(error);
    }
    opened.sync_data()
}

fn before(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// The incidents in the state folder, oldest first; lines that are not whole are passed over and counted.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when there is no such folder or its file cannot be read.
pub fn read(folder: &Path) -> Result<(Vec<Unproven>, u64)> {
    let file = folder.join(FILE);
    let mut broken = 0;
    let mut incidents = Vec::new();
    for file in [before(&file), file] {
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && folder.is_dir() => continue,
            Err(error) => {
                return Err(Error::usage("the list of unproven results cannot be read")
                    .because(error)
                    .at(file.display())
                    .hint("name the folder that edge-run was given with `--state`"));
            }
        };
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(incident) => incidents.push(incident),
                Err(_) => broken += 1,
            }
        }
    }
    Ok((incidents, broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(why: &str) -> Unproven {
        Unproven {
            failed_at: "2026-11-30T08:00:00Z".into(),
            proved_at: None,
            why: why.into(),
            bundle: "line1".into(),
            sha256: "ab".into(),
            older: 0,
            older_by_stream: Default::default(),
            uncounted: false,
            results: Vec::new(),
        }
    }

    #[test]
    fn a_full_file_is_put_aside_and_still_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        for why in ["a", "b", "c", "d", "e"] {
            append_below(&file, &incident(why), 200).unwrap();
        }
        let (incidents, broken) = read(folder.path()).unwrap();
        let whys: Vec<&str> = incidents.iter().map(|incident| incident.why.as_str()).collect();
        assert_eq!((whys.concat().as_str(), broken), ("cde", 0));
        assert!(std::fs::metadata(file).unwrap().len() < 400);
    }

    #[test]
    fn an_empty_folder_has_none_and_a_missing_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), (vec![], 0));
        assert!(read(&folder.path().join("missing")).is_err());
    }
}
