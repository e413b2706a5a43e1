//! Arithmetic on small constants.

use super::fact::{Values, volume};
use super::{Fact, MAX_VALUES};
use crate::onnx::tensor::DataType;
use crate::units;

/// Positions in a tensor of `shape` of all elements of a tensor of `target` that it is broadcast to.
pub(super) fn broadcast_positions(shape: &[i64], target: &[i64]) -> Option<Vec<usize>> {
    let count = volume(target).filter(|&count| count <= MAX_VALUES)?;
    let target: Vec<usize> = target.iter().map(|&length| usize::try_from(length).ok()).collect::<Option<_>>()?;
    let missing = target.len().checked_sub(shape.len())?;
    let mut strides = vec![0_usize; target.len()];
    let mut stride = 1_usize;
    for (axis, &length) in shape.iter().enumerate().rev() {
        let length = usize::try_from(length).ok()?;
        *strides.get_mut(missing + axis)? = if length == 1 { 0 } else { stride };
        stride = stride.checked_mul(length)?;
    }
    let mut positions = Vec::with_capacity(count);
    for linear in 0..count {
        let (mut rest, mut position) = (linear, 0_usize);
        for (&length, &stride) in target.iter().zip(&strides).rev() {
            position += rest % length * stride;
            rest /= length;
        }
        positions.push(position);
    }
    Some(positions)
}

/// The values of `fact` broadcast to `target`.
pub(super) fn broadcast(fact: &Fact, target: &[i64]) -> Option<Values> {
    let values = fact.values.as_ref()?;
    values.pick(&broadcast_positions(&fact.fixed()?, target)?)
}

/// `left op right`, both broadcast to `target`.
pub(super) fn binary(op_type: &str, left: &Fact, right: &Fact, target: &[i64]) -> Option<Values> {
    match (broadcast(left, target)?, broadcast(right, target)?) {
        (Values::Ints(left), Values::Ints(right)) => left
            .into_iter()
            .zip(right)
            .map(|(left, right)| int_binary(op_type, left, right))
            .collect::<Option<_>>()
            .map(Values::Ints),
        (Values::Floats(left), Values::Floats(right)) => {
            let pairs = left.into_iter().zip(right);
            if let Some(compare) = comparison(op_type) {
                return Some(Values::Ints(
                    pairs.map(|(left, right)| i64::from(compare(left.partial_cmp(&right)))).collect(),
                ));
            }
            pairs.map(|(left, right)| float_binary(op_type, left, right)).collect::<Option<_>>().map(Values::Floats)
        }
        _ => None,
    }
}

type Compare = fn(Option<std::cmp::Ordering>) -> bool;

fn comparison(op_type: &str) -> Option<Compare> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    Some(match op_type {
        "Equal" => |order| order == Some(Equal),
        "Greater" => |order| order == Some(Greater),
        "GreaterOrEqual" => |order| matches!(order, Some(Greater | Equal)),
        "Less" => |order| order == Some(Less),
        "LessOrEqual" => |order| matches!(order, Some(Less | Equal)),
        _ => return None,
    })
}

fn int_binary(op_type: &str, left: i64, right: i64) -> Option<i64> {
    if let Some(compare) = comparison(op_type) {
        return Some(i64::from(compare(Some(left.cmp(&right)))));
    }
    match op_type {
        "Add" | "Sum" => left.checked_add(right),
        "Sub" => left.checked_sub(right),
        "Mul" => left.checked_mul(right),
        "Div" => left.checked_div(right),
        "Mod" => {
            left.checked_rem(right).map(|rest| if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest })
        }
        "Pow" => left.checked_pow(u32::try_from(right).ok()?),
        "Min" => Some(left.min(right)),
        "Max" => Some(left.max(right)),
        "And" => Some(i64::from(left != 0 && right != 0)),
        "Or" => Some(i64::from(left != 0 || right != 0)),
        "Xor" => Some(i64::from((left != 0) != (right != 0))),
        _ => None,
    }
}

fn float_binary(op_type: &str, left: f32, right: f32) -> Option<f32> {
    Some(match op_type {
        "Add" | "Sum" => left + right,
        "Sub" => left - right,
        "Mul" => left * right,
        "Div" => left / right,
        "Pow" => left.powf(right),
        "Min" => left.min(right),
        "Max" => left.max(right),
        _ => return None,
    })
}

/// `op` of every value.
pub(super) fn unary(op_type: &str, values: &Values) -> Option<Values> {
    match values {
        Values::Ints(values) => {
            let each: fn(i64) -> Option<i64> = match op_type {
                "Identity" => Some,
                "Neg" => i64::checked_neg,
                "Abs" => i64::checked_abs,
                "Sign" => |value| Some(value.signum()),
                "Not" => |value| Some(i64::from(value == 0)),
                _ => return None,
            };
            values.iter().map(|&value| each(value)).collect::<Option<_>>().map(Values::Ints)
        }
        Values::Floats(values) => {
            let each: fn(f32) -> f32 = match op_type {
                "Identity" => |value| value,
                "Neg" => |value| -value,
                "Abs" => f32::abs,
                "Floor" => f32::floor,
                "Ceil" => f32::ceil,
                "Round" => f32::round_ties_even,
                "Sqrt" => f32::sqrt,
                _ => return None,
            };
            Some(Values::Floats(values.iter().map(|&value| each(value)).collect()))
        }
    }
}

/// The values as element type `target`; integers too narrow for a value give `None`.
pub(super) fn cast(values: &Values, target: DataType) -> Option<Values> {
    if target == DataType::Bool {
        return Some(Values::Ints(match values {
            Values::Ints(values) => values.iter().map(|&value| i64::from(value != 0)).collect(),
            Values::Floats(values) => values.iter().map(|&value| i64::from(value != 0.0)).collect(),
        }));
    }
    if target.is_integer() {
        let whole = match values {
            Values::Ints(values) => values.clone(),
            Values::Floats(values) => values.iter().map(|&value| units::truncated(value)).collect::<Option<_>>()?,
        };
        return whole.iter().all(|&value| fits(value, target)).then_some(Values::Ints(whole));
    }
    if target == DataType::F32 {
        return Some(Values::Floats(match values {
            Values::Ints(values) => values.iter().map(|&value| units::float_of_int(value)).collect(),
            Values::Floats(values) => values.clone(),
        }));
    }
    None
}

fn fits(value: i64, target: DataType) -> bool {
    match target {
        DataType::I64 => true,
        DataType::I32 => i32::try_from(value).is_ok(),
        DataType::I16 => i16::try_from(value).is_ok(),
        DataType::I8 => i8::try_from(value).is_ok(),
        DataType::U64 => value >= 0,
        DataType::U32 => u32::try_from(value).is_ok(),
        DataType::U16 => u16::try_from(value).is_ok(),
        DataType::U8 => u8::try_from(value).is_ok(),
        _ => false,
    }
}
