//! Operators that pick elements: slice, gather, top-k, one-hot.

use super::call::{Call, Rule};
use super::fact::Values;
use super::{Dim, Fact};
use crate::error::Result;
use crate::onnx::tensor::DataType;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "Slice" => slice,
        "Gather" => gather,
        "GatherElements" => gather_elements,
        "GatherND" => gather_nd,
        "TopK" => top_k,
        "OneHot" => one_hot,
        _ => return None,
    })
}

/// Start, end and step along one axis.
struct Cut {
    axis: usize,
    start: i64,
    end: i64,
    step: i64,
}

impl Cut {
    /// First position and number of elements of this cut through `length` elements.
    fn apply(&self, length: i64) -> (i64, i64) {
        let from_end = |value: i64| if value < 0 { value.saturating_add(length) } else { value };
        let (start, end) = (from_end(self.start), from_end(self.end));
        let (start, end) = if self.step > 0 {
            (start.clamp(0, length), end.clamp(0, length))
        } else {
            (start.clamp(0, (length - 1).max(0)), end.clamp(-1, length - 1))
        };
        let span = if self.step > 0 { end - start } else { start - end };
        let step = self.step.unsigned_abs();
        let count = u64::try_from(span).map_or(0, |span| span.div_ceil(step));
        (start, i64::try_from(count).unwrap_or(i64::MAX))
    }
}

fn slice(call: &Call<'_>) -> Result<Vec<Fact>> {
    let Some(input) = call.shape(0) else { return Ok(call.unknown()) };
    let Some(cuts) = cuts(call, input.len())? else {
        return Ok(call.like_first(Some(vec![Dim::Unknown; input.len()])));
    };
    let mut shape = input.to_vec();
    for cut in &cuts {
        if let Some(dim) = shape.get_mut(cut.axis) {
            *dim = dim.known().map(|length| cut.apply(length).1).into();
        }
    }
    let values = match (cuts.as_slice(), input) {
        ([cut], [Dim::Known(length)]) => sliced(call.input(0), cut, *length),
        ([], _) => call.input(0).values.clone(),
        _ => None,
    };
    Ok(vec![Fact::new(call.element(0), Some(shape)).with_values(values)])
}

fn sliced(input: &Fact, cut: &Cut, length: i64) -> Option<Values> {
    let values = input.values.as_ref()?;
    let (start, count) = cut.apply(length);
    let positions: Vec<usize> = (0..count)
        .map(|at| usize::try_from(cut.step.checked_mul(at)?.checked_add(start)?).ok())
        .collect::<Option<_>>()?;
    values.pick(&positions)
}

/// The cuts of a `Slice`; `None` when they are not constant.
fn cuts(call: &Call<'_>, rank: usize) -> Result<Option<Vec<Cut>>> {
    let (Some(starts), Some(ends)) = (call.input(1).ints(), call.input(2).ints()) else { return Ok(None) };
    let axes: Vec<i64> = match (call.has(3), call.input(3).ints()) {
        (false, _) => (0..).take(starts.len()).collect(),
        (true, Some(axes)) => axes.to_vec(),
        (true, None) => return Ok(None),
    };
    let steps: Vec<i64> = match (call.has(4), call.input(4).ints()) {
        (false, _) => vec![1; starts.len()],
        (true, Some(steps)) => steps.to_vec(),
        (true, None) => return Ok(None),
    };
    if starts.len() != ends.len() || axes.len() != starts.len() || steps.len() != starts.len() || steps.contains(&0) {
        return Err(call
            .wrong(format!("found starts {starts:?}, ends {ends:?}, axes {axes:?}, steps {steps:?} that do not fit")));
    }
    let cuts = starts.iter().zip(ends).zip(axes.iter().zip(&steps));
    cuts.map(|((&start, &end), (&axis, &step))| Ok(Cut { axis: call.axis(axis, rank)?, start, end, step }))
        .collect::<Result<_>>()
        .map(Some)
}

fn gather(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(data), Some(indices)) = (call.shape(0), call.shape(1)) else { return Ok(call.unknown()) };
    let axis = call.axis(call.int("axis", 0)?, data.len())?;
    let (front, back) = data.split_at(axis);
    let shape: Vec<Dim> = front.iter().chain(indices).chain(back.iter().skip(1)).copied().collect();
    let values = match (data, call.input(0).values.as_ref(), call.input(1).ints()) {
        ([Dim::Known(length)], Some(values), Some(indices)) => {
            let positions: Vec<usize> = indices
                .iter()
                .map(|&index| {
                    let index = if index < 0 { index.saturating_add(*length) } else { index };
                    usize::try_from(index).ok().filter(|&index| index < values.len())
                })
                .collect::<Option<_>>()
                .ok_or_else(|| {
                    call.wrong(format!("found indices {indices:?}, expected them inside {length} elements"))
                })?;
            values.pick(&positions)
        }
        _ => None,
    };
    Ok(vec![Fact::new(call.element(0), Some(shape)).with_values(values)])
}

fn gather_elements(call: &Call<'_>) -> Result<Vec<Fact>> {
    Ok(call.like_first(call.input(1).shape.clone()))
}

fn gather_nd(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(data), Some(indices)) = (call.shape(0), call.shape(1)) else { return Ok(call.unknown()) };
    let batch = usize::try_from(call.int("batch_dims", 0)?).unwrap_or(usize::MAX);
    let Some((Dim::Known(depth), front)) = indices.split_last() else { return Ok(call.unknown()) };
    let taken =
        usize::try_from(*depth).ok().and_then(|depth| depth.checked_add(batch)).filter(|&taken| taken <= data.len());
    let Some(taken) = taken else {
        return Err(call.wrong(format!("found indices of depth {depth} into {} dimensions", data.len())));
    };
    Ok(call.like_first(Some(front.iter().chain(data.iter().skip(taken)).copied().collect())))
}

fn top_k(call: &Call<'_>) -> Result<Vec<Fact>> {
    let both =
        |shape: Option<Vec<Dim>>| vec![Fact::new(call.element(0), shape.clone()), Fact::new(DataType::I64, shape)];
    let Some(input) = call.shape(0) else { return Ok(both(None)) };
    let axis = call.axis(call.int("axis", -1)?, input.len())?;
    let wanted = call.input(1).ints().and_then(|values| values.first().copied());
    let length = input.get(axis).and_then(|dim| dim.known());
    if let (Some(wanted), Some(length)) = (wanted, length)
        && wanted > length
    {
        return Err(call.wrong(format!("found {length} elements, expected at least the {wanted} asked for")));
    }
    let mut shape = input.to_vec();
    if let Some(dim) = shape.get_mut(axis) {
        *dim = wanted.into();
    }
    Ok(both(Some(shape)))
}

fn one_hot(call: &Call<'_>) -> Result<Vec<Fact>> {
    let element = call.element(2);
    let Some(indices) = call.shape(0) else { return Ok(vec![Fact::new(element, None)]) };
    let axis = call.int("axis", -1)?;
    let at = call.axis(axis, indices.len() + 1)?;
    let depth = call.input(1).ints().and_then(|values| values.first().copied());
    let mut shape = indices.to_vec();
    shape.insert(at.min(shape.len()), depth.into());
    let fact = Fact::new(element, Some(shape));
    Ok(vec![fact])
}
