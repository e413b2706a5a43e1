//! What is truly before the simulated camera: boxes, parts, defects and the events in force.

use crate::error::{Error, Result};
use crate::units::BoxPx;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Class names of everything that the line shows; index = class id of the sample model and of written labels.
pub const CLASSES: [&str; 7] = ["gasket", "bracket", "plate", "scratch", "crack", "stain", "missing_screw"];

/// Class ids from here on are defects.
pub const FIRST_DEFECT: u32 = 3;

/// One object that is truly there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruthBox {
    /// Index into [`CLASSES`].
    pub class_id: u32,
    /// Name of the class.
    pub class: String,
    /// Tight box around what shows of the object, pixels of the picture.
    #[serde(rename = "box")]
    pub edges: BoxPx,
    /// Area of this box as a share of the whole object's box, above 0 to 1.
    pub visible: f32,
    /// Id of the part it belongs to.
    pub part: Arc<str>,
}

impl TruthBox {
    /// Boxes that are cut by the picture's edge below this share are neither asked for nor counted as wrong.
    pub const COUNTS_FROM: f32 = 0.5;

    /// Whether a detector must find it.
    pub fn counts(&self) -> bool {
        self.visible >= Self::COUNTS_FROM
    }

    /// Whether it is a defect rather than a part.
    pub fn is_defect(&self) -> bool {
        self.class_id >= FIRST_DEFECT
    }
}

/// The part at the inspection position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartTruth {
    /// Id, as in the frame's part tag.
    pub id: Arc<str>,
    /// `gasket`, `bracket` or `plate`.
    pub kind: String,
    /// Whether it has a defect.
    pub defective: bool,
    /// Names of its defects.
    pub defects: Vec<String>,
}

/// The truth of one frame; one JSON line in a truth file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameTruth {
    /// Capture number.
    pub frame: u64,
    /// The line's clock, seconds.
    pub time_s: f64,
    /// The part at the inspection position, in the one frame in which it is there.
    pub part: Option<PartTruth>,
    /// Names of the events in force, in the script's order.
    pub events: Vec<String>,
    /// Whether the picture shows the line as it should be seen (no freeze, black, blur, over-exposure, bump).
    pub picture_good: bool,
    /// Share of the full light, 0 to 1.
    pub light: f32,
    /// Whether the belt moves.
    pub belt_moves: bool,
    /// Everything before the camera, parts first, also while the picture does not show it.
    pub boxes: Vec<TruthBox>,
}

/// Writes truth, one JSON line a frame.
#[derive(Debug)]
pub struct TruthWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl TruthWriter {
    /// Creates or replaces `path`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| unwritable(path, error))?;
        Ok(TruthWriter { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Appends the truth of one frame.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the disk refuses it.
    pub fn put(&mut self, truth: &FrameTruth) -> Result<()> {
        let line = serde_json::to_string(truth).map_err(|error| unwritable(&self.path, error.into()))?;
        writeln!(self.file, "{line}").map_err(|error| unwritable(&self.path, error))
    }

    /// Hands everything to the operating system.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the disk refuses it.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| unwritable(&self.path, error))
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    Error::output("the truth file cannot be written, expected a writable file")
        .because(error)
        .at(path.display())
        .hint("name a file in a folder you may write to, or leave the truth out")
}
