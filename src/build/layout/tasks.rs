//! Models of other tasks: segmentation, key points, rotated boxes, classification. They are refused, with what was found.

use super::readings::Reading;
use super::{Facts, LayoutChoice, list};
use crate::error::{Error, Result};
use crate::onnx::metadata::Metadata;
use crate::onnx::{Model, dump};

/// Mask coefficients of a segmentation model.
const MASKS: u32 = 32;

/// Refuses a model whose metadata names a task other than detection.
pub(in crate::build) fn check_task(model: &Model, metadata: &Metadata) -> Result<()> {
    let Some(task) = metadata.task.as_deref().filter(|&task| task != "detect") else { return Ok(()) };
    let outputs: Vec<String> = model
        .graph()
        .output
        .iter()
        .map(|output| {
            let (kind, shape) = dump::declared(output);
            format!("`{}` {kind} {shape}", output.name)
        })
        .collect();
    Err(Error::refused(format!("found a model for the task `{task}`, expected `detect`"))
        .at(format!("metadata `task`; outputs {}", outputs.join(", ")))
        .hint(way_out(what(task))))
}

fn what(task: &str) -> &'static str {
    match task {
        "segment" => "mask coefficients",
        "pose" => "key points",
        "obb" => "an angle",
        "classify" => "one score a class and no boxes",
        _ => "other values than boxes",
    }
}

fn way_out(what: &str) -> String {
    format!(
        "its outputs hold {what}, which would be taken for classes: give a detection model (`yolo11n.pt`, not `-seg`, `-pose`, `-obb`, `-cls`)"
    )
}

/// Refuses a second output that holds mask prototypes, also without metadata.
pub(super) fn check_masks(facts: &Facts<'_>, readings: &[Reading]) -> Result<()> {
    let size = facts.input.size;
    let is_grid = |shape: &[i64]| matches!(shape, [_, _, height, width] if *height == i64::from(size.height_px / 4) && *width == i64::from(size.width_px / 4));
    for output in facts.outputs.iter().filter(|output| is_grid(&output.shape)) {
        let channels = output.shape.get(1).and_then(|&channels| u32::try_from(channels).ok()).unwrap_or(0);
        let as_masks = readings.iter().any(|reading| match (reading.classes, facts.name_count()) {
            (Some(classes), Some(names)) => classes == names.saturating_add(channels),
            (Some(classes), None) => channels == MASKS && classes > MASKS,
            (None, _) => false,
        });
        if as_masks || (readings.is_empty() && channels == MASKS) {
            return Err(Error::refused(format!(
                "found a segmentation model: `{}` holds {channels} mask prototypes, expected a detector",
                output.name
            ))
            .at(format!("outputs {}", list(facts.outputs)))
            .hint(way_out(what("segment"))));
        }
    }
    Ok(())
}

/// What a reading whose class count does not fit the names probably is.
pub(super) fn looks_like(reading: &Reading, names: u32, metadata: &Metadata) -> Option<String> {
    let extra = reading.classes?.checked_sub(names)?;
    if reading.choice != LayoutChoice::Raw || extra == 0 {
        return None;
    }
    let keypoints = metadata.keypoints.is_some_and(|shape| shape.points.checked_mul(shape.values) == Some(extra));
    let task = match extra {
        _ if keypoints => "pose",
        MASKS => "segment",
        1 => "obb",
        51 => "pose",
        _ => return None,
    };
    Some(format!("{extra} values more than names look like {}: {}", what(task), way_out(what(task))))
}

/// A word on outputs that no layout fits.
pub(super) fn diagnose(facts: &Facts<'_>) -> Option<String> {
    for output in facts.outputs {
        let what = match output.shape.as_slice() {
            [_, _, 7] => what("obb"),
            [_, _, 38] => what("segment"),
            [_, _, 57] => what("pose"),
            [_, classes] if *classes > 1 => what("classify"),
            _ => continue,
        };
        return Some(way_out(what));
    }
    let heads = |shape: &[i64]| matches!(shape, [_, _, _, _, _] | [_, _, _, _]);
    if facts.outputs.iter().all(|output| heads(&output.shape)) {
        return Some("these are heads before decoding: export with decoding, `yolo export model=x.pt format=onnx` or YOLOv5's `export.py` without `--train`".to_owned());
    }
    None
}
