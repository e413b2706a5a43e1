//! The folder of incidents: how much it may hold, which one goes first, and what a killed process has left behind.

use super::is_id;
use super::report::{REPORT, Report};
use crate::aside::cannot_write;
use crate::error::{Error, Result};
use crate::units::Bytes;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Incidents on the disk, oldest first.
#[derive(Debug)]
pub(super) struct Shelf {
    folder: PathBuf,
    space: Bytes,
    kept: VecDeque<(String, u64)>,
    used_bytes: u64,
    reports: Vec<Report>,
}

impl Shelf {
    /// Opens the folder, which is made when it is missing. An incident whose process was killed gets its name: what was
    /// written of it is kept.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the folder cannot be made.
    pub(super) fn open(folder: &Path, space: Bytes) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
        for name in names(folder) {
            if let Some(id) = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part")) {
                finish_left_behind(folder, &name, id);
            }
        }
        let reports = reports(folder).0;
        let mut kept: VecDeque<(String, u64)> = VecDeque::new();
        for report in &reports {
            kept.push_back((report.id.clone(), folder_bytes(&folder.join(&report.id))));
        }
        let used_bytes = kept.iter().map(|(_, bytes)| bytes).sum();
        Ok(Shelf { folder: folder.to_owned(), space, kept, used_bytes, reports })
    }

    /// The incidents that were there at the start, oldest first.
    pub(super) fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes of all that have their name.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Makes room for `bytes` more beside `open_bytes` of the incident being written, by removing the oldest. Returns how
    /// many are gone, and whether there is room now.
    pub(super) fn make_room(&mut self, open_bytes: u64, bytes: u64) -> (u64, bool) {
        let mut removed = 0;
        while self.used_bytes + open_bytes + bytes > self.space.0 {
            let Some((id, freed_bytes)) = self.kept.pop_front() else { return (removed, false) };
            if let Err(error) = std::fs::remove_dir_all(self.folder.join(&id)) {
                log::warn!("incident {id} cannot be removed: {error}");
            }
            self.used_bytes -= freed_bytes;
            removed += 1;
        }
        (removed, true)
    }

    /// An incident has its name now.
    pub(super) fn add(&mut self, id: &str, bytes: u64) {
        self.used_bytes += bytes;
        self.kept.push_back((id.to_owned(), bytes));
    }

    /// Whether the incident is still there.
    pub(super) fn has(&self, id: &str) -> bool {
        self.kept.iter().any(|(kept, _)| kept == id)
    }
}

fn finish_left_behind(folder: &Path, name: &str, id: &str) {
    let (part, whole) = (folder.join(name), folder.join(id));
    let readable = is_id(id) && std::fs::read(part.join(REPORT)).is_ok_and(|text| Report::parse(&text).is_ok());
    let _freed = std::fs::remove_file(part.join(super::writer::RESERVE));
    let kept = readable && !whole.exists() && std::fs::rename(&part, &whole).is_ok();
    if kept {
        log::warn!("incident {id} was cut off with its process; what was written of it is kept");
    } else if let Err(error) = std::fs::remove_dir_all(&part) {
        log::warn!("{}: cannot be removed: {error}", part.display());
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Bytes of all files in `folder` and its folders.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(about) if about.is_dir() => bytes += folder_bytes(&entry.path()),
            Ok(about) => bytes += about.len(),
            Err(_) => {}
        }
    }
    bytes
}

/// Reports in `folder`, oldest first, and names of folders that have none that can be read.
fn reports(folder: &Path) -> (Vec<Report>, Vec<String>) {
    let mut found = Vec::new();
    let mut broken = Vec::new();
    for name in names(folder).into_iter().filter(|name| is_id(name) && folder.join(name).is_dir()) {
        let text = std::fs::read(folder.join(&name).join(REPORT)).ok();
        match text.and_then(|text| Report::parse(&text).ok()).filter(|report| report.id == name) {
            Some(report) => found.push(report),
            None => broken.push(name),
        }
    }
    found.sort_by(|one, other| one.seen_at.cmp(&other.seen_at).then_with(|| one.id.cmp(&other.id)));
    (found, broken)
}

/// One incident of a state folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its report.
    pub report: Report,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Its folder.
    pub folder: PathBuf,
}

/// The incidents in the state folder, oldest first, and the names of folders that cannot be read as one.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when `state` is no folder.
pub fn list(state: &Path) -> Result<(Vec<Listed>, Vec<String>)> {
    if !state.is_dir() {
        return Err(Error::usage("found no such folder, expected the state folder of a line")
            .at(state.display())
            .hint("name the folder that edge-run was given with `--state`"));
    }
    Ok(list_in(&state.join(super::FOLDER)))
}

/// The same of a folder of incidents itself; of one that is not there: none.
pub fn list_in(folder: &Path) -> (Vec<Listed>, Vec<String>) {
    let (reports, broken) = reports(folder);
    let listed = |report: Report| {
        let folder = folder.join(&report.id);
        Listed { bytes: folder_bytes(&folder), report, folder }
    };
    (reports.into_iter().map(listed).collect(), broken)
}
