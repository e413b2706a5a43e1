//! The known answers of a bundle: which pictures, what the network says of them, how far other backends may be from it.

use super::Prepared;
use super::assemble::Order;
use super::calibrate::{Calibration, one_line};
use super::pictures::{PictureFolder, decode, short_name};
use super::watcher::Watcher;
use crate::bundle::Files;
use crate::bundle::golden::{self, GoldenFrame, GoldenSet, RecordOptions};
use crate::bundle::manifest::{GoldenKind, Source};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::frame::Picture;
use crate::units::{SizePx, float};
use std::path::Path;

/// Most golden frames taken from `--golden DIR`.
const MOST_GOLDEN_FRAMES: usize = 64;
/// Score down to which synthetic golden frames are compared.
const SYNTHETIC_FLOOR: f32 = 0.01;

/// The known answers of the bundle that is being built.
pub(super) struct KnownAnswers {
    pub(super) kind: GoldenKind,
    pub(super) set: GoldenSet,
    pub(super) score_floor: f32,
    pub(super) answered_by: String,
    /// Input pixels a source pixel, the smallest over all frames.
    pub(super) smallest_scale: f32,
}

impl KnownAnswers {
    /// The answers of `engine` to the pictures that the order names, else to drawn ones.
    pub(super) fn record(
        order: &Order,
        prepared: &Prepared,
        engine: &mut dyn Engine,
        calibration: Option<&Calibration>,
        watcher: &mut dyn Watcher,
    ) -> Result<KnownAnswers> {
        let thresholds = &order.recipe.thresholds;
        let (kind, score_floor, pictures) = match (&order.recipe.golden, calibration) {
            (Some(folder), _) => (GoldenKind::Given, thresholds.lowest_score(), given_pictures(folder, watcher)?),
            (None, Some(calibration)) => {
                let pictures = calibration.golden.iter().map(|path| decode(path)).collect::<Result<Vec<_>>>()?;
                (GoldenKind::Calibration, thresholds.lowest_score(), pictures)
            }
            (None, None) => (GoldenKind::Synthetic, SYNTHETIC_FLOOR, golden::synthetic_pictures(prepared.input.size)),
        };
        let origin = match kind {
            GoldenKind::Given => "given",
            GoldenKind::Calibration => "chosen among the calibration pictures",
            GoldenKind::Synthetic if prepared.source.opset == Source::NO_MODEL => {
                "drawn, for want of pictures; `--golden DIR` takes real ones"
            }
            GoldenKind::Synthetic => "drawn, for want of pictures; `--calibration DIR` gives the guard its reference",
        };
        watcher.say(&format!("known answers: {} pictures, {origin}", pictures.len()));
        watcher.check_stop()?;
        let smallest_scale =
            pictures.iter().map(|picture| scale(picture.size, prepared.input.size)).fold(1.0, f32::min);
        let frames: Vec<_> =
            pictures.into_iter().zip(0..).map(|(picture, number)| golden::frame(number, picture)).collect();
        let options = RecordOptions { thresholds, classes: &prepared.classes, score_floor };
        let answers = golden::record(engine, &frames, &options).map_err(|error| {
            error.hint("a model that answers like this is not put into a bundle; look at the export")
        })?;
        let boxes: usize = answers.iter().map(|answer| answer.candidates.len()).sum();
        if boxes == 0 {
            watcher.warn(
                "the known answers hold no box at all: they prove little; give pictures of parts with `--golden DIR`",
            );
        }
        let frames = frames.into_iter().zip(answers).enumerate().map(|(number, (frame, answer))| GoldenFrame {
            name: golden::entry_name(number),
            picture: frame.picture,
            answer,
        });
        Ok(KnownAnswers {
            kind,
            set: GoldenSet { frames: frames.collect() },
            score_floor,
            answered_by: engine.info().backend.clone(),
            smallest_scale,
        })
    }

    /// The entries of the bundle.
    pub(super) fn to_files(&self) -> Result<(Vec<String>, Files)> {
        self.set.to_files()
    }
}

fn scale(source: SizePx, input: SizePx) -> f32 {
    let side = |source: u32, input: u32| float(input) / float(source.max(1));
    side(source.width_px, input.width_px).min(side(source.height_px, input.height_px))
}

fn given_pictures(folder: &Path, watcher: &mut dyn Watcher) -> Result<Vec<Picture>> {
    let folder = PictureFolder::list(folder)?;
    if folder.files.len() > MOST_GOLDEN_FRAMES {
        watcher.warn(&format!(
            "the golden folder holds {} pictures; the first {MOST_GOLDEN_FRAMES} by name are taken",
            folder.files.len()
        ));
    }
    let mut pictures = Vec::new();
    for path in folder.files.iter().take(MOST_GOLDEN_FRAMES) {
        match decode(path) {
            Ok(picture) => pictures.push(picture),
            Err(error) => watcher.warn(&format!("left out `{}`: {}", short_name(path), one_line(&error))),
        }
    }
    if pictures.is_empty() {
        return Err(Error::source_failed("found no usable picture for the known answers").at(folder.folder.display()));
    }
    Ok(pictures)
}

/// How much backends may differ. FP32: rounding alone (seen up to 0.8 px of the input and 0.003); half precision and
/// quantised graphs are computed differently by every backend.
pub(super) struct Tolerances {
    pub(super) corner_px: f32,
    pub(super) score: f32,
    pub(super) share: f32,
}

impl Tolerances {
    pub(super) fn of(prepared: &Prepared) -> Tolerances {
        let has = |word: &str| prepared.precision_found.iter().any(|(name, &layers)| layers > 0 && name.contains(word));
        if has("int8") {
            Tolerances { corner_px: 8.0, score: 0.1, share: 0.1 }
        } else if has("f16") {
            Tolerances { corner_px: 4.0, score: 0.05, share: 0.02 }
        } else {
            Tolerances { corner_px: 1.0, score: 0.01, share: 0.0 }
        }
    }
}
