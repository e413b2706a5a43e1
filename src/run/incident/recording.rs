//! An incident read back, from its folder or from `incident.zip`. It may come from anywhere: every name, length and number is
//! checked before it is used, and nothing is written while reading.

use super::picture;
use super::report::{BUNDLE, FRAMES, FrameLine, MANIFEST, MOST_CANDIDATES, REPORT, Report};
use crate::bundle::{self, Archive, ArchiveKind, Manifest};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Picture;
use std::path::{Path, PathBuf};

const MOST_REPORT_BYTES: u64 = 4 << 20;
const MOST_MANIFEST_BYTES: u64 = 16 << 20;
const MOST_FRAMES_BYTES: u64 = 512 << 20;
const MOST_PICTURE_BYTES: u64 = 512 << 20;
const MOST_BUNDLE_BYTES: u64 = u32::MAX as u64;
/// Most frames of an incident.
pub const MOST_FRAMES: usize = 65_536;
/// Most boxes of one frame after NMS.
const MOST_DETECTIONS: usize = 100_000;

/// `incident.zip`.
const INCIDENTS: ArchiveKind = ArchiveKind {
    is_entry_name,
    names: "incident.json, manifest.json, frames.jsonl, bundle.edge and pictures/NNNNNN.png",
    noun: "recorded incident",
    files: "*.zip",
    way_out: "export it again with `edge-run incident export ID --state DIR`, or copy the file again",
    packed_again: "do not pack incidents with another program; `edge-run incident export ID` makes the zip, and the folder \
                   itself can be replayed too",
    missing: "look at the spelling; `edge-run incident list --state DIR` lists what is there",
};

/// An incident that can be looked at and run again.
#[derive(Debug)]
pub struct Recording {
    place: PathBuf,
    store: Store,
    report: Report,
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    frames: Vec<FrameLine>,
}

#[derive(Debug)]
enum Store {
    Folder(PathBuf),
    Zip(Archive),
}

/// Whether `name` is one that an incident may hold. No other name is read or written, so paths cannot escape.
pub(crate) fn is_entry_name(name: &str) -> bool {
    matches!(name, REPORT | FRAMES | MANIFEST | BUNDLE) || is_picture_name(name)
}

fn is_picture_name(name: &str) -> bool {
    name.strip_prefix("pictures/")
        .and_then(|file| file.strip_suffix(".png"))
        .is_some_and(|stem| (6..=12).contains(&stem.len()) && stem.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The same error as one of a source: a recording that cannot be used is no answer about the engine.
fn of_source(error: Error) -> Error {
    let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
    let mut same = Error::new(ErrorKind::Source, format!("{}{cause}", error.message()));
    if let Some(place) = error.place() {
        same = same.at(place);
    }
    match error.hint_text() {
        Some(hint) => same.hint(hint),
        None => same,
    }
}

impl Recording {
    /// Opens the folder or the zip at `path` and checks everything but the pictures.
    ///
    /// # Errors
    /// [`ErrorKind::Source`] naming the entry or field that is wrong.
    pub fn open(path: &Path) -> Result<Recording> {
        let store = if path.is_dir() {
            Store::Folder(path.to_owned())
        } else {
            Store::Zip(Archive::open_kind(&INCIDENTS, path, path).map_err(of_source)?)
        };
        let text = store.read(path, REPORT, MOST_REPORT_BYTES)?;
        let report = Report::parse(&text).map_err(|error| error.at(place(path, REPORT)))?;
        let manifest_bytes = store.read(path, MANIFEST, MOST_MANIFEST_BYTES)?;
        let manifest = bundle::parse_manifest(&manifest_bytes).map_err(|error| {
            let field = error.place().map_or_else(String::new, |field| format!(", {field}"));
            of_source(error.moved_to(format!("{}{field}", place(path, MANIFEST))))
        })?;
        let lines = store.read(path, FRAMES, MOST_FRAMES_BYTES)?;
        let frames = frames(&lines).map_err(|error| {
            let line = error.place().map_or_else(String::new, |line| format!(", {line}"));
            error.moved_to(format!("{}{line}", place(path, FRAMES)))
        })?;
        Ok(Recording { place: path.to_owned(), store, report, manifest, manifest_bytes, frames })
    }

    /// What happened.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The manifest of the bundle that answered.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest as it stands there.
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.manifest_bytes
    }

    /// The frames in the order of their rows.
    pub fn frames(&self) -> &[FrameLine] {
        &self.frames
    }

    /// Where it was opened.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The picture of `line`; `None` when it has none.
    ///
    /// # Errors
    /// [`ErrorKind::Source`] when it is damaged or not what the line says.
    pub fn picture(&self, line: &FrameLine) -> Result<Option<Picture>> {
        let Some(entry) = &line.picture else { return Ok(None) };
        let bytes = self.picture_bytes(&entry.entry)?;
        picture::unpack(&bytes, entry).map(Some).map_err(|error| error.moved_to(place(&self.place, &entry.entry)))
    }

    /// The bytes of the picture `entry`.
    pub(super) fn picture_bytes(&self, entry: &str) -> Result<Vec<u8>> {
        self.store.read(&self.place, entry, MOST_PICTURE_BYTES)
    }

    /// The bundle, where it was exported too.
    ///
    /// # Errors
    /// [`ErrorKind::Source`] when it cannot be read.
    pub fn bundle(&self) -> Result<Option<Vec<u8>>> {
        match &self.store {
            Store::Zip(archive) if archive.entries().contains_key(BUNDLE) => {
                self.store.read(&self.place, BUNDLE, MOST_BUNDLE_BYTES).map(Some)
            }
            Store::Folder(folder) if folder.join(BUNDLE).is_file() => {
                self.store.read(&self.place, BUNDLE, MOST_BUNDLE_BYTES).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Store {
    fn read(&self, path: &Path, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        match self {
            Store::Zip(archive) => {
                let bytes = archive.read(name, most_bytes).map_err(of_source)?;
                let stated = archive.entries().get(name).map_or(0, |range| range.crc32);
                if bundle::crc32(&bytes) != stated {
                    return Err(Error::source_failed("the entry does not match its checksum")
                        .at(archive.place(name))
                        .hint(INCIDENTS.way_out));
                }
                Ok(bytes)
            }
            Store::Folder(folder) => {
                let file = folder.join(name);
                let about = std::fs::metadata(&file).map_err(|error| unreadable(path, name, error))?;
                if !about.is_file() || about.len() > most_bytes {
                    return Err(Error::source_failed(format!(
                        "found {} bytes, expected a file of at most {most_bytes}",
                        about.len()
                    ))
                    .at(place(path, name)));
                }
                std::fs::read(&file).map_err(|error| unreadable(path, name, error))
            }
        }
    }
}

fn unreadable(path: &Path, name: &str, error: std::io::Error) -> Error {
    Error::source_failed("the recorded incident cannot be read")
        .because(error)
        .at(place(path, name))
        .hint("name a folder of `STATE/incidents`, or a zip made by `edge-run incident export`")
}

fn place(path: &Path, name: &str) -> String {
    format!("{}, entry `{name}`", path.display())
}

/// The lines of `frames.jsonl`. A last line without an end was cut off with its process and is passed over.
fn frames(text: &[u8]) -> Result<Vec<FrameLine>> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut frames = Vec::new();
    for (number, line) in text[..whole].split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let at = || format!("line {}", number + 1);
        if frames.len() >= MOST_FRAMES {
            return Err(Error::source_failed(format!("found more than {MOST_FRAMES} frames")).at(at()));
        }
        let frame: FrameLine = serde_json::from_slice(line)
            .map_err(|error| Error::source_failed("a recorded frame cannot be understood").because(error).at(at()))?;
        check(&frame).map_err(|error| error.at(at()))?;
        frames.push(frame);
    }
    Ok(frames)
}

fn check(frame: &FrameLine) -> Result<()> {
    if let Some(picture) = frame.picture.as_ref().filter(|picture| !is_picture_name(&picture.entry)) {
        return Err(Error::source_failed(format!("found picture {:?}, expected pictures/NNNNNN.png", picture.entry)));
    }
    if frame.candidates.len() > MOST_CANDIDATES || frame.detections.len() > MOST_DETECTIONS {
        return Err(Error::source_failed(format!(
            "found {} candidates and {} boxes, expected at most {MOST_CANDIDATES} and {MOST_DETECTIONS}",
            frame.candidates.len(),
            frame.detections.len()
        )));
    }
    Ok(())
}
