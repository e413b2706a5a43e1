//! Reductions along axes.

use super::call::{Call, Rule};
use super::{Dim, Fact, Values};
use crate::error::Result;
use crate::onnx::tensor::DataType;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin"
        | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => reduce,
        "ArgMax" | "ArgMin" => position,
        _ => return None,
    })
}

fn reduce(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(call.unknown()) };
    let keep = call.int("keepdims", 1)? != 0;
    let axes = match call.ints_either("axes", 1)? {
        Some(None) => return Ok(call.like_first(keep.then(|| vec![Dim::Unknown; input.len()]))),
        Some(Some(axes)) if !axes.is_empty() => axes.to_vec(),
        _ if call.int("noop_with_empty_axes", 0)? != 0 => return Ok(call.like_first(Some(input.to_vec()))),
        _ => (0..).take(input.len()).collect(),
    };
    let axes: Vec<usize> = axes.iter().map(|&axis| call.axis(axis, input.len())).collect::<Result<_>>()?;
    let fact = Fact::new(call.element(0), Some(without(input, &axes, keep)));
    let whole = axes.len() == input.len();
    let values = call.input(0).ints().filter(|_| whole).and_then(|values| folded(call.op(), values));
    Ok(vec![fact.with_values(values.map(|value| Values::Ints(vec![value])))])
}

fn folded(op_type: &str, values: &[i64]) -> Option<i64> {
    match op_type {
        "ReduceProd" => values.iter().try_fold(1_i64, |product, &value| product.checked_mul(value)),
        "ReduceSum" => values.iter().try_fold(0_i64, |sum, &value| sum.checked_add(value)),
        "ReduceMax" => values.iter().max().copied(),
        "ReduceMin" => values.iter().min().copied(),
        _ => None,
    }
}

fn position(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(vec![Fact::new(DataType::I64, None)]) };
    let axis = call.axis(call.int("axis", 0)?, input.len())?;
    Ok(vec![Fact::new(DataType::I64, Some(without(input, &[axis], call.int("keepdims", 1)? != 0)))])
}

fn without(shape: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let kept = shape.iter().enumerate();
    kept.filter_map(|(axis, &dim)| match (axes.contains(&axis), keep) {
        (false, _) => Some(dim),
        (true, true) => Some(Dim::Known(1)),
        (true, false) => None,
    })
    .collect()
}
