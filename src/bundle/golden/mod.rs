//! Known answers: pictures with what the network said of them when the bundle was built.
//!
//! An engine proves itself with them ([`prove`]): when a bundle is built, when edge-run starts, and in service.
//! What is compared are the network's candidates before NMS, because NMS is this program's own code on every backend and
//! two nearly equal neighbours may change places in it; the detections are compared more loosely on top.

mod compare;
mod proof;
mod service;
mod synthetic;

pub use proof::{Proof, RecordOptions, frame, hard_fault, prove, prove_set, record};
pub use service::{Agreement, EXACT_PX, EXACT_SCORE, Prover, compare_echo};
pub use synthetic::{synthetic_picture, synthetic_pictures};

use super::{Bundle, Files, GOLDEN_ANSWERS};
use crate::error::{Error, Result};
use crate::frame::{Picture, PixelFormat};
use crate::units::{BoxPx, SizePx, index};
use serde::{Deserialize, Serialize};
use std::io::Cursor;

/// Longest side of a golden picture.
const MOST_SIDE_PX: u32 = 16_384;
/// Most memory for decoding one golden picture.
const MOST_PICTURE_BYTES: u64 = 1 << 30;

/// One box of a known answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownBox {
    /// Row of the network's output, of candidates; only compared for layouts with fixed anchors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<u32>,
    /// Class.
    pub class_id: u32,
    /// Score, 0..1.
    pub score: f32,
    /// Edges in px of the source picture, not clipped.
    #[serde(rename = "box")]
    pub edges: BoxPx,
}

/// What the network said of one golden picture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// After NMS at the manifest's thresholds; what people compare with.
    pub detections: Vec<KnownBox>,
    /// Before NMS, highest score first, down to the manifest's `golden.score_floor`, at most [`Answer::MOST_CANDIDATES`].
    pub candidates: Vec<KnownBox>,
    /// Candidates above the floor, also those left out above.
    pub candidates_in_all: u64,
    /// Highest best-class score of the whole output.
    pub maximum_score: f32,
    /// Mean best-class score of the whole output.
    pub mean_score: f32,
}

impl Answer {
    /// Most candidates kept for one picture.
    pub const MOST_CANDIDATES: usize = 1000;
}

/// A golden picture with its answer.
#[derive(Debug)]
pub struct GoldenFrame {
    /// Entry name, as in `golden/000.png`.
    pub name: String,
    /// The decoded picture, RGB.
    pub picture: Picture,
    /// What the network said of it.
    pub answer: Answer,
}

/// The known answers of a bundle.
#[derive(Debug, Default)]
pub struct GoldenSet {
    /// In the order of the manifest.
    pub frames: Vec<GoldenFrame>,
}

/// `golden.json`: answers in the order of the manifest's `golden.frames`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerFile {
    answers: Vec<Answer>,
}

impl GoldenSet {
    pub(super) fn read(bundle: &Bundle) -> Result<GoldenSet> {
        let names = &bundle.manifest().golden.frames;
        let text = bundle.read(GOLDEN_ANSWERS)?;
        let place = || bundle.place(GOLDEN_ANSWERS);
        let file: AnswerFile = serde_json::from_slice(&text)
            .map_err(|error| Error::refused("the known answers cannot be understood").because(error).at(place()))?;
        if file.answers.len() != names.len() {
            return Err(
                Error::refused(format!("found {} answers, expected {}", file.answers.len(), names.len())).at(place())
            );
        }
        let read = |(name, answer): (&String, Answer)| {
            let picture = decode_png(&bundle.read(name)?).map_err(|error| error.at(bundle.place(name)))?;
            Ok(GoldenFrame { name: name.clone(), picture, answer })
        };
        Ok(GoldenSet { frames: names.iter().zip(file.answers).map(read).collect::<Result<_>>()? })
    }

    /// Entry names in order, and the entries for [`super::write()`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when a picture is not whole or cannot be packed.
    pub fn to_files(&self) -> Result<(Vec<String>, Files)> {
        let mut files = Files::new();
        for frame in &self.frames {
            files.insert(frame.name.clone(), encode_png(&frame.picture).map_err(|error| error.at(&frame.name))?);
        }
        let answers = self.frames.iter().map(|frame| frame.answer.clone()).collect();
        let text = serde_json::to_vec(&AnswerFile { answers })
            .map_err(|error| Error::unexpected("the known answers cannot be written as JSON").because(error))?;
        files.insert(GOLDEN_ANSWERS.to_owned(), text);
        Ok((self.frames.iter().map(|frame| frame.name.clone()).collect(), files))
    }
}

/// The entry name of golden picture `number`.
pub fn entry_name(number: usize) -> String {
    format!("golden/{number:03}.png")
}

/// Packs an RGB picture without loss.
///
/// # Errors
/// [`crate::ErrorKind::Unexpected`] when the picture is not whole or not [`PixelFormat::Rgb8`].
pub fn encode_png(picture: &Picture) -> Result<Vec<u8>> {
    if !picture.is_whole() || picture.format != PixelFormat::Rgb8 {
        return Err(Error::unexpected(format!(
            "found a picture {:?} of {}, expected a whole RGB one",
            picture.format, picture.size
        )));
    }
    let row_bytes = picture.format.row_bytes(picture.size.width_px);
    let rows = picture.pixels.as_slice().chunks(picture.stride_bytes).take(index(picture.size.height_px));
    let packed: Vec<u8> = rows.flat_map(|row| &row[..row_bytes]).copied().collect();
    let mut bytes = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    image::ImageEncoder::write_image(
        encoder,
        &packed,
        picture.size.width_px,
        picture.size.height_px,
        image::ExtendedColorType::Rgb8,
    )
    .map_err(|error| Error::unexpected("the picture cannot be packed as PNG").because(error))?;
    Ok(bytes)
}

fn decode_png(bytes: &[u8]) -> Result<Picture> {
    let refused = |error: image::ImageError| Error::refused("the golden picture cannot be decoded").because(error);
    let mut reader = image::ImageReader::with_format(Cursor::new(bytes), image::ImageFormat::Png);
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(MOST_SIDE_PX);
    limits.max_image_height = Some(MOST_SIDE_PX);
    limits.max_alloc = Some(MOST_PICTURE_BYTES);
    reader.limits(limits);
    match reader.decode().map_err(refused)? {
        image::DynamicImage::ImageRgb8(pixels) => {
            Ok(Picture::rgb(SizePx::new(pixels.width(), pixels.height()), pixels.into_raw()))
        }
        other => Err(Error::refused(format!("found a {:?} picture, expected 8-bit RGB", other.color()))),
    }
}

#[cfg(test)]
mod tests;
