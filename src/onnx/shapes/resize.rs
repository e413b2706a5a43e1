//! `Resize` and `Upsample`.

use super::call::{Call, Rule};
use super::{Dim, Fact};
use crate::error::Result;
use crate::units;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "Resize" => resize,
        _ => return None,
    })
}

fn resize(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(call.unknown()) };
    let unchanged = || vec![Dim::Unknown; input.len()];
    let axes: Vec<usize> = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|&axis| call.axis(axis, input.len())).collect::<Result<_>>()?,
        None => (0..input.len()).collect(),
    };
    let keeps_ratio = call.text("keep_aspect_ratio_policy")?.is_some_and(|policy| policy != "stretch");
    let lengths: Vec<Dim> = if call.has(3) {
        match call.input(3).ints() {
            Some(sizes) if !keeps_ratio => sizes.iter().map(|&length| Dim::from(Some(length))).collect(),
            _ => return Ok(call.like_first(Some(unchanged()))),
        }
    } else {
        match call.input(2).floats() {
            Some(scales) => axes.iter().zip(scales).map(|(&axis, &scale)| scaled(input.get(axis), scale)).collect(),
            None => return Ok(call.like_first(Some(unchanged()))),
        }
    };
    if lengths.len() != axes.len() {
        return Err(call.wrong(format!("found {} scales or sizes, expected {}", lengths.len(), axes.len())));
    }
    let mut shape = input.to_vec();
    for (axis, length) in axes.into_iter().zip(lengths) {
        if let Some(dim) = shape.get_mut(axis) {
            *dim = length;
        }
    }
    Ok(call.like_first(Some(shape)))
}

fn scaled(dim: Option<&Dim>, scale: f32) -> Dim {
    dim.and_then(|dim| dim.known())
        .and_then(|length| units::truncated((units::float_of_int(length) * scale).floor()))
        .into()
}
