//! What stands in front of a picture in a slot; `struct Head` and `struct Weight` of `preprocess.cu`.

use super::layout::LaneLayout;
use crate::error::{Error, Result};
use crate::units::{count, index};

/// Length of a [`Head`].
pub(super) const HEAD_BYTES: usize = 64;
/// Length of a [`Weight`].
pub(super) const WEIGHT_BYTES: usize = 12;

/// How the kernel reads pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureFormat {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// One byte a pixel.
    Gray,
    /// Luma plane, then interleaved chroma of half size.
    Nv12,
    /// Y0 U Y1 V.
    Yuyv,
    /// U Y0 V Y1.
    Uyvy,
    /// Already the input: planes of bytes.
    Letterboxed,
}

impl PictureFormat {
    fn number(self) -> u32 {
        match self {
            PictureFormat::Rgb => 0,
            PictureFormat::Bgr => 1,
            PictureFormat::Gray => 2,
            PictureFormat::Nv12 => 3,
            PictureFormat::Yuyv => 4,
            PictureFormat::Uyvy => 5,
            PictureFormat::Letterboxed => 6,
        }
    }
}

/// How the kernel scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleMode {
    /// Sizes are equal.
    Copy,
    /// Exactly half: the mean of four.
    Halve,
    /// By weights.
    Blend,
}

/// One picture's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// How pixels lie.
    pub format: PictureFormat,
    /// How it is scaled.
    pub mode: ScaleMode,
    /// Source columns.
    pub source_width: u32,
    /// Source rows.
    pub source_height: u32,
    /// Bytes a row.
    pub stride: u32,
    /// Bytes of the picture.
    pub length: u32,
    /// Columns of the scaled picture.
    pub scaled_width: u32,
    /// Rows of the scaled picture.
    pub scaled_height: u32,
    /// Empty columns on the left.
    pub pad_left: u32,
    /// Empty rows on top.
    pub pad_top: u32,
}

/// A picture with what the kernel needs to know of it.
#[derive(Debug, Clone, Copy)]
pub struct StagedPicture<'a> {
    /// Description.
    pub head: Head,
    /// One a column of the scaled picture; only for [`ScaleMode::Blend`].
    pub columns: &'a [Weight],
    /// One a row of the scaled picture; only for [`ScaleMode::Blend`].
    pub rows: &'a [Weight],
    /// The pixels.
    pub pixels: &'a [u8],
}

/// Where one column or row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Left column or upper row.
    pub first: u32,
    /// Lower row.
    pub second: u32,
    /// 11-bit weight of the first.
    pub first_share: i16,
    /// 11-bit weight of the second.
    pub second_share: i16,
}

impl Head {
    /// Marks a slot as unused.
    pub(super) fn write_unused(slot: &mut [u8]) {
        slot[..HEAD_BYTES].fill(0);
    }

    fn write(&self, slot: &mut [u8]) {
        let mode = match self.mode {
            ScaleMode::Copy => 0,
            ScaleMode::Halve => 1,
            ScaleMode::Blend => 2,
        };
        let mut words = [0_u32; HEAD_BYTES / 4];
        words[..11].copy_from_slice(&[
            1,
            self.format.number(),
            mode,
            self.source_width,
            self.source_height,
            self.stride,
            self.length,
            self.scaled_width,
            self.scaled_height,
            self.pad_left,
            self.pad_top,
        ]);
        for (bytes, word) in slot.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Bytes that the kernel may read of such a picture (chroma beyond the end is taken as gray there).
    fn needed_bytes(&self, channels: u32) -> u64 {
        let (width, height, stride) =
            (u64::from(self.source_width), u64::from(self.source_height), u64::from(self.stride));
        let (row, rows) = match self.format {
            PictureFormat::Rgb | PictureFormat::Bgr => (3 * width, height),
            PictureFormat::Gray => (width, height),
            PictureFormat::Nv12 => (width, height + height.div_ceil(2)),
            PictureFormat::Yuyv | PictureFormat::Uyvy => (4 * width.div_ceil(2), height),
            PictureFormat::Letterboxed => return u64::from(channels) * width * height,
        };
        if row > stride { u64::MAX } else { stride * rows }
    }
}

impl StagedPicture<'_> {
    /// Checks the picture against the lane and writes it; the bytes written.
    pub(super) fn write(&self, layout: &LaneLayout, slot: &mut [u8]) -> Result<usize> {
        self.check(layout)?;
        let head = &self.head;
        head.write(slot);
        if head.mode == ScaleMode::Blend {
            write_weights(self.columns, &mut slot[HEAD_BYTES..]);
            write_weights(self.rows, &mut slot[HEAD_BYTES + index(layout.shape.width) * WEIGHT_BYTES..]);
        }
        let start = layout.pixels_start();
        let end = start + self.pixels.len();
        slot[start..end].copy_from_slice(self.pixels);
        Ok(end)
    }

    /// What keeps the kernel inside of the slot.
    fn check(&self, layout: &LaneLayout) -> Result<()> {
        let (head, shape) = (&self.head, &layout.shape);
        let known = count(self.pixels.len());
        let long_enough = head.needed_bytes(shape.channels) <= known
            && u64::from(head.length) == known
            && self.pixels.len() <= layout.pixel_bytes();
        let inside = |from: u32, length: u32, all: u32| from.checked_add(length).is_some_and(|end| end <= all);
        let placed = inside(head.pad_left, head.scaled_width, shape.width)
            && inside(head.pad_top, head.scaled_height, shape.height)
            && head.source_width > 0
            && head.source_height > 0;
        let (width, height) = (u64::from(head.source_width), u64::from(head.source_height));
        let (columns, rows) = (u64::from(head.scaled_width), u64::from(head.scaled_height));
        let scaled = match head.mode {
            _ if head.format == PictureFormat::Letterboxed => {
                (head.source_width, head.source_height) == (shape.width, shape.height)
            }
            ScaleMode::Copy => columns <= width && rows <= height,
            ScaleMode::Halve => 2 * columns <= width && 2 * rows <= height,
            ScaleMode::Blend => {
                count(self.columns.len()) == columns
                    && count(self.rows.len()) == rows
                    && self.columns.iter().all(|weight| weight.first < head.source_width)
                    && self.rows.iter().all(|weight| weight.first.max(weight.second) < head.source_height)
            }
        };
        if long_enough && placed && scaled {
            return Ok(());
        }
        Err(Error::refused(format!(
            "found {head:?} with {known} bytes, {} and {} weights, expected a picture that fits {shape:?}",
            self.columns.len(),
            self.rows.len()
        )))
    }
}

fn write_weights(weights: &[Weight], target: &mut [u8]) {
    for (bytes, weight) in target.as_chunks_mut::<WEIGHT_BYTES>().0.iter_mut().zip(weights) {
        bytes[..4].copy_from_slice(&weight.first.to_le_bytes());
        bytes[4..8].copy_from_slice(&weight.second.to_le_bytes());
        bytes[8..10].copy_from_slice(&weight.first_share.to_le_bytes());
        bytes[10..].copy_from_slice(&weight.second_share.to_le_bytes());
    }
}
