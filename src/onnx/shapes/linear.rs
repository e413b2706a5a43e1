//! Matrix products.

use super::call::{Call, Rule};
use super::elementwise::broadcast_shapes;
use super::{Dim, Fact};
use crate::error::Result;
use crate::onnx::tensor::DataType;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "MatMul" | "MatMulInteger" => product,
        "Gemm" => gemm,
        _ => return None,
    })
}

fn check_inner(call: &Call<'_>, left: Dim, right: Dim) -> Result<()> {
    match (left, right) {
        (Dim::Known(left), Dim::Known(right)) if left != right => {
            Err(call.wrong(format!("found matrices with inner lengths {left} and {right}, expected equal ones")))
        }
        _ => Ok(()),
    }
}

fn product(call: &Call<'_>) -> Result<Vec<Fact>> {
    let element = if call.op() == "MatMul" { call.element(0) } else { DataType::I32 };
    let (Some(left), Some(right)) = (call.shape(0), call.shape(1)) else { return Ok(vec![Fact::new(element, None)]) };
    let (left_rows, left_inner, left_batch) = match left {
        [] => return Err(call.wrong("found a scalar, expected a matrix")),
        [inner] => (None, *inner, &[][..]),
        [batch @ .., rows, inner] => (Some(*rows), *inner, batch),
    };
    let (right_inner, right_columns, right_batch) = match right {
        [] => return Err(call.wrong("found a scalar, expected a matrix")),
        [inner] => (*inner, None, &[][..]),
        [batch @ .., inner, columns] => (*inner, Some(*columns), batch),
    };
    check_inner(call, left_inner, right_inner)?;
    let mut shape = broadcast_shapes(call, Some(left_batch), Some(right_batch))?.unwrap_or_default();
    shape.extend(left_rows);
    shape.extend(right_columns);
    Ok(vec![Fact::new(element, Some(shape))])
}

fn gemm(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(left), Some(right)) = (call.shape(0), call.shape(1)) else { return Ok(call.unknown()) };
    let ([left_rows, left_columns], [right_rows, right_columns]) = (left, right) else {
        return Err(call.wrong(format!("found {} and {} dimensions, expected 2 and 2", left.len(), right.len())));
    };
    let turned = |name: &str, rows: Dim, columns: Dim| -> Result<(Dim, Dim)> {
        Ok(if call.int(name, 0)? == 0 { (rows, columns) } else { (columns, rows) })
    };
    let (rows, inner) = turned("transA", *left_rows, *left_columns)?;
    let (right_inner, columns) = turned("transB", *right_rows, *right_columns)?;
    check_inner(call, inner, right_inner)?;
    Ok(call.like_first(Some(vec![rows, columns])))
}
