//! What the candidate kernels give; `struct Answer` and `struct Box` of `candidates.cu`.

use super::layout::LaneLayout;
use crate::error::{Error, Result};
use crate::units::{count32, index};

/// Boxes that come back with every answer.
pub const FRONT_BOXES: u32 = 1024;
const COUNTS_BYTES: usize = 64;
/// Length of one picture's answer.
pub(super) const ANSWER_BYTES: usize = COUNTS_BYTES + 1024 * AnswerBox::BYTES;

/// One box, best first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerBox {
    /// Row in the output.
    pub anchor: u32,
    /// Class with the highest score.
    pub class_id: u32,
    /// Its score.
    pub score: f32,
    /// Left, top, right, bottom in pixels of the input.
    pub edges: [f32; 4],
}

impl AnswerBox {
    pub(super) const BYTES: usize = 32;

    pub(super) fn read(bytes: &[u8]) -> AnswerBox {
        let float = |at: usize| f32::from_bits(word(bytes, at));
        AnswerBox {
            anchor: word(bytes, 0),
            class_id: word(bytes, 4),
            score: float(8),
            edges: [float(12), float(16), float(20), float(24)],
        }
    }
}

/// The answer for one slot. Counts as [`crate::engine::OutputStats`] means them.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Elements looked at.
    pub values: u32,
    /// Not a number.
    pub nan: u32,
    /// Infinite.
    pub infinite: u32,
    /// Union of all magnitude bits; 0 when everything is zero.
    pub any_bit: u32,
    /// Scores outside 0..1.
    pub scores_out_of_range: u32,
    /// Class ids that are none.
    pub class_ids_out_of_range: u32,
    /// Row counts that are none.
    pub counts_out_of_range: u32,
    /// Finite best scores.
    pub best_scores: u32,
    /// Lowest of them.
    pub minimum_score: f32,
    /// Highest of them.
    pub maximum_score: f32,
    /// Their sum.
    pub sum: f64,
    /// Anchors at or above the floor.
    pub boxes_before_nms: u32,
    /// Boxes written, at most the cap.
    pub kept: u32,
    /// Boxes cut off by the cap.
    pub overflow: u32,
    boxes: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(super) fn read(answers: &'a [u8], slot: u32, layout: &LaneLayout) -> Result<Answer<'a>> {
        let start = index(slot) * ANSWER_BYTES;
        let Some(bytes) = answers.get(start..start + ANSWER_BYTES).filter(|_| slot < layout.shape.batch) else {
            return Err(Error::unexpected(format!("found slot {slot}, expected below {}", layout.shape.batch)));
        };
        let at = |number: usize| word(bytes, 4 * number);
        let (kept, overflow) = (at(14), at(15));
        let whole = u64::from(kept) + u64::from(overflow) == u64::from(at(11)) && kept <= layout.shape.cap;
        if !whole || at(11) > layout.shape.anchors || at(10) > layout.shape.anchors {
            return Err(Error::new(
                crate::ErrorKind::Device,
                format!("the GPU's answer contradicts itself: {} boxes, {kept} kept, {overflow} cut off", at(11)),
            ));
        }
        Ok(Answer {
            values: at(0),
            nan: at(1),
            infinite: at(2),
            any_bit: at(3),
            scores_out_of_range: at(4),
            class_ids_out_of_range: at(5),
            counts_out_of_range: at(6),
            best_scores: at(7),
            minimum_score: of_ordered(at(8)),
            maximum_score: of_ordered(at(9)),
            boxes_before_nms: at(10),
            sum: f64::from_bits(u64::from(at(12)) | u64::from(at(13)) << 32),
            kept,
            overflow,
            boxes: &bytes[COUNTS_BYTES..],
        })
    }

    /// The first boxes, at most [`FRONT_BOXES`].
    pub fn front(&self) -> impl Iterator<Item = AnswerBox> + 'a {
        let count = index(self.kept.min(FRONT_BOXES));
        self.boxes.chunks_exact(AnswerBox::BYTES).take(count).map(AnswerBox::read)
    }

    /// Boxes that did not fit in front.
    pub fn behind(&self) -> u32 {
        self.kept.saturating_sub(count32(self.front().count()))
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Back from the order of unsigned numbers.
fn of_ordered(bits: u32) -> f32 {
    f32::from_bits(if bits & 0x8000_0000 != 0 { bits & 0x7fff_ffff } else { !bits })
}
