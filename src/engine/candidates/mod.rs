//! Raw outputs → candidates and statistics. Every element is looked at once; a value that is not finite is counted and
//! never becomes a box.

mod objectness;
mod raw;
mod rows;
mod tally;

use super::{BoxPx, Candidate, Candidates, Layout, OutputStats};
use crate::error::{Error, Result};
use crate::units::{self, count, index};
use half::f16;
use tally::Tally;

/// Most candidates an engine hands on for one picture; the highest scores are kept.
pub const CAP: usize = 8_400;

/// The elements of one output tensor.
#[derive(Debug, Clone, Copy)]
pub enum Elements<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 16-bit floats.
    F16(&'a [f16]),
    /// 32-bit integers.
    I32(&'a [i32]),
    /// 64-bit integers.
    I64(&'a [i64]),
}

impl Elements<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Elements::F32(values) => values.len(),
            Elements::F16(values) => values.len(),
            Elements::I32(values) => values.len(),
            Elements::I64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One output tensor of a run, dense and row-major.
#[derive(Debug, Clone, Copy)]
pub struct RawTensor<'a> {
    /// Name of the output.
    pub name: &'a str,
    /// Dimensions, batch first.
    pub shape: &'a [usize],
    /// As many elements as `shape` says.
    pub elements: Elements<'a>,
}

/// Buffers of [`extract`], reused from picture to picture.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Up to four outputs as `f32`, for those that are of another type.
    converted: [Vec<f32>; 4],
    best_scores: Vec<f32>,
}

/// What to look for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Picture within the batch.
    pub picture: usize,
    /// Least score of a candidate.
    pub floor: f32,
    /// Most candidates; see [`CAP`].
    pub cap: usize,
}

/// The candidates of picture `wanted.picture`, sorted by score (highest first) and then by anchor, and what the output
/// looked like. `candidates` is overwritten; its buffer and `scratch` are reused.
///
/// A candidate has a finite score at or above the floor, finite edges and a class id in range. What fails that is in the
/// counts of [`OutputStats`], over every element of the picture's outputs.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] when an output that `layout` names is missing or has another shape or type.
pub fn extract(
    outputs: &[RawTensor<'_>],
    layout: &Layout,
    wanted: Wanted,
    scratch: &mut Scratch,
    candidates: &mut Candidates,
) -> Result<OutputStats> {
    candidates.boxes.clear();
    candidates.overflow = 0;
    let mut tally = Tally::default();
    let Scratch { converted: [first, second, third, fourth], best_scores } = scratch;
    match layout {
        Layout::Raw { output, classes, anchors } => {
            let shape = [index(*classes) + 4, index(*anchors)];
            let values = values_of(outputs, output, &shape, wanted.picture, first)?;
            raw::extract(values, shape[1], wanted.floor, best_scores, &mut tally, &mut candidates.boxes);
        }
        Layout::Objectness { output, classes, anchors } => {
            let shape = [index(*anchors), index(*classes) + 5];
            let values = values_of(outputs, output, &shape, wanted.picture, first)?;
            objectness::extract(values, shape[1], wanted.floor, &mut tally, &mut candidates.boxes);
        }
        Layout::EndToEnd { output, classes, rows } => {
            let values = values_of(outputs, output, &[index(*rows), 6], wanted.picture, first)?;
            rows::end_to_end(values, *classes, wanted.floor, &mut tally, &mut candidates.boxes);
        }
        Layout::NmsPlugin { count, boxes, scores, class_ids, classes, rows } => {
            let rows = index(*rows);
            let plugin = rows::Plugin {
                count: values_of(outputs, count, &[1], wanted.picture, first)?[0],
                boxes: values_of(outputs, boxes, &[rows, 4], wanted.picture, second)?,
                scores: values_of(outputs, scores, &[rows], wanted.picture, third)?,
                class_ids: values_of(outputs, class_ids, &[rows], wanted.picture, fourth)?,
            };
            rows::nms_plugin(&plugin, *classes, wanted.floor, &mut tally, &mut candidates.boxes);
        }
    }
    keep_highest(candidates, wanted.cap);
    Ok(tally.finish())
}

/// The part of output `name` that belongs to `picture`, as `f32`; `shape` is that of one picture.
fn values_of<'a>(
    outputs: &[RawTensor<'a>],
    name: &str,
    shape: &[usize],
    picture: usize,
    converted: &'a mut Vec<f32>,
) -> Result<&'a [f32]> {
    let Some(tensor) = outputs.iter().find(|tensor| tensor.name == name) else {
        let names: Vec<&str> = outputs.iter().map(|tensor| tensor.name).collect();
        return Err(Error::refused(format!("found outputs {names:?}, expected one named `{name}`")));
    };
    let length: usize = shape.iter().product();
    let fits = match tensor.shape {
        [batch, rest @ ..] if rest == shape => picture < *batch,
        // Some plugins leave the last axis of one out.
        [batch] if length == 1 => picture < *batch,
        _ => false,
    };
    if !fits || tensor.elements.len() < (picture + 1).saturating_mul(length) || length == 0 {
        return Err(Error::refused(format!(
            "found shape {:?} for picture {picture}, expected [batch, {}]",
            tensor.shape,
            shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
        ))
        .at(format_args!("output `{name}`")));
    }
    let range = picture * length..(picture + 1) * length;
    converted.clear();
    match tensor.elements {
        Elements::F32(values) => return Ok(&values[range]),
        Elements::F16(values) => converted.extend(values[range].iter().map(|value| value.to_f32())),
        Elements::I32(values) => converted.extend(values[range].iter().map(|&value| value as f32)),
        Elements::I64(values) => converted.extend(values[range].iter().map(|&value| value as f32)),
    }
    Ok(converted)
}

/// Sorts by score, then anchor, and cuts at `cap`.
fn keep_highest(candidates: &mut Candidates, cap: usize) {
    let boxes = &mut candidates.boxes;
    let order = |a: &Candidate, b: &Candidate| b.score.total_cmp(&a.score).then(a.anchor.cmp(&b.anchor));
    if boxes.len() > cap {
        candidates.overflow = count(boxes.len() - cap);
        if cap > 0 {
            boxes.select_nth_unstable_by(cap - 1, order);
        }
        boxes.truncate(cap);
    }
    boxes.sort_unstable_by(order);
}

/// Adds a candidate when its score and edges allow it.
#[inline]
fn offer(boxes: &mut Vec<Candidate>, floor: f32, candidate: Candidate) -> bool {
    let reaches = candidate.score >= floor && candidate.score.is_finite();
    if reaches && candidate.edges.is_finite() {
        boxes.push(candidate);
    }
    reaches
}

/// Box from centre and size, as YOLO heads give it.
#[inline]
fn centred(values: [f32; 4]) -> BoxPx {
    let [center_x_px, center_y_px, width_px, height_px] = values;
    BoxPx::from_center(center_x_px, center_y_px, width_px, height_px)
}

/// `value` as a class id, when it is a whole number in `0..classes`.
#[inline]
fn class_id(value: f32, classes: u32) -> Option<u32> {
    let whole = value.fract() == 0.0 && value >= 0.0 && value < units::float(classes);
    whole.then_some(value as u32)
}

#[cfg(test)]
mod tests;
