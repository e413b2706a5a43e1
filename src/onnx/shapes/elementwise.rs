//! Operators that keep the shape, and those that broadcast.

use super::call::{Call, Rule};
use super::{Dim, Fact, fold};
use crate::error::Result;
use crate::onnx::node;
use crate::onnx::tensor::DataType;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "Abs"
        | "Acos"
        | "Acosh"
        | "Asin"
        | "Asinh"
        | "Atan"
        | "Atanh"
        | "BitwiseNot"
        | "Ceil"
        | "Celu"
        | "Clip"
        | "Cos"
        | "Cosh"
        | "CumSum"
        | "Elu"
        | "Erf"
        | "Exp"
        | "Floor"
        | "Gelu"
        | "GroupNormalization"
        | "HardSigmoid"
        | "HardSwish"
        | "Hardmax"
        | "Identity"
        | "InstanceNormalization"
        | "LRN"
        | "LeakyRelu"
        | "Log"
        | "LogSoftmax"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "Mish"
        | "Neg"
        | "Not"
        | "Reciprocal"
        | "Relu"
        | "Round"
        | "ScatterElements"
        | "ScatterND"
        | "Selu"
        | "Shrink"
        | "Sigmoid"
        | "Sign"
        | "Sin"
        | "Sinh"
        | "Softmax"
        | "Softplus"
        | "Softsign"
        | "Sqrt"
        | "Tan"
        | "Tanh"
        | "ThresholdedRelu"
        | "Trilu" => same,
        "BatchNormalization" | "Dropout" | "LayerNormalization" => first_of_several,
        "Cast" => cast,
        "CastLike" => cast_like,
        "IsNaN" | "IsInf" => truth,
        "QuantizeLinear" => quantize,
        "DequantizeLinear" => dequantize,
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Max" | "Min" | "Sum" | "Mean" | "PRelu" | "BitShift"
        | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" => arithmetic,
        "And" | "Or" | "Xor" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => comparison,
        "Where" => choice,
        _ => return None,
    })
}

fn same(call: &Call<'_>) -> Result<Vec<Fact>> {
    let input = call.input(0);
    let values = input.values.as_ref().and_then(|values| fold::unary(call.op(), values));
    Ok(vec![Fact::new(input.element, input.shape.clone()).with_values(values)])
}

/// Only the first result has a known shape; the others belong to training.
fn first_of_several(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(call.like_first(call.input(0).shape.clone()))
}

fn cast(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(cast_to(call, node::cast_target(call.node)?))
}

fn cast_like(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(cast_to(call, call.element(1)))
}

fn cast_to(call: &Call<'_>, target: DataType) -> Vec<Fact> {
    let input = call.input(0);
    let values = input.values.as_ref().and_then(|values| fold::cast(values, target));
    vec![Fact::new(target, input.shape.clone()).with_values(values)]
}

fn truth(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(vec![Fact::new(DataType::Bool, call.input(0).shape.clone())])
}

fn quantize(call: &Call<'_>) -> Result<Vec<Fact>> {
    let asked = call.int("output_dtype", 0)?;
    let element = if call.has(2) {
        call.element(2)
    } else if asked != 0 {
        i32::try_from(asked).map_or(DataType::Undefined, DataType::from_code)
    } else {
        DataType::U8
    };
    Ok(vec![Fact::new(element, call.input(0).shape.clone())])
}

fn dequantize(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(vec![Fact::new(call.element(1), call.input(0).shape.clone())])
}

fn arithmetic(call: &Call<'_>) -> Result<Vec<Fact>> {
    broadcast_all(call, call.element(0))
}

fn comparison(call: &Call<'_>) -> Result<Vec<Fact>> {
    broadcast_all(call, DataType::Bool)
}

fn broadcast_all(call: &Call<'_>, element: DataType) -> Result<Vec<Fact>> {
    let mut shape = Some(Vec::new());
    for input in call.inputs() {
        shape = broadcast_shapes(call, shape.as_deref(), input.shape.as_deref())?;
    }
    let fact = Fact::new(element, shape);
    let values = match (call.node.input.len(), fact.fixed()) {
        (2, Some(target)) => fold::binary(call.op(), call.input(0), call.input(1), &target),
        (1, _) => call.input(0).values.clone(),
        _ => None,
    };
    Ok(vec![fact.with_values(values)])
}

fn choice(call: &Call<'_>) -> Result<Vec<Fact>> {
    let mut shape = Some(Vec::new());
    for input in call.inputs() {
        shape = broadcast_shapes(call, shape.as_deref(), input.shape.as_deref())?;
    }
    let fact = Fact::new(call.element(1), shape);
    let values = fact.fixed().and_then(|target| {
        let condition = fold::broadcast(call.input(0), &target)?;
        let (yes, no) = (fold::broadcast(call.input(1), &target)?, fold::broadcast(call.input(2), &target)?);
        choose(&condition, &yes, &no)
    });
    Ok(vec![fact.with_values(values)])
}

fn choose(condition: &super::Values, yes: &super::Values, no: &super::Values) -> Option<super::Values> {
    use super::Values::{Floats, Ints};
    let Ints(condition) = condition else { return None };
    match (yes, no) {
        (Ints(yes), Ints(no)) => Some(Ints(
            condition
                .iter()
                .zip(yes.iter().zip(no))
                .map(|(&first, (&yes, &no))| if first != 0 { yes } else { no })
                .collect(),
        )),
        (Floats(yes), Floats(no)) => Some(Floats(
            condition
                .iter()
                .zip(yes.iter().zip(no))
                .map(|(&first, (&yes, &no))| if first != 0 { yes } else { no })
                .collect(),
        )),
        _ => None,
    }
}

/// The shape that both broadcast to.
pub(super) fn broadcast_shapes(
    call: &Call<'_>,
    left: Option<&[Dim]>,
    right: Option<&[Dim]>,
) -> Result<Option<Vec<Dim>>> {
    let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
    let rank = left.len().max(right.len());
    let dim = |shape: &[Dim], axis: usize| {
        (axis + shape.len()).checked_sub(rank).and_then(|axis| shape.get(axis).copied()).unwrap_or(Dim::Known(1))
    };
    (0..rank)
        .map(|axis| match (dim(left, axis), dim(right, axis)) {
            (Dim::Known(1), other) | (other, Dim::Known(1)) => Ok(other),
            (Dim::Known(left), Dim::Known(right)) if left != right => Err(call.wrong(format!(
                "found shapes that do not fit each other: {} and {}",
                super::fact::shape_text(Some(left_shape(call))),
                super::fact::shape_text(call.shape(1))
            ))),
            (Dim::Known(length), _) | (_, Dim::Known(length)) => Ok(Dim::Known(length)),
            (Dim::Unknown, Dim::Unknown) => Ok(Dim::Unknown),
        })
        .collect::<Result<_>>()
        .map(Some)
}

fn left_shape<'a>(call: &Call<'a>) -> &'a [Dim] {
    call.shape(0).unwrap_or_default()
}
