//! Operators that make tensors: constants, shapes, ranges, and results whose size depends on data.

use super::call::{Call, Rule};
use super::fact::volume;
use super::{Dim, Fact, Values};
use crate::error::Result;
use crate::onnx::node;
use crate::onnx::tensor::{self, DataType};
use crate::units;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "Constant" => constant,
        "ConstantOfShape" => constant_of_shape,
        "Shape" => shape,
        "Size" => size,
        "Range" => range,
        "EyeLike" | "RandomNormalLike" | "RandomUniformLike" => like,
        "NonZero" => non_zero,
        "NonMaxSuppression" => non_max_suppression,
        _ => return None,
    })
}

fn constant(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(vec![node::constant(call.node)?.map_or(Fact::NOTHING, |tensor| Fact::of_tensor(&tensor))])
}

fn constant_of_shape(call: &Call<'_>) -> Result<Vec<Fact>> {
    let value = node::tensor(call.node, "value")?;
    let element = value.map_or(DataType::F32, tensor::data_type);
    let Some(lengths) = call.input(0).ints() else { return Ok(vec![Fact::new(element, None)]) };
    if lengths.iter().any(|&length| length < 0) {
        return Err(call.wrong(format!("found shape {lengths:?}, expected no negative length")));
    }
    let fact = Fact::with_fixed_shape(element, lengths);
    let single = match value {
        None => Some(Values::Floats(vec![0.0])),
        Some(value) => Fact::of_tensor(value).values,
    };
    let values =
        volume(lengths).filter(|&count| count <= super::MAX_VALUES).and_then(|count| single?.pick(&vec![0; count]));
    Ok(vec![fact.with_values(values)])
}

fn shape(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(vec![Fact::new(DataType::I64, Some(vec![Dim::Unknown]))]) };
    let rank = i64::try_from(input.len()).unwrap_or(i64::MAX);
    let clamp = |value: i64| {
        usize::try_from(if value < 0 { value.saturating_add(rank) } else { value }.clamp(0, rank)).unwrap_or(0)
    };
    let (start, end) = (clamp(call.int("start", 0)?), clamp(call.int("end", rank)?));
    let dims = input.get(start..end.max(start)).unwrap_or_default();
    let length = i64::try_from(dims.len()).unwrap_or(0);
    let values = dims.iter().map(|dim| dim.known()).collect::<Option<_>>().map(Values::Ints);
    Ok(vec![Fact::with_fixed_shape(DataType::I64, &[length]).with_values(values)])
}

fn size(call: &Call<'_>) -> Result<Vec<Fact>> {
    let count = call.input(0).fixed().and_then(|shape| i64::try_from(volume(&shape)?).ok());
    Ok(vec![Fact::with_fixed_shape(DataType::I64, &[]).with_values(count.map(|count| Values::Ints(vec![count])))])
}

fn range(call: &Call<'_>) -> Result<Vec<Fact>> {
    let element = call.element(0);
    let unknown = Ok(vec![Fact::new(element, Some(vec![Dim::Unknown]))]);
    let ints = |position: usize| call.input(position).ints().and_then(|values| values.first().copied());
    let floats = |position: usize| call.input(position).floats().and_then(|values| values.first().copied());
    if let (Some(start), Some(limit), Some(step)) = (ints(0), ints(1), ints(2)) {
        if step == 0 {
            return Err(call.wrong("found step 0, expected another"));
        }
        let Some(span) = (if step > 0 { limit.checked_sub(start) } else { start.checked_sub(limit) }) else {
            return unknown;
        };
        let count = u64::try_from(span).map_or(0, |span| span.div_ceil(step.unsigned_abs()));
        let Ok(length) = i64::try_from(count) else { return unknown };
        let small = count <= units::count(super::MAX_VALUES);
        let values = small
            .then(|| (0..length).map(|at| at.checked_mul(step)?.checked_add(start)).collect::<Option<_>>())
            .flatten();
        return Ok(vec![Fact::with_fixed_shape(element, &[length]).with_values(values.map(Values::Ints))]);
    }
    if let (Some(start), Some(limit), Some(step)) = (floats(0), floats(1), floats(2)) {
        let Some(length) = units::truncated(((limit - start) / step).ceil()) else { return unknown };
        return Ok(vec![Fact::with_fixed_shape(element, &[length.max(0)])]);
    }
    unknown
}

fn like(call: &Call<'_>) -> Result<Vec<Fact>> {
    let asked = call.int("dtype", 0)?;
    let element = match i32::try_from(asked) {
        Ok(code) if code != 0 => DataType::from_code(code),
        _ => call.element(0),
    };
    Ok(vec![Fact::new(element, call.input(0).shape.clone())])
}

fn non_zero(call: &Call<'_>) -> Result<Vec<Fact>> {
    let rank = call.input(0).rank().and_then(|rank| i64::try_from(rank).ok());
    Ok(vec![Fact::new(DataType::I64, Some(vec![rank.into(), Dim::Unknown]))])
}

fn non_max_suppression(_: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(vec![Fact::new(DataType::I64, Some(vec![Dim::Unknown, Dim::Known(3)]))])
}
