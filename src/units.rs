//! Quantities with their units, and the only place where numbers change type with `as` on purpose.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Width and height of a picture in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SizePx {
    /// Width in pixels.
    pub width_px: u32,
    /// Height in pixels.
    pub height_px: u32,
}

impl SizePx {
    /// A size from width and height in pixels.
    pub const fn new(width_px: u32, height_px: u32) -> Self {
        SizePx { width_px, height_px }
    }

    /// Number of pixels.
    pub fn pixels(self) -> usize {
        index(self.width_px) * index(self.height_px)
    }
}

impl fmt::Display for SizePx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.width_px, self.height_px)
    }
}

/// An axis-aligned box by its left, top, right and bottom edges, in pixels of the picture that the context names.
///
/// Written to JSON as `[x1, y1, x2, y2]`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "[f32; 4]", into = "[f32; 4]")]
pub struct BoxPx {
    /// Left edge, px.
    pub left_px: f32,
    /// Top edge, px.
    pub top_px: f32,
    /// Right edge, px.
    pub right_px: f32,
    /// Bottom edge, px.
    pub bottom_px: f32,
}

impl BoxPx {
    /// A box from its edges, px.
    pub const fn new(left_px: f32, top_px: f32, right_px: f32, bottom_px: f32) -> Self {
        BoxPx { left_px, top_px, right_px, bottom_px }
    }

    /// A box from centre, width and height, px.
    pub fn from_center(center_x_px: f32, center_y_px: f32, width_px: f32, height_px: f32) -> Self {
        BoxPx::new(
            center_x_px - width_px / 2.0,
            center_y_px - height_px / 2.0,
            center_x_px + width_px / 2.0,
            center_y_px + height_px / 2.0,
        )
    }

    /// Width, px; negative when the edges are swapped.
    pub fn width_px(&self) -> f32 {
        self.right_px - self.left_px
    }

    /// Height, px; negative when the edges are swapped.
    pub fn height_px(&self) -> f32 {
        self.bottom_px - self.top_px
    }

    /// Area in px²; 0 for an empty or inverted box.
    pub fn area_px2(&self) -> f32 {
        self.width_px().max(0.0) * self.height_px().max(0.0)
    }

    /// Intersection over union, 0..1; 0 when either box is empty.
    pub fn iou(&self, other: &BoxPx) -> f32 {
        let width_px = (self.right_px.min(other.right_px) - self.left_px.max(other.left_px)).max(0.0);
        let height_px = (self.bottom_px.min(other.bottom_px) - self.top_px.max(other.top_px)).max(0.0);
        let intersection_px2 = width_px * height_px;
        let union_px2 = self.area_px2() + other.area_px2() - intersection_px2;
        if union_px2 > 0.0 { intersection_px2 / union_px2 } else { 0.0 }
    }

    /// Whether every edge is a finite number.
    pub fn is_finite(&self) -> bool {
        self.left_px.is_finite() && self.top_px.is_finite() && self.right_px.is_finite() && self.bottom_px.is_finite()
    }
}

impl From<[f32; 4]> for BoxPx {
    fn from([left_px, top_px, right_px, bottom_px]: [f32; 4]) -> Self {
        BoxPx::new(left_px, top_px, right_px, bottom_px)
    }
}

impl From<BoxPx> for [f32; 4] {
    fn from(value: BoxPx) -> Self {
        [value.left_px, value.top_px, value.right_px, value.bottom_px]
    }
}

/// A number of bytes, typed and printed with binary units (`512MiB`, `4 GiB`, `1048576`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `count` × 1024².
    pub const fn mib(count: u64) -> Self {
        Bytes(count << 20)
    }

    /// `count` × 1024³.
    pub const fn gib(count: u64) -> Self {
        Bytes(count << 30)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (size, name) in STEPS {
            if self.0 >= size {
                return write!(f, "{:.1} {name}", float64(self.0) / float64(size));
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl FromStr for Bytes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let scale: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "kb" => 1e3,
            "m" | "mib" => 1024.0 * 1024.0,
            "mb" => 1e6,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "gb" => 1e9,
            _ => return Err(bad_bytes(text)),
        };
        let number: f64 = number.parse().map_err(|_| bad_bytes(text))?;
        let bytes = number * scale;
        if !(0.0..=9e18).contains(&bytes) {
            return Err(bad_bytes(text));
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

fn bad_bytes(text: &str) -> Error {
    Error::usage(format!("`{text}` is not a size in bytes")).hint("write it like `512MiB`, `4GiB` or `1048576`")
}

/// A `u32` as an index; never loses bits on the 64-bit machines this runs on.
#[inline]
pub const fn index(value: u32) -> usize {
    value as usize
}

/// A length as `u64`.
#[inline]
pub const fn count(value: usize) -> u64 {
    value as u64
}

/// A length as `u32`; saturates.
#[inline]
pub fn count32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A pixel count or coordinate as `f32`; exact up to 2²⁴.
#[inline]
pub const fn float(value: u32) -> f32 {
    value as f32
}

/// A counter as `f64`; exact up to 2⁵³.
#[inline]
pub const fn float64(value: u64) -> f64 {
    value as f64
}

/// A length as `f64`.
#[inline]
pub const fn length(value: usize) -> f64 {
    value as f64
}

/// A ratio or statistic as `f32`.
#[inline]
pub const fn narrow(value: f64) -> f32 {
    value as f32
}

/// A whole number as `f32`, rounded to the nearest.
#[inline]
pub const fn float_of_int(value: i64) -> f32 {
    value as f32
}

/// The whole part of `value`; `None` when it is not finite or beyond ±2⁶².
#[inline]
pub fn truncated(value: f32) -> Option<i64> {
    (value.is_finite() && value.abs() < 4.6e18).then_some(value as i64)
}

/// A duration in milliseconds.
#[inline]
pub fn milliseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Rounds half away from zero to the nearest whole pixel; negative and NaN give 0.
#[inline]
pub fn round_px(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_parse_and_print() {
        assert_eq!("512MiB".parse::<Bytes>().unwrap(), Bytes::mib(512));
        assert_eq!("1 GiB".parse::<Bytes>().unwrap().to_string(), "1.0 GiB");
        assert_eq!("7".parse::<Bytes>().unwrap(), Bytes(7));
        for bad in ["", "x", "-1", "5 parsecs", "1e400GiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn iou_of_halves_is_a_third() {
        let left = BoxPx::new(0.0, 0.0, 2.0, 2.0);
        let shifted = BoxPx::new(1.0, 0.0, 3.0, 2.0);
        assert!((left.iou(&shifted) - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(left.iou(&BoxPx::default()), 0.0);
    }
}
