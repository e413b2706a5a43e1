//! What travels from a camera to an engine.

use crate::frame::{Frame, PartTag};
use crate::guard::Reason;
use crate::guard::picture::PictureStats;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// One capture on its way to the engine.
#[derive(Debug)]
pub struct Work {
    /// Capture number within the stream.
    pub number: u64,
    /// Wall-clock capture time; `None` for files.
    pub captured_at: Option<SystemTime>,
    /// File name or address.
    pub source: Option<Arc<str>>,
    /// When it arrived.
    pub arrived: Instant,
    /// The part it was taken for.
    pub part: Option<PartTag>,
    /// The picture, or why there is none.
    pub picture: Sight,
}

/// What the camera saw.
#[derive(Debug)]
pub enum Sight {
    /// A frame with the statistics of its picture.
    Frame(Arc<Frame>, Box<PictureStats>),
    /// A picture that cannot be read, and why.
    Unreadable(String),
    /// A picture that is not looked at, and why.
    SetAside(Reason),
}
