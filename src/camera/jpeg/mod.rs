//! JPEG that is whole or refused: a decoder that is made for viewing fills what is missing with grey, which an inspection
//! must never see. So the entropy-coded data is walked to its end ([`walk`]) before the pixels are decoded.

mod bits;
mod huffman;
pub(crate) mod walk;

use crate::error::{Error, Result};
use crate::units::{SizePx, count32};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// How the end of a JPEG must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The end marker must be there (files).
    Marked,
    /// The end marker may be missing when all picture data is there (some cameras).
    Open,
}

/// What is known of a JPEG after its structure was found whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WholeJpeg {
    /// Size as stored, px, before any orientation.
    pub(crate) size: SizePx,
    /// No Huffman tables are given: the standard ones are meant (UVC cameras).
    pub(crate) lacks_tables: bool,
    /// The bytes that belong to this picture.
    pub(crate) length_bytes: usize,
}

/// Decodes a JPEG into tightly packed RGB, `3 × width × height` bytes, without orientation. `target` is asked for a
/// buffer of that length once the picture is known to be whole and not larger than `max_pixels`.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when it is truncated, corrupt, too large or of an unsupported kind.
pub(crate) fn decode_rgb<B: AsMut<[u8]>>(
    bytes: &[u8],
    ending: Ending,
    max_pixels: usize,
    target: impl FnOnce(SizePx) -> B,
) -> Result<(SizePx, B, Option<Vec<u8>>)> {
    let whole = walk::check(bytes, ending, max_pixels)?;
    let with_tables;
    let bytes = if whole.lacks_tables {
        with_tables = insert_standard_tables(&bytes[..whole.length_bytes]);
        with_tables.as_slice()
    } else {
        &bytes[..whole.length_bytes]
    };
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(65_535)
        .set_max_height(65_535)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(corrupt)?;
    let exif = decoder.exif().cloned();
    let found = decoder.dimensions().map(|(width, height)| SizePx::new(count32(width), count32(height)));
    if found != Some(whole.size) {
        return Err(Error::source_failed("the JPEG gives its size twice and differently"));
    }
    let mut buffer = target(whole.size);
    let pixels = buffer.as_mut();
    if pixels.len() != whole.size.pixels() * 3 || decoder.output_buffer_size() != Some(pixels.len()) {
        return Err(Error::source_failed("the JPEG's colours cannot be brought to RGB"));
    }
    decoder.decode_into(pixels).map_err(corrupt)?;
    Ok((whole.size, buffer, exif))
}

fn corrupt(error: zune_jpeg::errors::DecodeErrors) -> Error {
    Error::source_failed(format!("the JPEG cannot be decoded: {error:?}"))
}

/// Puts the standard Huffman tables behind the first marker; the caller checked that `bytes` starts with one.
fn insert_standard_tables(bytes: &[u8]) -> Vec<u8> {
    let segment = huffman::standard_segment();
    let mut whole = Vec::with_capacity(bytes.len() + segment.len());
    whole.extend_from_slice(&bytes[..2]);
    whole.extend_from_slice(&segment);
    whole.extend_from_slice(&bytes[2..]);
    whole
}
