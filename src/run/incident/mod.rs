//! The deep log: what went through the engine around a fault, kept so that it can be looked at and run again elsewhere.
//!
//! | module | holds |
//! | --- | --- |
//! | [`recorder`] | what begins and ends an incident; called once a frame |
//! | `ring` | the last frames of each stream, in slots that are there from the start |
//! | `writer` | the thread that writes incidents into the state folder |
//! | `shelf` | the folder of incidents: its limit, its oldest, what a killed process left |
//! | [`report`] | `incident.json` and `frames.jsonl` |
//! | `picture` | pictures packed without loss |
//! | [`recording`] | an incident read back, from its folder or from `incident.zip`; trusts nothing |
//! | [`export`] | `incident.zip` |
//! | [`replay`] | an incident through an engine of this machine |
//!
//! Recording a frame copies its boxes and takes a share in its picture, which is not copied. Pictures are packed and written
//! by a thread of its own, of low priority; what it cannot take in time, or the disk cannot hold, is left out and counted.

mod differ;
pub mod export;
mod picture;
pub mod recorder;
pub mod recording;
pub mod replay;
pub mod report;
mod ring;
mod shelf;
mod writer;

#[cfg(test)]
mod tests;

pub use differ::Tolerance;
pub use recorder::Recorder;
pub use shelf::{Listed, list, list_in};

use crate::units::Bytes;
use std::path::{Path, PathBuf};

/// Name of the folder of incidents in the state folder.
pub const FOLDER: &str = "incidents";
/// Name of the file that says that a process writes into a folder of incidents.
pub const LOCK: &str = ".lock";
/// Frames of one part of a log that was asked for.
pub const ASKED: u32 = 100;
/// Most frames that one request may ask for.
pub const MOST_ASKED: u32 = 1000;

/// How incidents are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentOptions {
    /// Every frame is recorded, not only those around faults.
    pub deep_log: bool,
    /// Where incidents lie; `None`: in the state folder.
    pub folder: Option<PathBuf>,
    /// Frames kept of each stream before a fault.
    pub frames_before: usize,
    /// Frames recorded of each stream from the fault on, its own frame included.
    pub frames_after: u32,
    /// Most room for incidents on the disk; the oldest are removed.
    pub space: Bytes,
    /// Most memory for pictures in the ring, and again as much for those that wait to be written.
    pub memory: Bytes,
}

impl Default for IncidentOptions {
    fn default() -> Self {
        IncidentOptions {
            deep_log: false,
            folder: None,
            frames_before: 25,
            frames_after: 25,
            space: Bytes::gib(1),
            memory: Bytes::mib(128),
        }
    }
}

impl IncidentOptions {
    /// Most frames before a fault, and from it on.
    pub const MOST_FRAMES: u32 = 250;

    /// Where incidents are written, if anywhere.
    pub fn folder_in(&self, state: Option<&Path>) -> Option<PathBuf> {
        self.folder.clone().or_else(|| Some(state?.join(FOLDER)))
    }
}

/// Whether `id` can be the name of an incident, and so of a folder.
pub fn is_id(id: &str) -> bool {
    (1..=80).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
