//! Drawing of boxes, labels and verdicts on a copy of a picture. Never touches the frame itself.

mod font;

use crate::decision::Decision;
use crate::detections::Detection;
use crate::error::{Error, Result};
use crate::frame::{Picture, PixelFormat};
use crate::guard::Trust;
use crate::units::{count32, index};
use font::{GLYPH_HEIGHT_PX, GLYPH_WIDTH_PX, glyph};
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use std::sync::Arc;

/// Red, green, blue.
type Color = [u8; 3];

/// Colours of classes, readable on dark and on bright pictures; class ids beyond the list start over.
const PALETTE: [Color; 8] = [
    [255, 178, 0],
    [0, 200, 255],
    [255, 96, 160],
    [120, 230, 80],
    [190, 140, 255],
    [255, 230, 60],
    [0, 220, 170],
    [255, 120, 60],
];
const BLACK: Color = [12, 14, 16];
const WHITE: Color = [255, 255, 255];

/// What to draw on a picture.
#[derive(Debug, Clone, Default)]
pub struct Drawing {
    /// Boxes in pixels of the source picture.
    pub detections: Vec<Detection>,
    /// Class names, index = class id.
    pub classes: Arc<[String]>,
    /// A strip below the picture.
    pub banner: Option<Banner>,
}

/// The strip below a saved picture.
#[derive(Debug, Clone)]
pub struct Banner {
    /// What the guard says.
    pub trust: Trust,
    /// What the line does.
    pub decision: Option<Decision>,
    /// One line of text.
    pub text: String,
}

/// An RGB copy of a picture with what is drawn on it; the buffer is reused from picture to picture.
#[derive(Debug, Default)]
pub struct Canvas {
    width_px: usize,
    height_px: usize,
    rgb: Vec<u8>,
    row: Vec<u8>,
}

impl Canvas {
    /// Width, px.
    pub fn width_px(&self) -> usize {
        self.width_px
    }

    /// Height, px.
    pub fn height_px(&self) -> usize {
        self.height_px
    }

    /// The pixels: `3 × width × height` bytes, red, green, blue.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Copies `picture`, made smaller by a whole factor so that it is at most `most_width_px` wide, and draws on it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a picture that does not match its own description.
    pub fn paint(&mut self, picture: &Picture, drawing: &Drawing, most_width_px: usize) -> Result<()> {
        let factor = self.copy(picture, most_width_px)?;
        let scale = (self.width_px / 480).clamp(1, 4);
        for detection in &drawing.detections {
            self.detection(detection, &drawing.classes, factor, scale);
        }
        if let Some(banner) = &drawing.banner {
            self.banner(banner, scale);
        }
        Ok(())
    }

    /// The picture as JPEG of this quality (1 to 100).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when the encoder refuses the size (above 65,535 px).
    pub fn jpeg(&self, quality: u8) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.rgb.len() / 8);
        JpegEncoder::new_with_quality(&mut bytes, quality)
            .encode(&self.rgb, count32(self.width_px), count32(self.height_px), ExtendedColorType::Rgb8)
            .map_err(|why| Error::unexpected("the picture cannot be encoded as JPEG").because(why))?;
        Ok(bytes)
    }

    /// Averages blocks of factor × factor source pixels; the factor is returned.
    fn copy(&mut self, picture: &Picture, most_width_px: usize) -> Result<usize> {
        if !picture.is_whole() {
            return Err(Error::refused(format!("found a picture with fewer bytes than {} needs", picture.size)));
        }
        let (width, height) = (index(picture.size.width_px), index(picture.size.height_px));
        let factor = width.div_ceil(most_width_px.max(1)).min(height).max(1);
        self.width_px = (width / factor).max(1);
        self.height_px = (height / factor).max(1);
        self.rgb.clear();
        self.rgb.resize(self.width_px * self.height_px * 3, 0);
        self.row.resize(width * 3, 0);
        let mut sums = vec![0_u32; self.width_px * 3];
        let area = count32(factor * factor);
        for y in 0..self.height_px {
            sums.fill(0);
            for source_y in y * factor..(y + 1) * factor {
                rgb_row(picture, source_y, &mut self.row);
                for (sums, block) in sums.chunks_exact_mut(3).zip(self.row.chunks_exact(3 * factor)) {
                    for pixel in block.chunks_exact(3) {
                        sums.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += u32::from(value));
                    }
                }
            }
            let target = &mut self.rgb[y * self.width_px * 3..][..self.width_px * 3];
            for (target, sum) in target.iter_mut().zip(&sums) {
                *target = (sum / area) as u8;
            }
        }
        Ok(factor)
    }

    fn detection(&mut self, detection: &Detection, classes: &[String], factor: usize, scale: usize) {
        if !detection.edges.is_finite() {
            return;
        }
        let color = PALETTE[index(detection.class_id) % PALETTE.len()];
        let place = |edge_px: f32, end_px: usize| ((edge_px.max(0.0) as usize) / factor).min(end_px);
        let left = place(detection.edges.left_px, self.width_px);
        let right = place(detection.edges.right_px, self.width_px);
        let top = place(detection.edges.top_px, self.height_px);
        let bottom = place(detection.edges.bottom_px, self.height_px);
        self.outline(left, top, right, bottom, scale + 1, color);
        let label = match classes.get(index(detection.class_id)) {
            Some(name) if name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
                format!("{name} {:.2}", detection.score)
            }
            _ => format!("#{} {:.2}", detection.class_id, detection.score),
        };
        let height = (GLYPH_HEIGHT_PX + 4) * scale;
        let label_top = if top >= height { top - height } else { top };
        let width = text_width_px(&label, scale) + 4 * scale;
        let label_left = left.min(self.width_px.saturating_sub(width));
        self.fill(label_left, label_top, width, height, color);
        self.text(&label, label_left + 2 * scale, label_top + 2 * scale, scale, BLACK);
    }

    fn banner(&mut self, banner: &Banner, scale: usize) {
        let (word, color) = match (banner.trust, banner.decision) {
            (Trust::Fault, _) | (_, Some(Decision::NotInspected)) => ("NOT INSPECTED", [240, 196, 25]),
            (_, Some(Decision::Pass)) => ("PASS", [90, 200, 110]),
            (_, Some(Decision::Reject)) => ("REJECT", [235, 70, 60]),
            (Trust::Suspect, None) => ("SUSPECT", [240, 196, 25]),
            (Trust::Trusted, None) => ("", BLACK),
        };
        let height = (GLYPH_HEIGHT_PX + 8) * scale;
        let top = self.height_px;
        self.height_px += height;
        self.rgb.resize(self.width_px * self.height_px * 3, 0);
        self.fill(0, top, self.width_px, height, BLACK);
        let mut left = 4 * scale;
        if !word.is_empty() {
            let width = text_width_px(word, scale) + 8 * scale;
            self.fill(0, top, width, height, color);
            self.text(word, left, top + 4 * scale, scale, BLACK);
            left += width;
        }
        self.text(&banner.text, left, top + 4 * scale, scale, WHITE);
    }

    fn outline(&mut self, left: usize, top: usize, right: usize, bottom: usize, thickness: usize, color: Color) {
        let (width, height) = (right.saturating_sub(left), bottom.saturating_sub(top));
        self.fill(left, top, width, thickness.min(height), color);
        self.fill(left, bottom.saturating_sub(thickness).max(top), width, thickness.min(height), color);
        self.fill(left, top, thickness.min(width), height, color);
        self.fill(right.saturating_sub(thickness).max(left), top, thickness.min(width), height, color);
    }

    /// Fills what of the rectangle lies on the canvas.
    fn fill(&mut self, left: usize, top: usize, width: usize, height: usize, color: Color) {
        let right = (left + width).min(self.width_px);
        for y in top..(top + height).min(self.height_px) {
            let Some(row) = self.rgb.get_mut((y * self.width_px + left) * 3..(y * self.width_px + right) * 3) else {
                continue;
            };
            row.chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&color));
        }
    }

    fn text(&mut self, text: &str, left: usize, top: usize, scale: usize, color: Color) {
        for (position, character) in text.chars().enumerate() {
            let glyph_left = left + position * (GLYPH_WIDTH_PX + 1) * scale;
            if glyph_left >= self.width_px {
                return;
            }
            for (y, bits) in glyph(character).iter().enumerate() {
                for x in (0..GLYPH_WIDTH_PX).filter(|x| bits & (0x10 >> x) != 0) {
                    self.fill(glyph_left + x * scale, top + y * scale, scale, scale, color);
                }
            }
        }
    }
}

fn text_width_px(text: &str, scale: usize) -> usize {
    text.chars().count() * (GLYPH_WIDTH_PX + 1) * scale
}

/// A picture with its drawing as JPEG.
///
/// # Errors
/// As [`Canvas::paint`] and [`Canvas::jpeg`].
pub fn jpeg(picture: &Picture, drawing: &Drawing, most_width_px: usize, quality: u8) -> Result<Vec<u8>> {
    let mut canvas = Canvas::default();
    canvas.paint(picture, drawing, most_width_px)?;
    canvas.jpeg(quality)
}

/// One row of a whole picture as RGB into `target`, `3 × width` bytes.
fn rgb_row(picture: &Picture, y: usize, target: &mut [u8]) {
    let bytes = picture.pixels.as_slice();
    let start = y * picture.stride_bytes;
    let row = &bytes[start..start + picture.format.row_bytes(picture.size.width_px)];
    let pixels = target.chunks_exact_mut(3);
    match picture.format {
        PixelFormat::Rgb8 => target.copy_from_slice(row),
        PixelFormat::Bgr8 => {
            pixels.zip(row.chunks_exact(3)).for_each(|(to, from)| to.copy_from_slice(&[from[2], from[1], from[0]]));
        }
        PixelFormat::Gray8 => pixels.zip(row).for_each(|(to, &luma)| to.fill(luma)),
        PixelFormat::Yuyv => {
            let pixel = |x: usize| (row[x / 2 * 4 + x % 2 * 2], row[x / 2 * 4 + 1], row[x / 2 * 4 + 3]);
            pixels.enumerate().for_each(|(x, to)| to.copy_from_slice(&rgb_of(pixel(x))));
        }
        PixelFormat::Uyvy => {
            let pixel = |x: usize| (row[x / 2 * 4 + x % 2 * 2 + 1], row[x / 2 * 4], row[x / 2 * 4 + 2]);
            pixels.enumerate().for_each(|(x, to)| to.copy_from_slice(&rgb_of(pixel(x))));
        }
        PixelFormat::Nv12 => {
            let chroma = &bytes[picture.stride_bytes * (index(picture.size.height_px) + y / 2)..];
            let byte = |position: usize| chroma.get(position).copied().unwrap_or(128);
            let pixel = |x: usize| (row[x], byte(x / 2 * 2), byte(x / 2 * 2 + 1));
            pixels.enumerate().for_each(|(x, to)| to.copy_from_slice(&rgb_of(pixel(x))));
        }
    }
}

/// Luma and both chroma values (BT.601, luma 16 to 235) as RGB.
fn rgb_of((luma, chroma_blue, chroma_red): (u8, u8, u8)) -> Color {
    let luma = 298 * (i32::from(luma) - 16);
    let (blue, red) = (i32::from(chroma_blue) - 128, i32::from(chroma_red) - 128);
    let clip = |value: i32| ((value + 128) >> 8).clamp(0, 255) as u8;
    [clip(luma + 409 * red), clip(luma - 100 * blue - 208 * red), clip(luma + 516 * blue)]
}

#[cfg(test)]
mod tests;
