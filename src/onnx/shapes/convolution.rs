//! Convolutions and pooling.

use super::call::{Call, Rule};
use super::{Dim, Fact};
use crate::error::Result;
use crate::onnx::tensor::DataType;

pub(super) fn rule(op_type: &str) -> Option<Rule> {
    Some(match op_type {
        "Conv" | "ConvInteger" | "QLinearConv" => convolution,
        "ConvTranspose" => transposed,
        "MaxPool" | "AveragePool" | "LpPool" => pool,
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => global_pool,
        _ => return None,
    })
}

/// Windows along the spatial axes, one entry an axis.
struct Windows<'a> {
    kernel: Vec<i64>,
    strides: Option<&'a [i64]>,
    dilations: Option<&'a [i64]>,
    pads: Option<&'a [i64]>,
    auto_pad: &'a str,
    ceil: bool,
}

impl<'a> Windows<'a> {
    fn read(call: &Call<'a>, kernel: Vec<i64>) -> Result<Windows<'a>> {
        let axes = kernel.len();
        let windows = Windows {
            kernel,
            strides: call.ints("strides")?,
            dilations: call.ints("dilations")?,
            pads: call.ints("pads")?,
            auto_pad: call.text("auto_pad")?.unwrap_or("NOTSET"),
            ceil: call.int("ceil_mode", 0)? != 0,
        };
        let fits = |values: Option<&[i64]>, wanted: usize, least: i64| {
            values.is_none_or(|values| {
                values.len() == wanted && values.iter().all(|&value| (least..=1 << 30).contains(&value))
            })
        };
        let kernel_fits = windows.kernel.iter().all(|&length| (1..=1 << 30).contains(&length));
        if !(kernel_fits
            && fits(windows.strides, axes, 1)
            && fits(windows.dilations, axes, 1)
            && fits(windows.pads, 2 * axes, 0))
        {
            return Err(call.wrong(format!(
                "found kernel {:?}, strides {:?}, dilations {:?}, pads {:?}, expected positive numbers for {axes} axes",
                windows.kernel, windows.strides, windows.dilations, windows.pads
            )));
        }
        Ok(windows)
    }

    fn stride(&self, axis: usize) -> i64 {
        self.strides.and_then(|strides| strides.get(axis)).copied().unwrap_or(1)
    }

    /// Pixels a window covers along `axis`.
    fn extent(&self, axis: usize) -> i64 {
        let dilation = self.dilations.and_then(|dilations| dilations.get(axis)).copied().unwrap_or(1);
        (self.kernel.get(axis).copied().unwrap_or(1) - 1).saturating_mul(dilation).saturating_add(1)
    }

    fn pad(&self, position: usize) -> i64 {
        self.pads.and_then(|pads| pads.get(position)).copied().unwrap_or(0)
    }

    /// Number of windows along `axis` of `length` pixels.
    fn count(&self, axis: usize, length: i64) -> Option<i64> {
        let stride = self.stride(axis);
        if self.auto_pad.starts_with("SAME") {
            return Some(length.div_euclid(stride) + i64::from(length.rem_euclid(stride) != 0));
        }
        let explicit = self.auto_pad != "VALID";
        let (before, after) = if explicit { (self.pad(axis), self.pad(axis + self.kernel.len())) } else { (0, 0) };
        let room = length.checked_add(before + after)?.checked_sub(self.extent(axis))?;
        if room < 0 {
            return None;
        }
        let rounded_up = self.ceil && room % stride != 0 && (room / stride + 1) * stride < length + before;
        Some(room / stride + 1 + i64::from(rounded_up))
    }
}

fn spatial(call: &Call<'_>, shape: &[Dim], windows: &Windows<'_>) -> Result<Vec<Dim>> {
    shape
        .iter()
        .skip(2)
        .enumerate()
        .map(|(axis, dim)| match dim {
            Dim::Unknown => Ok(Dim::Unknown),
            Dim::Known(length) => windows.count(axis, *length).map(|count| Some(count).into()).ok_or_else(|| {
                call.wrong(format!(
                    "found {length} pixels along axis {}, expected at least {}",
                    axis + 2,
                    windows.extent(axis)
                ))
            }),
        })
        .collect()
}

fn convolution(call: &Call<'_>) -> Result<Vec<Fact>> {
    let quantized = call.op() == "QLinearConv";
    let weight = call.input(if quantized { 3 } else { 1 });
    let element = match call.op() {
        "ConvInteger" => DataType::I32,
        "QLinearConv" => call.element(7),
        _ => call.element(0),
    };
    let (Some(input), Some(weight)) = (call.shape(0), weight.fixed()) else {
        return Ok(vec![Fact::new(element, None)]);
    };
    let (Some(&filters), Some(&depth), Some(kernel)) = (weight.first(), weight.get(1), weight.get(2..)) else {
        return Err(call.wrong(format!("found weights {weight:?}, expected at least 3 dimensions")));
    };
    check_channels(call, input, kernel.len(), depth.saturating_mul(call.int("group", 1)?))?;
    let windows = Windows::read(call, kernel.to_vec())?;
    let mut shape = vec![input.first().copied().unwrap_or(Dim::Unknown), Some(filters).into()];
    shape.extend(spatial(call, input, &windows)?);
    Ok(vec![Fact::new(element, Some(shape))])
}

fn check_channels(call: &Call<'_>, input: &[Dim], axes: usize, channels: i64) -> Result<()> {
    if input.len() != axes + 2 || matches!(input.get(1), Some(Dim::Known(found)) if *found != channels) {
        return Err(call.wrong(format!(
            "found input {}, expected {} dimensions and {channels} channels",
            super::fact::shape_text(Some(input)),
            axes + 2
        )));
    }
    Ok(())
}

fn transposed(call: &Call<'_>) -> Result<Vec<Fact>> {
    let (Some(input), Some(weight)) = (call.shape(0), call.input(1).fixed()) else { return Ok(call.unknown()) };
    let (Some(&depth), Some(&filters), Some(kernel)) = (weight.first(), weight.get(1), weight.get(2..)) else {
        return Err(call.wrong(format!("found weights {weight:?}, expected at least 3 dimensions")));
    };
    check_channels(call, input, kernel.len(), depth)?;
    let windows = Windows::read(call, kernel.to_vec())?;
    let extra = call.ints("output_padding")?;
    let wanted = call.ints("output_shape")?;
    let mut shape = vec![input.first().copied().unwrap_or(Dim::Unknown)];
    shape.push(filters.checked_mul(call.int("group", 1)?).into());
    for (axis, dim) in input.iter().skip(2).enumerate() {
        let length = dim.known().and_then(|length| {
            if let Some(&wanted) = wanted.and_then(|wanted| wanted.get(axis)) {
                return Some(wanted);
            }
            if windows.auto_pad.starts_with("SAME") {
                return length.checked_mul(windows.stride(axis));
            }
            let pads = windows.pad(axis) + windows.pad(axis + kernel.len());
            let extra = extra.and_then(|extra| extra.get(axis)).copied().unwrap_or(0);
            windows
                .stride(axis)
                .checked_mul(length - 1)?
                .checked_add(extra)?
                .checked_add(windows.extent(axis))?
                .checked_sub(pads)
        });
        shape.push(length.into());
    }
    Ok(call.like_first(Some(shape)))
}

fn pool(call: &Call<'_>) -> Result<Vec<Fact>> {
    let indices =
        |shape: Option<Vec<Dim>>| vec![Fact::new(call.element(0), shape.clone()), Fact::new(DataType::I64, shape)];
    let Some(input) = call.shape(0) else { return Ok(indices(None)) };
    let Some(kernel) = call.ints("kernel_shape")? else {
        return Err(call.wrong("found no `kernel_shape`, expected one"));
    };
    if input.len() != kernel.len() + 2 {
        return Err(call.wrong(format!("found {} dimensions, expected {}", input.len(), kernel.len() + 2)));
    }
    let windows = Windows::read(call, kernel.to_vec())?;
    let mut shape: Vec<Dim> = input.iter().take(2).copied().collect();
    shape.extend(spatial(call, input, &windows)?);
    Ok(indices(Some(shape)))
}

fn global_pool(call: &Call<'_>) -> Result<Vec<Fact>> {
    let shape = call
        .shape(0)
        .map(|shape| shape.iter().enumerate().map(|(axis, &dim)| if axis < 2 { dim } else { Dim::Known(1) }).collect());
    Ok(call.like_first(shape))
}
