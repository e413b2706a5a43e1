//! What the network says of good pictures: the guard's reference, and the choice of golden frames.

use super::choice::{Seen, choose};
use super::pictures::{PictureFolder, decode, pixel_hash, short_name};
use super::watcher::Watcher;
use crate::bundle::golden::{self, hard_fault};
use crate::detections::{Detection, Detector, Thresholds};
use crate::engine::{Engine, Inference, Layout};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::guard::Reference;
use crate::guard::picture::PictureStats;
use crate::guard::reference::ReferenceBuilder;
use crate::units::{count, index};
use std::path::PathBuf;

/// Fewest pictures that must be usable.
const LEAST_USABLE: usize = 1;

/// What a calibration folder gave.
#[derive(Debug)]
pub(super) struct Calibration {
    /// Distributions on its pictures.
    pub(super) reference: Reference,
    /// The pictures that become golden frames.
    pub(super) golden: Vec<PathBuf>,
}

struct Run<'a> {
    engine: &'a mut dyn Engine,
    detector: Detector,
    layout: Layout,
    builder: ReferenceBuilder,
    seen: Vec<Seen>,
    inferences: Vec<Inference>,
    detections: Vec<Detection>,
}

/// Runs every picture of `folder` through `engine` at `thresholds`.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when too few pictures can be read, [`crate::ErrorKind::Refused`] for a hard fault in an
/// answer, [`crate::ErrorKind::Interrupted`], the engine's own errors.
pub(super) fn calibrate(
    engine: &mut dyn Engine,
    folder: &PictureFolder,
    thresholds: &Thresholds,
    watcher: &mut dyn Watcher,
) -> Result<Calibration> {
    let info = engine.info().clone();
    let batch = index(info.input.batch).max(1);
    let mut run = Run {
        detector: Detector::new(thresholds, &info.classes)?,
        layout: info.layout,
        engine,
        builder: ReferenceBuilder::new(),
        seen: Vec::new(),
        inferences: Vec::new(),
        detections: Vec::new(),
    };
    let mut unreadable = 0;
    for (group, files) in folder.files.chunks(batch).enumerate() {
        watcher.check_stop()?;
        let mut frames = Vec::new();
        for (at, path) in files.iter().enumerate() {
            let number = group * batch + at;
            match decode(path) {
                Ok(picture) => frames.push((number, golden::frame(count(number), picture))),
                Err(error) => {
                    unreadable += 1;
                    watcher.warn(&format!("left out `{}`: {}", short_name(path), one_line(&error)));
                }
            }
        }
        run.add(&frames, folder)?;
        watcher.step(
            "calibration",
            count((group * batch + files.len()).min(folder.files.len())),
            count(folder.files.len()),
        );
    }
    if unreadable > 0 {
        watcher.warn(&format!("{unreadable} of {} calibration pictures were left out", folder.files.len()));
    }
    if run.seen.len() < LEAST_USABLE {
        return Err(Error::source_failed(format!(
            "found {} usable pictures among {} files, expected at least {LEAST_USABLE}",
            run.seen.len(),
            folder.files.len()
        ))
        .at(folder.folder.display()));
    }
    Ok(Calibration {
        reference: run.builder.finish(),
        golden: choose(&run.seen).into_iter().filter_map(|file| folder.files.get(file).cloned()).collect(),
    })
}

impl Run<'_> {
    fn add(&mut self, frames: &[(usize, Frame)], folder: &PictureFolder) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.inferences.clear();
        let together: Vec<&Frame> = frames.iter().map(|(_, frame)| frame).collect();
        self.engine.infer(&together, &mut self.inferences)?;
        for ((file, frame), inference) in frames.iter().zip(&self.inferences) {
            let place = || folder.files.get(*file).map_or_else(String::new, |path| path.display().to_string());
            if let Some(fault) = hard_fault(&inference.stats, &self.layout) {
                return Err(Error::refused(format!("the network's output is faulty: {fault}")).at(place()));
            }
            self.detector.detect(&inference.candidates, &inference.letterbox, &self.layout, &mut self.detections);
            let stats = PictureStats::measure(&frame.picture);
            self.builder.add(&stats, &self.detections, frame.picture.size);
            self.seen.push(Seen {
                file: *file,
                hash: pixel_hash(&frame.picture),
                classes: self.detections.iter().map(|detection| detection.class_id).collect(),
                boxes: count(self.detections.len()),
                brightness: stats.brightness,
            });
        }
        Ok(())
    }
}

/// An error without place and hint, for a list.
pub(super) fn one_line(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
