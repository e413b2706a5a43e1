//! Letterbox: any picture → planar network input, and the way back for boxes.
//!
//! The picture is scaled to fit, centred and padded with 114. Scaling follows OpenCV's `INTER_LINEAR` on 8-bit pictures
//! bit for bit (11-bit fixed-point weights), YUV follows its BT.601 limited-range conversion bit for bit, so that the
//! network sees what it saw in training.

mod colour;
mod scale;

use super::Letterbox;
use crate::error::{Error, Result};
use crate::frame::{Picture, PixelFormat};
use crate::units::{self, BoxPx, SizePx, index};
use scale::{Axis, Row};

/// Grey level of the padding, as in training.
pub const PADDING: u8 = 114;

impl Letterbox {
    /// Scale and padding for a picture of `source` in an input of `input`: scaled to fit, centred, rounded half to even as
    /// Python's `round` does.
    pub fn fit(source: SizePx, input: SizePx) -> Letterbox {
        let ratio = |input_px: u32, source_px: u32| f64::from(input_px) / f64::from(source_px.max(1));
        let scale = ratio(input.height_px, source.height_px).min(ratio(input.width_px, source.width_px));
        let fitted = |source_px: u32, input_px: u32| {
            units::round_px((f64::from(source_px) * scale).round_ties_even()).clamp(1, input_px.max(1))
        };
        let scaled = SizePx::new(fitted(source.width_px, input.width_px), fitted(source.height_px, input.height_px));
        Letterbox {
            source,
            input,
            scale,
            pad_left_px: input.width_px.saturating_sub(scaled.width_px) / 2,
            pad_top_px: input.height_px.saturating_sub(scaled.height_px) / 2,
            scaled,
        }
    }

    /// A box in pixels of the network's input → pixels of the source picture, not clipped.
    pub fn to_source(&self, edges: BoxPx) -> BoxPx {
        let (left, top) = (units::float(self.pad_left_px), units::float(self.pad_top_px));
        let scale = units::narrow(self.scale);
        BoxPx::new(
            (edges.left_px - left) / scale,
            (edges.top_px - top) / scale,
            (edges.right_px - left) / scale,
            (edges.bottom_px - top) / scale,
        )
    }

    /// A box in pixels of the source picture → pixels of the network's input.
    pub fn to_input(&self, edges: BoxPx) -> BoxPx {
        let (left, top) = (units::float(self.pad_left_px), units::float(self.pad_top_px));
        let scale = units::narrow(self.scale);
        BoxPx::new(
            edges.left_px * scale + left,
            edges.top_px * scale + top,
            edges.right_px * scale + left,
            edges.bottom_px * scale + top,
        )
    }
}

/// How a picture of `letterbox.source` is scaled, for whoever does it elsewhere (the GPU).
pub(super) enum Scaling {
    /// Sizes are equal.
    Copy,
    /// Exactly half: the mean of four.
    Halve,
    /// By weights: first and second pixel or row, and their 11-bit shares.
    Blend {
        /// One a column.
        columns: Vec<(u32, u32, i16, i16)>,
        /// One a row.
        rows: Vec<(u32, u32, i16, i16)>,
    },
}

impl Scaling {
    /// The same choice as [`Filler`] makes.
    pub(super) fn of(letterbox: &Letterbox) -> Scaling {
        let (source, scaled) = (letterbox.source, letterbox.scaled);
        if source == scaled {
            return Scaling::Copy;
        }
        if is_halving(source, scaled) {
            return Scaling::Halve;
        }
        let parts = |axis: Axis| {
            let weights = axis.weights.iter();
            weights
                .map(|weight| {
                    let (first, second) = (units::count32(weight.first), units::count32(weight.second));
                    (first, second, weight.first_share, weight.second_share)
                })
                .collect()
        };
        Scaling::Blend {
            columns: parts(Axis::columns(source.width_px, scaled.width_px, 1)),
            rows: parts(Axis::rows(source.height_px, scaled.height_px)),
        }
    }
}

fn is_halving(source: SizePx, scaled: SizePx) -> bool {
    source.width_px == 2 * scaled.width_px && source.height_px == 2 * scaled.height_px
}

/// An element of the network's input: 0..1 for floats, 0..255 for `u8`.
pub trait Sample: Copy + Default + Send + 'static {
    /// The element for a grey level.
    fn from_grey(grey: u8) -> Self;
}

impl Sample for f32 {
    #[inline(always)]
    fn from_grey(grey: u8) -> Self {
        f32::from(grey) / 255.0
    }
}

impl Sample for half::f16 {
    #[inline(always)]
    fn from_grey(grey: u8) -> Self {
        half::f16::from_f32(f32::from(grey) / 255.0)
    }
}

impl Sample for u8 {
    #[inline(always)]
    fn from_grey(grey: u8) -> Self {
        grey
    }
}

/// Fills one picture's part of the input: `target` is `[channels, height, width]`, RGB (or gray for one channel), 0..1.
///
/// Allocates its work buffers on every call; [`Filler`] keeps them.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] when the picture does not hold what it describes, when `letterbox` is for another
/// size, or when `target` has the wrong length.
pub fn fill(picture: &Picture, letterbox: &Letterbox, channels: u32, target: &mut [f32]) -> Result<()> {
    Filler::new().fill(picture, letterbox, channels, target)
}

/// Fills network inputs; keeps its weights and row buffers, so that frames of one size cost no allocation.
#[derive(Debug, Default)]
pub struct Filler {
    planned: Option<Plan>,
    converted: Vec<u8>,
    kept_rows: [Row; 2],
    grey_out: Vec<u8>,
}

#[derive(Debug)]
struct Plan {
    source: SizePx,
    scaled: SizePx,
    planes: usize,
    columns: Axis,
    rows: Axis,
}

impl Filler {
    /// A filler without buffers; the first picture makes them.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`fill()`], for any element type.
    ///
    /// # Errors
    /// As [`fill()`].
    pub fn fill<T: Sample>(
        &mut self,
        picture: &Picture,
        letterbox: &Letterbox,
        channels: u32,
        target: &mut [T],
    ) -> Result<()> {
        check(picture, letterbox, channels, target.len())?;
        pad(letterbox, channels, target);
        // A gray picture needs one plane of work, whatever the network takes.
        let planes = if picture.format == PixelFormat::Gray8 { 1 } else { index(channels) };
        self.plan(letterbox, planes);
        for row in 0..index(letterbox.scaled.height_px) {
            self.scaled_row(picture, letterbox, row);
            self.emit(letterbox, channels, row, target);
        }
        Ok(())
    }

    fn plan(&mut self, letterbox: &Letterbox, planes: usize) {
        let (source, scaled) = (letterbox.source, letterbox.scaled);
        let fits = self
            .planned
            .as_ref()
            .is_some_and(|plan| plan.source == source && plan.scaled == scaled && plan.planes == planes);
        if !fits {
            self.planned = Some(Plan {
                source,
                scaled,
                planes,
                columns: Axis::columns(source.width_px, scaled.width_px, planes),
                rows: Axis::rows(source.height_px, scaled.height_px),
            });
            let wide = planes * index(scaled.width_px);
            self.kept_rows.iter_mut().for_each(|row| row.resize(wide));
            self.grey_out.resize(wide, 0);
            // One pixel more than the row, for pictures of a single column.
            self.converted.resize(planes * (index(source.width_px) + 2), 0);
        }
        self.kept_rows.iter_mut().for_each(Row::forget);
    }

    /// Leaves the scaled `row` in `grey_out`: `planes` runs of `scaled.width_px` grey levels.
    fn scaled_row(&mut self, picture: &Picture, letterbox: &Letterbox, row: usize) {
        let Some(plan) = &self.planned else { return };
        let (source, scaled) = (letterbox.source, letterbox.scaled);
        if source == scaled {
            let pixels = colour::row(picture, row, plan.planes, &mut self.converted);
            scale::deinterleave(pixels, plan.planes, index(scaled.width_px), &mut self.grey_out);
        } else if is_halving(source, scaled) {
            self.halved_row(picture, row);
        } else {
            self.blended_row(picture, row);
        }
    }

    fn blended_row(&mut self, picture: &Picture, row: usize) {
        let Some(plan) = &self.planned else { return };
        let weight = plan.rows.weights[row];
        let wanted = [weight.first, weight.second];
        if self.kept_rows[1].source_row == Some(wanted[0]) {
            self.kept_rows.swap(0, 1);
        }
        for (kept, source_row) in self.kept_rows.iter_mut().zip(wanted) {
            if kept.source_row != Some(source_row) {
                let pixels = colour::row(picture, source_row, plan.planes, &mut self.converted);
                kept.scale_columns(pixels, plan.planes, &plan.columns);
                kept.source_row = Some(source_row);
            }
        }
        scale::blend_rows(&self.kept_rows, weight, &mut self.grey_out);
    }

    /// OpenCV turns an exact halving into the mean of four pixels.
    fn halved_row(&mut self, picture: &Picture, row: usize) {
        let Some(plan) = &self.planned else { return };
        for (kept, source_row) in self.kept_rows.iter_mut().zip([2 * row, 2 * row + 1]) {
            let pixels = colour::row(picture, source_row, plan.planes, &mut self.converted);
            kept.sum_pairs(pixels, plan.planes);
        }
        scale::mean_of_four(&self.kept_rows, &mut self.grey_out);
    }

    fn emit<T: Sample>(&self, letterbox: &Letterbox, channels: u32, row: usize, target: &mut [T]) {
        let Some(plan) = &self.planned else { return };
        let width = index(letterbox.scaled.width_px);
        let input_width = index(letterbox.input.width_px);
        let start = (index(letterbox.pad_top_px) + row) * input_width + index(letterbox.pad_left_px);
        for channel in 0..index(channels) {
            let plane = channel.min(plan.planes - 1);
            let grey = &self.grey_out[plane * width..(plane + 1) * width];
            let from = channel * letterbox.input.pixels() + start;
            for (value, &grey) in target[from..from + width].iter_mut().zip(grey) {
                *value = T::from_grey(grey);
            }
        }
    }
}

fn check(picture: &Picture, letterbox: &Letterbox, channels: u32, target_length: usize) -> Result<()> {
    picture.check_whole()?;
    let scaled_fits = letterbox.scaled.width_px >= 1
        && letterbox.scaled.height_px >= 1
        && letterbox.scaled.width_px.saturating_add(letterbox.pad_left_px) <= letterbox.input.width_px
        && letterbox.scaled.height_px.saturating_add(letterbox.pad_top_px) <= letterbox.input.height_px;
    if picture.size != letterbox.source || !scaled_fits {
        return Err(Error::refused(format!(
            "found a picture of {}, expected the letterbox's {} inside {}",
            picture.size, letterbox.source, letterbox.input
        )));
    }
    let expected = index(channels).saturating_mul(letterbox.input.pixels());
    if !matches!(channels, 1 | 3) || target_length != expected {
        return Err(Error::refused(format!(
            "found an input of {target_length} values, expected {channels} × {} with 1 or 3 channels",
            letterbox.input
        )));
    }
    Ok(())
}

/// Writes the padding around the scaled picture.
fn pad<T: Sample>(letterbox: &Letterbox, channels: u32, target: &mut [T]) {
    let padding = T::from_grey(PADDING);
    let width = index(letterbox.input.width_px);
    let (left, top) = (index(letterbox.pad_left_px), index(letterbox.pad_top_px));
    let right = left + index(letterbox.scaled.width_px);
    let bottom = top + index(letterbox.scaled.height_px);
    for plane in target.chunks_exact_mut(letterbox.input.pixels()).take(index(channels)) {
        plane[..top * width].fill(padding);
        plane[bottom * width..].fill(padding);
        if left > 0 || right < width {
            for row in plane[top * width..bottom * width].chunks_exact_mut(width) {
                row[..left].fill(padding);
                row[right..].fill(padding);
            }
        }
    }
}

#[cfg(test)]
mod tests;
