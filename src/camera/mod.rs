//! Cameras and other sources: pixels in, [`Frame`]s out. One thread a camera; no inference, no judgement here.

mod files;
mod http;
mod jpeg;
pub mod pictures;
pub mod reopen;
mod replay;
pub mod request;
pub mod sim;
mod spec;
mod v4l2;

pub use request::CameraRequest;
pub use spec::{Place, ReplayOptions, SourceSpec};

use crate::error::Result;
use crate::frame::{Frame, StreamName};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What kind of stream a source is; decides delivery and which checks make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A camera or a stand-in for one: paced by the world, frames follow each other in time.
    Live,
    /// Files: unrelated pictures, whole and in order, then the end.
    Files,
}

/// What a source says of itself once it is open.
#[derive(Debug, Clone)]
pub struct SourceInfo {
    /// One line for people: negotiated mode, path, what was set.
    pub description: String,
    /// Live or files.
    pub kind: SourceKind,
    /// Whether consecutive frames show the same scene, so that checks may compare them.
    pub related_frames: bool,
    /// Whether the source triggers a part with every frame it marks (the simulated line).
    pub triggers: bool,
    /// Frames that will come, where known.
    pub frames: Option<u64>,
}

/// What happened at the source.
#[derive(Debug)]
pub enum Capture {
    /// A picture.
    Frame(Arc<Frame>),
    /// A picture that exists but cannot be read; counts as a capture number and gives one row.
    Unreadable {
        /// Capture number.
        number: u64,
        /// Wall-clock time; `None` for files.
        captured_at: Option<SystemTime>,
        /// File name or address.
        source: Option<Arc<str>>,
        /// Why, in one line.
        why: String,
    },
    /// Nothing within the time given; ask again.
    Nothing,
    /// No more frames will come.
    End,
}

/// What a source lost since it was opened. Each lost frame also leaves a gap in the capture numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureLosses {
    /// Pictures that arrived damaged or short and were dropped.
    pub damaged: u64,
    /// Frames that the driver could not deliver.
    pub missed: u64,
}

/// A source of frames. One thread owns it.
pub trait Camera: Send {
    /// What this source is; asked once after opening and again after every re-opening.
    fn info(&self) -> SourceInfo;

    /// Waits at most `patience` for the next capture.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when the source is lost: the caller closes it (drop) and opens it again with
    /// back-off. A lost source never yields a substitute picture.
    fn next(&mut self, patience: Duration) -> Result<Capture>;

    /// What was lost since the source was opened.
    fn losses(&self) -> CaptureLosses {
        CaptureLosses::default()
    }
}

/// Opens a source. Capture numbers go on where the last opening of the same `spec` ended.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when the source is missing, empty, lost or not what its name says;
/// [`crate::ErrorKind::MachineLacks`] when this user may not open it.
pub fn open(spec: &SourceSpec, stream: StreamName) -> Result<Box<dyn Camera>> {
    let memory = Arc::clone(&spec.memory);
    Ok(match &spec.place {
        Place::Device(path) => Box::new(v4l2::V4l2Camera::open(path, &spec.request, stream, memory)?),
        Place::Path(path) => Box::new(files::FilesSource::open_path(path, stream, memory)?),
        Place::Glob(pattern) => Box::new(files::FilesSource::open_pattern(pattern, stream, memory)?),
        Place::Replay(options) => Box::new(replay::ReplaySource::open(options, stream, memory)?),
        Place::Http(address) => Box::new(http::HttpCamera::open(address, spec.request.silence(), stream, memory)?),
        Place::Sim(text) => Box::new(sim::SimCamera::open(&sim::SimOptions::parse(text)?, stream)?),
    })
}
