//! Where everything of a lane lies in its arena.

use super::answer::{ANSWER_BYTES, AnswerBox, FRONT_BOXES};
use super::decode::{PARTIAL_BYTES, SCAN_THREADS};
use super::head::{HEAD_BYTES, WEIGHT_BYTES};
use crate::error::{Error, Result};
use crate::units::index;
use std::ops::Range;

/// Everything starts at multiples of this: what TensorRT asks of activations, and more than any kernel needs.
const ALIGNMENT: usize = 512;
/// In front of the first slot: the score floor.
const FLOOR_BYTES: usize = ALIGNMENT;

/// What the sizes of a lane follow from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneShape {
    /// Pictures a run.
    pub batch: u32,
    /// 1 or 3.
    pub channels: u32,
    /// Columns of the network's input.
    pub width: u32,
    /// Rows of the network's input.
    pub height: u32,
    /// Bytes for the pixels of one source picture.
    pub picture_bytes: usize,
    /// Anchors or rows of one picture's output.
    pub anchors: u32,
    /// Most boxes a picture.
    pub cap: u32,
    /// Whether the pictures of the next run can be copied while one is in flight: a second staging memory.
    pub ahead: bool,
}

/// A part of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// From the arena's start.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

/// The parts of a lane, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneLayout {
    /// What it was computed from.
    pub shape: LaneShape,
    /// Inputs and outputs in the engine's order.
    pub tensors: Vec<Section>,
    /// TensorRT's scratch memory.
    pub activations: Section,
    /// Floor and slots as they come from the host.
    pub staging: Section,
    /// The same again, for the run after; only with [`LaneShape::ahead`].
    pub staging_ahead: Option<Section>,
    /// One slot of staging.
    pub slot_bytes: usize,
    /// Sort keys.
    pub keys: Section,
    /// Class of each anchor.
    pub class_ids: Section,
    /// Counts of each block.
    pub partials: Section,
    /// Counts and first boxes, as they go to the host.
    pub answers: Section,
    /// Boxes behind the first; `None` when the cap is not above them.
    pub rest: Option<Section>,
    /// First byte behind the lane.
    pub end: usize,
}

impl Section {
    /// Where the slots start in a staging memory.
    pub(super) fn first_slot(self) -> Section {
        Section { offset: self.offset + FLOOR_BYTES, bytes: self.bytes - FLOOR_BYTES }
    }
}

impl LaneLayout {
    /// Lays a lane out from `start` of the arena.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for sizes that no memory holds.
    pub fn new(shape: LaneShape, tensor_bytes: &[usize], activation_bytes: usize, start: usize) -> Result<LaneLayout> {
        let too_large = || Error::refused("found sizes beyond what an address holds, expected a network that fits");
        let mut end = start;
        let mut place = |bytes: usize| -> Result<Section> {
            let offset = end.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
            end = offset.checked_add(bytes).filter(|&end| end < usize::MAX / 2).ok_or_else(too_large)?;
            Ok(Section { offset, bytes })
        };
        let batch = index(shape.batch);
        let weights = (index(shape.width) + index(shape.height)) * WEIGHT_BYTES;
        let slot_bytes = (HEAD_BYTES + weights)
            .checked_add(shape.picture_bytes)
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
            .ok_or_else(too_large)?;
        let times = |bytes: usize| batch.checked_mul(bytes).ok_or_else(too_large);
        let staging_bytes = times(slot_bytes)?.checked_add(FLOOR_BYTES).ok_or_else(too_large)?;
        let anchors = index(shape.anchors);
        let blocks = index(shape.anchors.div_ceil(SCAN_THREADS));
        let rest = index(shape.cap.saturating_sub(FRONT_BOXES));
        let tensors = tensor_bytes.iter().map(|&bytes| place(bytes)).collect::<Result<_>>()?;
        Ok(LaneLayout {
            tensors,
            activations: place(activation_bytes)?,
            staging: place(staging_bytes)?,
            staging_ahead: if shape.ahead { Some(place(staging_bytes)?) } else { None },
            slot_bytes,
            keys: place(times(8 * anchors.next_power_of_two())?)?,
            class_ids: place(times(4 * anchors)?)?,
            partials: place(times(PARTIAL_BYTES * blocks)?)?,
            answers: place(times(ANSWER_BYTES)?)?,
            rest: if rest > 0 { Some(place(times(rest * AnswerBox::BYTES)?)?) } else { None },
            shape,
            end,
        })
    }

    /// Bytes of the staging memory that belong to `slot`.
    ///
    /// # Errors
    /// No such slot.
    pub fn slot(&self, slot: u32) -> Result<Range<usize>> {
        if slot >= self.shape.batch {
            return Err(Error::unexpected(format!("found slot {slot}, expected below {}", self.shape.batch)));
        }
        let start = FLOOR_BYTES + index(slot) * self.slot_bytes;
        Ok(start..start + self.slot_bytes)
    }

    /// The staging memories: one, or two with [`LaneShape::ahead`].
    pub fn stagings(&self) -> impl Iterator<Item = Section> {
        std::iter::once(self.staging).chain(self.staging_ahead)
    }

    /// Bytes in front of a slot's pixels.
    pub fn pixels_start(&self) -> usize {
        HEAD_BYTES + (index(self.shape.width) + index(self.shape.height)) * WEIGHT_BYTES
    }

    /// Bytes for the pixels of one picture.
    pub fn pixel_bytes(&self) -> usize {
        self.slot_bytes - self.pixels_start()
    }
}
