//! Engines: frames in, candidates out. Preprocessing and candidate filtering belong to the engine, because on a GPU they
//! are kernels in the same CUDA graph. Nobody outside sees a raw tensor.

pub mod candidates;
pub mod canned;
pub mod cpu;
pub mod letterbox;
pub mod tensorrt;

use crate::error::{Error, Result};
use crate::frame::{Frame, FrameTag};
use crate::units::{BoxPx, Bytes, SizePx};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Element type of a tensor at the border of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    F16,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
}

/// What the network takes: `[batch, channels, height, width]`, RGB, letterboxed with 114, values 0..1 (0..255 for `u8`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputSpec {
    /// Name of the input tensor.
    pub name: String,
    /// Pictures a run.
    pub batch: u32,
    /// 3 for RGB, 1 for gray.
    pub channels: u32,
    /// Network input size in pixels.
    pub size: SizePx,
    /// Element type of the input tensor.
    pub element: ElementType,
}

/// How the outputs of the network are to be read. Decided from shapes and metadata when the bundle is built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Layout {
    /// `[n, 4 + classes, anchors]`: centre x, centre y, width, height in input pixels, then class scores 0..1. NMS needed.
    Raw {
        /// Output tensor.
        output: String,
        /// Number of classes.
        classes: u32,
        /// Number of anchors.
        anchors: u32,
    },
    /// `[n, anchors, 5 + classes]`: box as in `Raw`, objectness, class scores; score = objectness × class. NMS needed.
    Objectness {
        /// Output tensor.
        output: String,
        /// Number of classes.
        classes: u32,
        /// Number of anchors.
        anchors: u32,
    },
    /// `[n, rows, 6]`: x1, y1, x2, y2, score, class. No NMS; unused rows are zero.
    EndToEnd {
        /// Output tensor.
        output: String,
        /// Number of classes.
        classes: u32,
        /// Rows a picture.
        rows: u32,
    },
    /// The NMS plugin's four outputs: count `[n, 1]`, boxes `[n, rows, 4]`, scores `[n, rows]`, classes `[n, rows]`.
    NmsPlugin {
        /// Tensor with the number of valid rows.
        count: String,
        /// Tensor with corners x1, y1, x2, y2 in input pixels.
        boxes: String,
        /// Tensor with scores.
        scores: String,
        /// Tensor with class ids.
        class_ids: String,
        /// Number of classes.
        classes: u32,
        /// Rows a picture.
        rows: u32,
    },
}

impl Layout {
    /// Number of classes.
    pub fn classes(&self) -> u32 {
        match self {
            Layout::Raw { classes, .. }
            | Layout::Objectness { classes, .. }
            | Layout::EndToEnd { classes, .. }
            | Layout::NmsPlugin { classes, .. } => *classes,
        }
    }

    /// Anchors or rows a picture: the most boxes a picture can give before NMS.
    pub fn capacity(&self) -> u32 {
        match self {
            Layout::Raw { anchors, .. } | Layout::Objectness { anchors, .. } => *anchors,
            Layout::EndToEnd { rows, .. } | Layout::NmsPlugin { rows, .. } => *rows,
        }
    }

    /// Whether overlapping boxes are still to be removed.
    pub fn needs_nms(&self) -> bool {
        matches!(self, Layout::Raw { .. } | Layout::Objectness { .. })
    }

    /// Whether an output of nothing but zeros is a fault; padded rows are normal for end-to-end layouts.
    pub fn all_zero_is_fault(&self) -> bool {
        self.needs_nms()
    }
}

/// One box above the engine's score floor, before NMS.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Row in the network's output; ties in score are ordered by it.
    pub anchor: u32,
    /// Class with the highest score.
    pub class_id: u32,
    /// Score of that class, 0..1 in a healthy engine.
    pub score: f32,
    /// Edges in pixels of the network's input (letterboxed picture).
    pub edges: BoxPx,
}

/// The candidates of one picture, sorted by score (highest first), then by anchor, so that runs repeat exactly.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Candidates {
    /// At most the engine's cap; the highest scores are kept.
    pub boxes: Vec<Candidate>,
    /// Candidates that the cap cut off.
    pub overflow: u64,
}

/// What the engine saw in the raw output of one picture. Counts cover every element, not only candidates.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct OutputStats {
    /// Elements looked at.
    pub values: u64,
    /// Elements that are not a number.
    pub nan: u64,
    /// Elements that are infinite.
    pub infinite: u64,
    /// Whether every element is exactly zero.
    pub all_zero: bool,
    /// Scores below 0 or above 1.
    pub scores_out_of_range: u64,
    /// Class ids that are no integer in `0..classes` (layouts that carry ids).
    pub class_ids_out_of_range: u64,
    /// Row counts that the output cannot hold (layouts that carry a count).
    #[serde(default)]
    pub counts_out_of_range: u64,
    /// Lowest best-class score over all anchors or valid rows.
    pub minimum_score: f32,
    /// Highest best-class score over all anchors or valid rows.
    pub maximum_score: f32,
    /// Mean best-class score over all anchors or valid rows.
    pub mean_score: f32,
    /// Candidates at or above the floor, before the cap.
    pub boxes_before_nms: u64,
}

/// Scale and padding of one picture on its way into the network; the one source for the way back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Letterbox {
    /// Size of the source picture.
    pub source: SizePx,
    /// Size of the network's input.
    pub input: SizePx,
    /// Input pixels a source pixel.
    pub scale: f64,
    /// Empty columns on the left, input pixels.
    pub pad_left_px: u32,
    /// Empty rows on top, input pixels.
    pub pad_top_px: u32,
    /// Size of the scaled picture inside the input.
    pub scaled: SizePx,
}

/// Where the time went for one frame, milliseconds. Of a run of several frames each has an equal share, so that the times of
/// all frames add up to what the engine was busy.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineTimings {
    /// Letterbox, colour and number format.
    pub preprocess_ms: f64,
    /// Copies to and from the device; 0 on the CPU.
    pub transfer_ms: f64,
    /// The network.
    pub inference_ms: f64,
    /// Threshold, arg-max and statistics.
    pub postprocess_ms: f64,
}

/// The engine's own memory counters; free of driver calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// In use now.
    pub allocated: Bytes,
    /// Highest use since start or the last reset.
    pub peak: Bytes,
    /// Reserved by the memory plan.
    pub reserved: Bytes,
}

/// The answer for one frame.
#[derive(Debug, Clone)]
pub struct Inference {
    /// The frame this answers; set from the buffer that was run, compared by the guard.
    pub tag: FrameTag,
    /// How the picture was fitted into the input.
    pub letterbox: Letterbox,
    /// Boxes above the floor.
    pub candidates: Candidates,
    /// What the raw output looked like.
    pub stats: OutputStats,
    /// Where the time went.
    pub timings: EngineTimings,
}

/// What an engine is, for logs, results and checks.
#[derive(Debug, Clone)]
pub struct EngineInfo {
    /// Backend with version, as in `rten 0.27.0` or `onnxruntime 1.32.0`.
    pub backend: String,
    /// Input of the network.
    pub input: InputSpec,
    /// Layout of the outputs.
    pub layout: Layout,
    /// Class names, index = class id.
    pub classes: Arc<[String]>,
    /// Candidates below this score are not returned.
    pub score_floor: f32,
    /// CPU threads in use; 0 when the network runs on a GPU.
    pub threads: u32,
}

/// An engine. One thread owns it; frames carry their identity through it.
pub trait Engine: Send {
    /// What this engine is.
    fn info(&self) -> &EngineInfo;

    /// Runs `frames` (at most `info().input.batch`) and appends one [`Inference`] a frame, in order, to `answers`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a picture that does not match its own description,
    /// [`crate::ErrorKind::Device`] when the device failed, [`crate::ErrorKind::Budget`] when memory ran out.
    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()>;

    /// Runs that can be in flight at once. With 1, [`Engine::infer`] is all there is; with more, [`Engine::begin`] and
    /// [`Engine::finish`] let the next run begin while one is being computed. [`Engine::infer`] is called only while no lane is
    /// in flight.
    fn lanes(&self) -> usize {
        1
    }

    /// Starts a run of `frames` in a lane that is not in flight.
    ///
    /// # Errors
    /// As [`Engine::infer`]; the lane is not in flight then.
    fn begin(&mut self, _lane: usize, _frames: &[&Frame]) -> Result<()> {
        Err(Error::unexpected("found a run in flight, expected an engine with one lane to answer within the call"))
    }

    /// Waits for the run in a lane and appends its answers, one a frame, in order. The lane is free afterwards. Runs are finished in
    /// the order in which they began.
    ///
    /// # Errors
    /// As [`Engine::infer`]; nothing is appended then, and the lane is free.
    fn finish(&mut self, _lane: usize, _answers: &mut Vec<Inference>) -> Result<()> {
        Err(Error::unexpected("found no run in flight, expected an engine with one lane to answer within the call"))
    }

    /// The memory counters of this engine.
    fn memory(&self) -> MemoryFigures;

    /// Gives an answer's buffers back for reuse; optional, saves the allocation of the next answer.
    fn recycle(&mut self, _spent: Inference) {}

    /// Sets the peak counter back to the present use.
    fn reset_peak(&mut self) {}

    /// Lowers or raises the score floor; it takes effect with the next run.
    fn set_score_floor(&mut self, score_floor: f32);
}

/// Spare answers an engine keeps for reuse.
const SPARE_ANSWERS: usize = 64;

/// Refuses more frames than the network takes.
fn check_batch(info: &EngineInfo, frames: &[&Frame]) -> Result<()> {
    if crate::units::count32(frames.len()) > info.input.batch {
        return Err(Error::refused(format!(
            "found {} frames for one run, expected at most {}",
            frames.len(),
            info.input.batch
        )));
    }
    Ok(())
}
