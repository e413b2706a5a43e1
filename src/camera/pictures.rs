//! Pictures from files: JPEG, PNG, BMP and TIFF to RGB, as OpenCV's `IMREAD_COLOR` reads them, or one clear error.

use super::jpeg::{self, Ending};
use crate::error::{Error, Result};
use crate::frame::Picture;
use crate::units::SizePx;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, RgbImage};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

/// Pictures of more pixels are refused: 134 million pixels are 403 MB of RGB.
pub const MAX_PICTURE_PIXELS: usize = 1 << 27;

/// Files of more bytes are refused.
pub const MAX_FILE_BYTES: u64 = 1 << 29;

/// Extensions of files that a folder source takes for pictures, in lower case.
pub(crate) const PICTURE_EXTENSIONS: [&str; 14] =
    ["jpg", "jpeg", "jpe", "jfif", "png", "bmp", "dib", "tif", "tiff", "webp", "gif", "avif", "heic", "jp2"];

/// Reads and decodes a picture: tightly packed [`crate::frame::PixelFormat::Rgb8`], turned as its orientation tag says.
///
/// Gray is repeated in three channels, palettes are looked up, alpha is dropped, 16 bit keep their upper 8 bit, CMYK is
/// converted. PNG and BMP give the bytes that OpenCV gives; JPEG and 16-bit TIFF differ by one grey level.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when the file cannot be read, is no picture of these formats, is truncated or corrupt,
/// has floating-point pixels, more than [`MAX_PICTURE_PIXELS`] pixels or more than [`MAX_FILE_BYTES`] bytes.
pub fn decode(path: &Path) -> Result<Picture> {
    let bytes = read(path).map_err(|error| error.at(path.display()))?;
    decode_bytes(&bytes).map_err(|error| error.at(path.display()))
}

/// As [`decode`], from memory. Never panics, whatever the bytes.
///
/// # Errors
/// As [`decode`].
pub fn decode_bytes(bytes: &[u8]) -> Result<Picture> {
    if bytes.is_empty() {
        return Err(Error::source_failed("the picture file is empty"));
    }
    if bytes.starts_with(&[0xff, 0xd8]) {
        let (size, pixels, exif) =
            jpeg::decode_rgb(bytes, Ending::Marked, MAX_PICTURE_PIXELS, |size| vec![0; size.pixels() * 3])?;
        let orientation = exif.as_deref().and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms);
        return turn(size, pixels, orientation);
    }
    let format = recognise(bytes)?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(|error| refused(format, error))?;
    let (width_px, height_px) = decoder.dimensions();
    let size = SizePx::new(width_px, height_px);
    if size.pixels() == 0 {
        return Err(Error::source_failed("the picture has no pixels"));
    }
    if size.pixels() > MAX_PICTURE_PIXELS {
        return Err(too_large(size, MAX_PICTURE_PIXELS));
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let picture = DynamicImage::from_decoder(decoder).map_err(|error| refused(format, error))?;
    turn(size, to_rgb(picture)?, orientation)
}

/// Reads a file of at most [`MAX_FILE_BYTES`].
fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::source_failed("the picture cannot be read").because(error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::source_failed("found a folder or a device, expected a picture file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(MAX_FILE_BYTES)).unwrap_or(0));
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if crate::units::count(bytes.len()) > MAX_FILE_BYTES {
        return Err(Error::source_failed(format!("the picture file is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

fn recognise(bytes: &[u8]) -> Result<ImageFormat> {
    match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Bmp | ImageFormat::Tiff)) => Ok(format),
        Ok(other) => Err(Error::source_failed(format!("found a {other:?} picture, expected JPEG, PNG, BMP or TIFF"))
            .hint("convert it to PNG, which loses nothing")),
        Err(_) if bytes.starts_with(b"version https://git-lfs") => {
            Err(Error::source_failed("found a Git LFS pointer, expected a picture")
                .hint("fetch it with `git lfs pull`"))
        }
        Err(_) => Err(Error::source_failed("the content is no JPEG, PNG, BMP or TIFF picture")),
    }
}

fn limits() -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(1 << 20);
    limits.max_image_height = Some(1 << 20);
    // 16-bit RGBA takes 8 bytes a pixel.
    limits.max_alloc = Some(crate::units::count(MAX_PICTURE_PIXELS) * 8 + (64 << 20));
    limits
}

pub(crate) fn too_large(size: SizePx, max_pixels: usize) -> Error {
    Error::source_failed(format!("found a picture of {size} px, expected at most {max_pixels} pixels"))
}

fn refused(format: ImageFormat, error: ImageError) -> Error {
    match error {
        ImageError::Limits(_) => Error::source_failed(format!("the {format:?} picture is too large")).because(error),
        ImageError::Unsupported(_) => Error::source_failed(format!("this kind of {format:?} picture is not supported"))
            .because(error)
            .hint("convert it to PNG, which loses nothing"),
        _ => Error::source_failed(format!("the {format:?} picture is truncated or corrupt")).because(error),
    }
}

/// RGB as OpenCV makes it: 16 bit lose their lower 8 bit, alpha is dropped.
fn to_rgb(picture: DynamicImage) -> Result<Vec<u8>> {
    let upper = |value: u16| value.to_be_bytes()[0];
    Ok(match picture {
        DynamicImage::ImageRgb8(rgb) => rgb.into_raw(),
        DynamicImage::ImageRgba8(rgba) => {
            rgba.as_raw().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
        }
        DynamicImage::ImageLuma8(gray) => gray.as_raw().iter().flat_map(|&value| [value; 3]).collect(),
        DynamicImage::ImageLumaA8(gray) => gray.as_raw().chunks_exact(2).flat_map(|pixel| [pixel[0]; 3]).collect(),
        DynamicImage::ImageLuma16(gray) => gray.as_raw().iter().flat_map(|&value| [upper(value); 3]).collect(),
        DynamicImage::ImageLumaA16(gray) => {
            gray.as_raw().chunks_exact(2).flat_map(|pixel| [upper(pixel[0]); 3]).collect()
        }
        DynamicImage::ImageRgb16(rgb) => rgb.as_raw().iter().map(|&value| upper(value)).collect(),
        DynamicImage::ImageRgba16(rgba) => rgba
            .as_raw()
            .chunks_exact(4)
            .flat_map(|pixel| [upper(pixel[0]), upper(pixel[1]), upper(pixel[2])])
            .collect(),
        other => {
            return Err(Error::source_failed(format!(
                "found pixels of type {:?}, expected 8 or 16 bit whole numbers",
                other.color()
            )));
        }
    })
}

fn turn(size: SizePx, pixels: Vec<u8>, orientation: Orientation) -> Result<Picture> {
    if orientation == Orientation::NoTransforms {
        return Ok(Picture::rgb(size, pixels));
    }
    let image = RgbImage::from_raw(size.width_px, size.height_px, pixels)
        .ok_or_else(|| Error::unexpected("decoded pixels do not fill the picture"))?;
    let mut image = DynamicImage::ImageRgb8(image);
    image.apply_orientation(orientation);
    let size = SizePx::new(image.width(), image.height());
    Ok(Picture::rgb(size, to_rgb(image)?))
}

#[cfg(test)]
#[path = "pictures_tests.rs"]
mod tests;
