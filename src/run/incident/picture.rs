//! Pictures packed without loss. RGB, BGR and grey become ordinary PNG; the bytes of YUV pictures are kept as they are, as a
//! grey PNG of one byte a pixel, because turning them into RGB would lose what the engine saw.

use super::report::PictureEntry;
use crate::error::{Error, Result};
use crate::frame::{Picture, PixelFormat};
use crate::units::{SizePx, count32, index};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ColorType, ExtendedColorType, ImageDecoder, ImageEncoder};
use std::io::Cursor;

/// Longest side of a recorded picture.
const MOST_SIDE_PX: u32 = 16_384;
/// Most memory for one recorded picture.
const MOST_BYTES: u64 = 512 << 20;

/// The words of `format`.
const FORMATS: [(PixelFormat, &str); 6] = [
    (PixelFormat::Rgb8, "rgb8"),
    (PixelFormat::Bgr8, "bgr8"),
    (PixelFormat::Gray8, "gray8"),
    (PixelFormat::Nv12, "nv12"),
    (PixelFormat::Yuyv, "yuyv"),
    (PixelFormat::Uyvy, "uyvy"),
];

/// The word for `format`.
pub(super) fn format_name(format: PixelFormat) -> &'static str {
    FORMATS.iter().find(|(known, _)| *known == format).map_or("rgb8", |(_, name)| name)
}

/// Columns and rows of the PNG, and bytes a column.
fn shape(format: PixelFormat, size: SizePx) -> (u32, u32, usize) {
    match format {
        PixelFormat::Rgb8 | PixelFormat::Bgr8 => (size.width_px, size.height_px, 3),
        PixelFormat::Gray8 => (size.width_px, size.height_px, 1),
        PixelFormat::Nv12 => (size.width_px, size.height_px.saturating_add(size.height_px.div_ceil(2)), 1),
        PixelFormat::Yuyv | PixelFormat::Uyvy => (count32(format.row_bytes(size.width_px)), size.height_px, 1),
    }
}

/// Packs `picture` into `bytes`, which is overwritten; `rows` is room for its rows without padding.
///
/// # Errors
/// [`crate::ErrorKind::Unexpected`] when it is not whole or cannot be packed.
pub(super) fn pack(picture: &Picture, rows: &mut Vec<u8>, bytes: &mut Vec<u8>) -> Result<()> {
    let (columns, lines, column_bytes) = shape(picture.format, picture.size);
    if !picture.is_whole() {
        return Err(Error::unexpected("the picture is not whole"));
    }
    rows.clear();
    let row_bytes = index(columns) * column_bytes;
    for row in picture.pixels.as_slice().chunks(picture.stride_bytes).take(index(lines)) {
        rows.extend_from_slice(&row[..row_bytes]);
    }
    if picture.format == PixelFormat::Bgr8 {
        rows.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
    }
    let color = if column_bytes == 3 { ExtendedColorType::Rgb8 } else { ExtendedColorType::L8 };
    bytes.clear();
    PngEncoder::new_with_quality(&mut *bytes, CompressionType::Fast, FilterType::Up)
        .write_image(rows, columns, lines, color)
        .map_err(|error| Error::unexpected("the picture cannot be packed as PNG").because(error))
}

/// The picture in `bytes`, as `entry` describes it.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when it is damaged, too large, or not what `entry` says.
pub(super) fn unpack(bytes: &[u8], entry: &PictureEntry) -> Result<Picture> {
    let refused = |message: String| Err(Error::source_failed(message).at(&entry.entry));
    let Some((format, _)) = FORMATS.iter().find(|(_, name)| *name == entry.format) else {
        return refused(format!(
            "found pixel format `{}`, expected rgb8, bgr8, gray8, nv12, yuyv or uyvy",
            entry.format
        ));
    };
    let size = entry.size;
    if !(1..=MOST_SIDE_PX).contains(&size.width_px) || !(1..=MOST_SIDE_PX).contains(&size.height_px) {
        return refused(format!("found a picture of {size}, expected 1 to {MOST_SIDE_PX} pixels a side"));
    }
    let (columns, lines, column_bytes) = shape(*format, size);
    let damaged = |error: image::ImageError| {
        Error::source_failed("the picture cannot be decoded").because(error).at(&entry.entry)
    };
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(columns);
    limits.max_image_height = Some(lines);
    limits.max_alloc = Some(MOST_BYTES);
    let mut decoder =
        image::codecs::png::PngDecoder::with_limits(Cursor::new(bytes), limits.clone()).map_err(damaged)?;
    decoder.set_limits(limits).map_err(damaged)?;
    let color = if column_bytes == 3 { ColorType::Rgb8 } else { ColorType::L8 };
    if decoder.dimensions() != (columns, lines) || decoder.color_type() != color {
        let (found_columns, found_lines) = decoder.dimensions();
        return refused(format!(
            "found a PNG of {found_columns}×{found_lines} {:?}, expected {columns}×{lines} {color:?}",
            decoder.color_type()
        ));
    }
    if decoder.total_bytes() > MOST_BYTES {
        return refused(format!("found a picture of {} bytes, expected at most {MOST_BYTES}", decoder.total_bytes()));
    }
    let mut pixels = vec![0; usize::try_from(decoder.total_bytes()).unwrap_or(usize::MAX)];
    decoder.read_image(&mut pixels).map_err(damaged)?;
    if *format == PixelFormat::Bgr8 {
        pixels.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
    }
    Ok(Picture { size, stride_bytes: index(columns) * column_bytes, format: *format, pixels: pixels.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(format: PixelFormat, size: SizePx, padding: usize) -> Picture {
        let stride_bytes = format.row_bytes(size.width_px) + padding;
        let length = format.picture_bytes(size, stride_bytes);
        let pixels: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
        Picture { size, stride_bytes, format, pixels: pixels.into() }
    }

    fn rows(picture: &Picture) -> Vec<u8> {
        let row_bytes = picture.format.row_bytes(picture.size.width_px);
        let rows = picture.pixels.as_slice().chunks(picture.stride_bytes);
        rows.flat_map(|row| &row[..row_bytes.min(row.len())]).copied().collect()
    }

    #[test]
    fn every_format_comes_back_to_the_byte() {
        for (format, name) in FORMATS {
            for (size, padding) in [(SizePx::new(8, 6), 0), (SizePx::new(9, 5), 13)] {
                let original = picture(format, size, padding);
                let mut bytes = Vec::new();
                pack(&original, &mut Vec::new(), &mut bytes).unwrap();
                let entry = PictureEntry { entry: "pictures/000000.png".into(), format: name.into(), size };
                let read = unpack(&bytes, &entry).unwrap();
                assert!(read.is_whole() && read.format == format);
                assert_eq!(rows(&read), rows(&original), "{name} {size}");
            }
        }
    }

    #[test]
    fn a_png_that_is_not_what_the_line_says_is_refused() {
        let mut bytes = Vec::new();
        pack(&picture(PixelFormat::Rgb8, SizePx::new(8, 6), 0), &mut Vec::new(), &mut bytes).unwrap();
        let entry = |format: &str, width, height| PictureEntry {
            entry: "pictures/000000.png".into(),
            format: format.into(),
            size: SizePx::new(width, height),
        };
        for wrong in [entry("rgb8", 8, 5), entry("gray8", 8, 6), entry("jpeg", 8, 6), entry("rgb8", 0, 6)] {
            assert_eq!(unpack(&bytes, &wrong).unwrap_err().kind().exit_code(), 6, "{wrong:?}");
        }
        assert!(unpack(&bytes[..bytes.len() / 2], &entry("rgb8", 8, 6)).is_err());
        assert!(unpack(b"", &entry("rgb8", 8, 6)).is_err());
    }
}
