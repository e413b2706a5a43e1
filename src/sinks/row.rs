//! One result: what every sink gets, and the JSON line that outsiders read.

use crate::decision::Decision;
use crate::detections::Detection;
use crate::engine::{EngineTimings, MemoryFigures};
use crate::frame::{Frame, StreamName};
use crate::guard::{Reason, Trust};
use std::sync::Arc;
use std::time::SystemTime;

/// The answer for one frame or part, as judged and decided.
#[derive(Debug, Clone)]
pub struct Row {
    /// The stream.
    pub stream: StreamName,
    /// The capture number within the stream; gaps are drops.
    pub number: u64,
    /// Wall-clock capture time; `None` for files.
    pub captured_at: Option<SystemTime>,
    /// File name or address of the picture.
    pub source: Option<Arc<str>>,
    /// What the guard says.
    pub trust: Trust,
    /// Why it is not trusted; empty when it is.
    pub reasons: Vec<Reason>,
    /// What soft checks saw while they only observe (no reference yet).
    pub observed: Vec<Reason>,
    /// What the line does with the part; `None` without a rule.
    pub decision: Option<Decision>,
    /// The part's id.
    pub part: Option<Arc<str>>,
    /// When the known answers last came out right on this machine.
    pub proved_at: Option<SystemTime>,
    /// Boxes in pixels of the source picture; `None` when trust is `fault`, empty only when the engine answered none.
    pub detections: Option<Vec<Detection>>,
    /// Candidates above the floor before NMS.
    pub boxes_before_nms: u64,
    /// Where the engine's time went.
    pub timings: EngineTimings,
    /// From arrival of the frame to this row, ms.
    pub age_ms: f64,
    /// The engine's memory counters.
    pub memory: MemoryFigures,
    /// The engine that answered.
    pub engine: Arc<EngineStamp>,
    /// The picture, for sinks that draw; `None` when there is none (unreadable, lost camera).
    pub frame: Option<Arc<Frame>>,
}

/// Which engine answered; part of every result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineStamp {
    /// Name of the bundle.
    pub bundle: String,
    /// Bundle id: SHA-256 of the manifest, lower-case hex.
    pub sha256: String,
    /// Backend with version.
    pub backend: String,
    /// Class names, index = class id.
    pub classes: Arc<[String]>,
}
