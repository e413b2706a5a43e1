//! Operators that move elements about: reshape, transpose, concat, split, expand, tile, pad.

use super::call::{Call, Rule};
use super::fact::{Values, volume};
use super::{Dim, Fact, fold};
use crate::error::Result;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "Reshape" => reshape,
        "Flatten" => flatten,
        "Transpose" => transpose,
        "Squeeze" => squeeze,
        "Unsqueeze" => unsqueeze,
        "Concat" => concat,
        "Split" => split,
        "Expand" => expand,
        "Tile" => tile,
        "Pad" => pad,
        "DepthToSpace" => depth_to_space,
        "SpaceToDepth" => space_to_depth,
        _ => return None,
    })
}

/// One result like input 0 in type and values, of another shape.
fn reshaped(call: &Call<'_>, shape: Vec<Dim>) -> Vec<Fact> {
    vec![Fact::new(call.element(0), Some(shape)).with_values(call.input(0).values.clone())]
}

fn product(dims: &[Dim]) -> Option<i64> {
    dims.iter().try_fold(1_i64, |product, dim| product.checked_mul(dim.known()?))
}

fn reshape(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(wanted) = call.input(1).ints() else {
        let rank = call.input(1).fixed().and_then(|shape| usize::try_from(*shape.first()?).ok());
        return Ok(call.like_first(rank.filter(|&rank| rank <= super::MAX_RANK).map(|rank| vec![Dim::Unknown; rank])));
    };
    let keep_zero = call.int("allowzero", 0)? != 0;
    let input = call.shape(0);
    let mut open = None;
    let mut shape = Vec::with_capacity(wanted.len());
    for (axis, &length) in wanted.iter().enumerate() {
        shape.push(match length {
            -1 if open.is_some() => return Err(call.wrong(format!("found target {wanted:?}, expected at most one −1"))),
            -1 => {
                open = Some(axis);
                Dim::Unknown
            }
            0 if !keep_zero => input.and_then(|input| input.get(axis).copied()).unwrap_or(Dim::Unknown),
            length if length < 0 => {
                return Err(call.wrong(format!("found target {wanted:?}, expected no length below −1")));
            }
            length => Some(length).into(),
        });
    }
    let elements = input.and_then(product);
    let others: Vec<Dim> =
        shape.iter().enumerate().filter(|(axis, _)| Some(*axis) != open).map(|(_, &dim)| dim).collect();
    if let (Some(elements), Some(others)) = (elements, product(&others)) {
        let fits = if open.is_some() { others > 0 && elements % others == 0 } else { others == elements };
        if !fits {
            return Err(call.wrong(format!(
                "found {} with {elements} elements, expected them to fit into {wanted:?}",
                super::fact::shape_text(input)
            )));
        }
        if let Some(dim) = open.and_then(|axis| shape.get_mut(axis)) {
            *dim = Some(elements / others).into();
        }
    }
    Ok(reshaped(call, shape))
}

fn flatten(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(call.like_first(Some(vec![Dim::Unknown; 2]))) };
    let axis = call.int("axis", 1)?;
    let split = if usize::try_from(axis) == Ok(input.len()) { input.len() } else { call.axis(axis, input.len())? };
    let (front, back) = input.split_at(split.min(input.len()));
    Ok(reshaped(call, vec![product(front).into(), product(back).into()]))
}

fn transpose(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(call.unknown()) };
    let order: Vec<usize> = match call.ints("perm")? {
        Some(order) => order.iter().map(|&axis| call.axis(axis, input.len())).collect::<Result<_>>()?,
        None => (0..input.len()).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..input.len()).collect::<Vec<_>>() {
        return Err(call.wrong(format!("found order {order:?}, expected each of {} axes once", input.len())));
    }
    let shape = order.iter().filter_map(|&axis| input.get(axis).copied()).collect();
    let values = call.input(0).values.clone().filter(|_| input.len() <= 1);
    Ok(vec![Fact::new(call.element(0), Some(shape)).with_values(values)])
}

fn squeeze(call: &Call<'_>) -> Result<Vec<Fact>> {
    let axes = call.ints_either("axes", 1)?;
    let Some(input) = call.shape(0) else { return Ok(call.unknown()) };
    let drop: Vec<usize> = match axes {
        Some(None) => return Ok(call.unknown()),
        Some(Some(axes)) => axes.iter().map(|&axis| call.axis(axis, input.len())).collect::<Result<_>>()?,
        None if input.iter().any(|dim| dim.known().is_none()) => return Ok(call.unknown()),
        None => (0..input.len()).filter(|&axis| input.get(axis) == Some(&Dim::Known(1))).collect(),
    };
    if let Some(axis) = drop.iter().find(|&&axis| matches!(input.get(axis), Some(Dim::Known(length)) if *length != 1)) {
        return Err(
            call.wrong(format!("found {}, expected length 1 on axis {axis}", super::fact::shape_text(Some(input))))
        );
    }
    let shape = input.iter().enumerate().filter(|(axis, _)| !drop.contains(axis)).map(|(_, &dim)| dim).collect();
    Ok(reshaped(call, shape))
}

fn unsqueeze(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(input), Some(Some(axes))) = (call.shape(0), call.ints_either("axes", 1)?) else {
        return Ok(call.unknown());
    };
    let rank = input.len() + axes.len();
    let new: Vec<usize> = axes.iter().map(|&axis| call.axis(axis, rank)).collect::<Result<_>>()?;
    let mut old = input.iter();
    let shape: Vec<Dim> = (0..rank)
        .filter_map(|axis| if new.contains(&axis) { Some(Dim::Known(1)) } else { old.next().copied() })
        .collect();
    if shape.len() != rank {
        return Err(call.wrong(format!("found axes {axes:?}, expected each once")));
    }
    Ok(reshaped(call, shape))
}

fn concat(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(first) = call.inputs().find_map(|input| input.shape.as_ref()) else { return Ok(call.unknown()) };
    let axis = call.axis(call.int("axis", 0)?, first.len())?;
    let mut shape = first.clone();
    let mut length = Some(0_i64);
    for input in call.inputs() {
        let Some(other) = input.shape.as_ref() else {
            length = None;
            continue;
        };
        if other.len() != shape.len() {
            return Err(call.wrong(format!("found inputs of {} and {} dimensions", shape.len(), other.len())));
        }
        for (position, (dim, &found)) in shape.iter_mut().zip(other).enumerate() {
            match (*dim, found) {
                _ if position == axis => {
                    length = length.zip(found.known()).and_then(|(sum, length)| sum.checked_add(length));
                }
                (Dim::Known(one), Dim::Known(two)) if one != two => {
                    return Err(
                        call.wrong(format!("found lengths {one} and {two} on axis {position}, expected equal ones"))
                    );
                }
                (Dim::Unknown, Dim::Known(_)) => *dim = found,
                _ => {}
            }
        }
    }
    if let Some(dim) = shape.get_mut(axis) {
        *dim = length.into();
    }
    let values = if first.len() == 1 { joined(call) } else { None };
    Ok(vec![Fact::new(call.element(0), Some(shape)).with_values(values)])
}

fn joined(call: &Call<'_>) -> Option<Values> {
    let mut ints = Vec::new();
    let mut floats = Vec::new();
    for input in call.inputs() {
        match input.values.as_ref()? {
            Values::Ints(values) => ints.extend_from_slice(values),
            Values::Floats(values) => floats.extend_from_slice(values),
        }
        if ints.len() + floats.len() > super::MAX_VALUES {
            return None;
        }
    }
    if floats.is_empty() { Some(Values::Ints(ints)) } else { ints.is_empty().then_some(Values::Floats(floats)) }
}

fn split(call: &Call<'_>) -> Result<Vec<Fact>> {
    let count = call.node.output.len();
    let Some(input) = call.shape(0) else { return Ok(vec![Fact::new(call.element(0), None); count]) };
    let axis = call.axis(call.int("axis", 0)?, input.len())?;
    let length = input.get(axis).and_then(|dim| dim.known());
    let parts: Vec<Dim> = match call.ints_either("split", 1)? {
        Some(Some(parts)) => {
            let sum = parts.iter().try_fold(0_i64, |sum, &part| sum.checked_add(part));
            if parts.len() != count
                || length.is_some_and(|length| Some(length) != sum)
                || parts.iter().any(|&part| part < 0)
            {
                return Err(call.wrong(format!("found parts {parts:?}, expected {count} that add up to {length:?}")));
            }
            parts.iter().map(|&part| Some(part).into()).collect()
        }
        Some(None) => vec![Dim::Unknown; count],
        None => equal_parts(length, count),
    };
    let mut start = Some(0_usize);
    Ok(parts
        .into_iter()
        .map(|part| {
            let mut shape = input.to_vec();
            if let Some(dim) = shape.get_mut(axis) {
                *dim = part;
            }
            let size = part.known().and_then(|size| usize::try_from(size).ok());
            let range = start.zip(size).map(|(start, size)| start..start.saturating_add(size));
            start = range.as_ref().map(|range| range.end);
            let values = range
                .filter(|range| input.len() == 1 && range.len() <= super::MAX_VALUES)
                .and_then(|range| call.input(0).values.as_ref()?.pick(&range.collect::<Vec<_>>()));
            Fact::new(call.element(0), Some(shape)).with_values(values)
        })
        .collect())
}

/// Equal parts of `length`; the last one is smaller when they do not come out even.
fn equal_parts(length: Option<i64>, count: usize) -> Vec<Dim> {
    let parts = i64::try_from(count).unwrap_or(i64::MAX).max(1);
    (0..parts)
        .map(|part| {
            let length = length?;
            let size = length / parts + i64::from(length % parts != 0);
            Some((length - part.saturating_mul(size)).clamp(0, size))
        })
        .map(Dim::from)
        .collect()
}

fn expand(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(target) = call.input(1).ints() else { return Ok(call.unknown()) };
    let target: Vec<Dim> = target.iter().map(|&length| Dim::from(Some(length))).collect();
    let shape = super::elementwise::broadcast_shapes(call, call.shape(0), Some(&target))?;
    let fact = Fact::new(call.element(0), shape);
    let values = fact.fixed().and_then(|target| fold::broadcast(call.input(0), &target));
    Ok(vec![fact.with_values(values)])
}

fn tile(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(input), Some(repeats)) = (call.shape(0), call.input(1).ints()) else { return Ok(call.unknown()) };
    if input.len() != repeats.len() {
        return Err(call.wrong(format!("found {} repeats, expected {}", repeats.len(), input.len())));
    }
    let shape = input
        .iter()
        .zip(repeats)
        .map(|(dim, &repeat)| dim.known().and_then(|length| length.checked_mul(repeat)).into());
    let fact = Fact::new(call.element(0), Some(shape.collect()));
    let values = match (fact.fixed().as_deref(), call.input(0).values.as_ref()) {
        (Some(shape @ [length]), Some(values))
            if volume(shape).is_some_and(|count| count <= super::MAX_VALUES) && !values.is_empty() =>
        {
            usize::try_from(*length)
                .ok()
                .and_then(|length| values.pick(&(0..length).map(|at| at % values.len()).collect::<Vec<_>>()))
        }
        _ => None,
    };
    Ok(vec![fact.with_values(values)])
}

fn pad(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(input), Some(Some(pads))) = (call.shape(0), call.ints_either("pads", 1)?) else {
        return Ok(call.unknown());
    };
    let axes: Vec<usize> = match (call.has(3), call.input(3).ints()) {
        (false, _) => (0..input.len()).collect(),
        (true, Some(axes)) => axes.iter().map(|&axis| call.axis(axis, input.len())).collect::<Result<_>>()?,
        (true, None) => return Ok(call.unknown()),
    };
    if pads.len() != 2 * axes.len() {
        return Err(call.wrong(format!("found {} pads, expected {}", pads.len(), 2 * axes.len())));
    }
    let (before, after) = pads.split_at(axes.len());
    let mut shape = input.to_vec();
    for (axis, (&before, &after)) in axes.into_iter().zip(before.iter().zip(after)) {
        if let Some(dim) = shape.get_mut(axis) {
            *dim = dim.known().and_then(|length| length.checked_add(before)?.checked_add(after)).into();
        }
    }
    Ok(call.like_first(Some(shape)))
}

fn depth_to_space(call: &Call<'_>) -> Result<Vec<Fact>> {
    blocks(
        call,
        |length, block| (length % block == 0).then_some(length / block),
        |length, block| length.checked_mul(block),
    )
}

fn space_to_depth(call: &Call<'_>) -> Result<Vec<Fact>> {
    blocks(
        call,
        |length, block| length.checked_mul(block),
        |length, block| (length % block == 0).then_some(length / block),
    )
}

type Scale = fn(i64, i64) -> Option<i64>;

fn blocks(call: &Call<'_>, depth: Scale, space: Scale) -> Result<Vec<Fact>> {
    let block = call.int("blocksize", 0)?;
    let Some(input) = call.shape(0) else { return Ok(call.unknown()) };
    let [batch, channels, height, width] = input else {
        return Err(call.wrong(format!("found {} dimensions, expected 4", input.len())));
    };
    if !(1..=1 << 15).contains(&block) {
        return Err(call.wrong(format!("found block size {block}, expected a small positive number")));
    }
    let scaled = |dim: &Dim, scale: Scale, by: i64| -> Result<Dim> {
        match dim.known() {
            None => Ok(Dim::Unknown),
            Some(length) => scale(length, by)
                .map(|length| Some(length).into())
                .ok_or_else(|| call.wrong(format!("found length {length}, expected a multiple of {by}"))),
        }
    };
    let shape = vec![
        *batch,
        scaled(channels, depth, block * block)?,
        scaled(height, space, block)?,
        scaled(width, space, block)?,
    ];
    Ok(call.like_first(Some(shape)))
}
