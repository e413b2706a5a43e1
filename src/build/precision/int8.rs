//! INT8: symmetric Q/DQ around convolutions, as TensorRT's explicit quantisation wants it.
//!
//! Weights are stored as `int8` with a scale for each output channel; activations have one scale for each group of tensors
//! that a concatenation, a split, a max-pool or a nearest resize connects. Zero points are 0.

use super::placement::{Placement, data_inputs, passes};
use super::scales::{LEAST_SCALE, STEPS, scale};
use crate::error::{Error, Result};
use crate::onnx::Model;
use crate::onnx::node::make;
use crate::onnx::tensor;
use onnx_protobuf::{NodeProto, TensorProto};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Oldest opset in which a scale may differ from channel to channel.
const OLDEST_OPSET: i64 = 13;
/// A channel whose largest weight is this many times smaller than the layer's is worth a remark without own scales.
const EXTREME_RATIO: f32 = 1000.0;

/// Range of one activation group and its scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActivationScale {
    /// Largest magnitude seen.
    pub(super) largest: f32,
    /// Where the range is cut off.
    pub(super) cut: f32,
}

/// What is remarkable about the weights, one sentence each.
pub(super) type Remarks = Vec<String>;

/// Writes Q/DQ pairs into `model` as `placement` says; `ranges` holds one entry a group.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for an opset below 13.
pub(super) fn rewrite(
    model: &mut Model,
    placement: &Placement,
    ranges: &BTreeMap<usize, ActivationScale>,
) -> Result<Remarks> {
    if model.opset() < OLDEST_OPSET {
        return Err(Error::refused(format!(
            "found opset {}, expected at least {OLDEST_OPSET} for INT8",
            model.opset()
        ))
        .hint(format!("export again: `yolo export model=x.pt format=onnx opset={OLDEST_OPSET}`")));
    }
    let quantised: HashSet<usize> =
        placement.layers.iter().filter(|layer| layer.float.is_none()).map(|layer| layer.position).collect();
    let weights: HashMap<String, TensorProto> =
        model.graph().initializer.iter().map(|weight| (weight.name.clone(), weight.clone())).collect();
    let mut writer = Writer { placement, weights, constants: Vec::new(), made: HashSet::new(), remarks: Vec::new() };
    for (&group, range) in ranges {
        let [name, zero] = group_constants(group);
        writer.constants.push(tensor::from_f32(&name, &[], &[scale(range.cut)]));
        writer.constants.push(tensor::from_i8(&zero, &[], &[0]));
    }
    let nodes = std::mem::take(&mut model.graph_mut().node);
    let mut done = Vec::with_capacity(nodes.len() * 2);
    model.graph().input.iter().for_each(|input| writer.pair(&input.name, &mut done));
    for (position, mut node) in nodes.into_iter().enumerate() {
        if quantised.contains(&position) {
            writer.weight(&mut node, &mut done)?;
        }
        writer.inputs(&mut node, quantised.contains(&position) || placement.readers.contains(&position));
        let outputs = node.output.clone();
        done.push(node);
        for output in &outputs {
            writer.pair(output, &mut done);
        }
    }
    let graph = model.graph_mut();
    graph.node = done;
    graph.initializer.append(&mut writer.constants);
    let remarks = std::mem::take(&mut writer.remarks);
    crate::onnx::edit::remove_dead_nodes(graph);
    Ok(remarks)
}

/// Names of the scale and the zero point of a group.
fn group_constants(group: usize) -> [String; 2] {
    ["scale", "zero"].map(|part| format!("int8_group{group}_{part}"))
}

struct Writer<'a> {
    placement: &'a Placement,
    weights: HashMap<String, TensorProto>,
    constants: Vec<TensorProto>,
    made: HashSet<String>,
    remarks: Remarks,
}

impl Writer<'_> {
    /// Lets `node` read the dequantised form of its inputs where it can make use of 8 bits.
    fn inputs(&self, node: &mut NodeProto, reads_stored: bool) {
        let group_of = &self.placement.group_of;
        let passing = passes(node)
            && node.output.iter().any(|output| group_of.contains_key(output))
            && data_inputs(node).all(|input| group_of.contains_key(input));
        let taken = match node.op_type.as_str() {
            _ if reads_stored => 1,
            _ if passing => node.input.len(),
            // A residual sum reads what its branch has stored anyway.
            "Add" => 2,
            _ => 0,
        };
        for (at, input) in node.input.iter_mut().enumerate().filter(|(_, input)| group_of.contains_key(*input)) {
            // What a passing operator makes has only 256 values anyway: one that stays in float reads those too, so that the
            // passing operator need not be run in float beside.
            if at < taken || !self.placement.sources.contains_key(input) {
                *input = format!("{input}_dequantized");
            }
        }
    }

    /// The Q/DQ pair behind tensor `name`.
    fn pair(&self, name: &str, nodes: &mut Vec<NodeProto>) {
        let Some(&group) = self.placement.group_of.get(name) else { return };
        let [scale, zero] = group_constants(group);
        let (quantized, dequantized) = (format!("{name}_quantized"), format!("{name}_dequantized"));
        nodes.push(make::node("QuantizeLinear", &quantized, &[name, &scale, &zero], &[&quantized], Vec::new()));
        nodes.push(make::node(
            "DequantizeLinear",
            &dequantized,
            &[&quantized, &scale, &zero],
            &[&dequantized],
            Vec::new(),
        ));
    }

    /// Stores the weight of `node` in 8 bits.
    fn weight(&mut self, node: &mut NodeProto, nodes: &mut Vec<NodeProto>) -> Result<()> {
        let Some(name) = node.input.get(1).cloned() else { return Ok(()) };
        let Some(weight) = self.weights.get(&name) else { return Ok(()) };
        let dequantized = format!("{name}_dequantized");
        if self.made.insert(dequantized.clone()) {
            let values = tensor::f32_data(weight)?;
            let stored = Stored::of(&values, weight.dims.first().copied().unwrap_or(1));
            if stored.extreme_channels > 0 {
                self.remarks.push(format!(
                    "{}: {} of {} channels have weights over {EXTREME_RATIO} times smaller than the largest channel",
                    crate::onnx::node::label(node),
                    stored.extreme_channels,
                    stored.scales.len()
                ));
            }
            let channels = [i64::try_from(stored.scales.len()).unwrap_or(i64::MAX)];
            let (quantized, scale, zero) =
                (format!("{name}_quantized"), format!("{name}_scale"), format!("{name}_zero"));
            self.constants.push(tensor::from_i8(&quantized, &weight.dims, &stored.values));
            self.constants.push(tensor::from_f32(&scale, &channels, &stored.scales));
            self.constants.push(tensor::from_i8(&zero, &channels, &vec![0; stored.scales.len()]));
            nodes.push(make::node(
                "DequantizeLinear",
                &dequantized,
                &[&quantized, &scale, &zero],
                &[&dequantized],
                vec![make::int("axis", 0)],
            ));
        }
        if let Some(input) = node.input.get_mut(1) {
            *input = dequantized;
        }
        Ok(())
    }
}

/// Weights in 8 bits with one scale for each output channel.
struct Stored {
    values: Vec<i8>,
    scales: Vec<f32>,
    extreme_channels: usize,
}

impl Stored {
    fn of(values: &[f32], channels: i64) -> Stored {
        let channels = usize::try_from(channels).unwrap_or(1).max(1);
        let size = (values.len() / channels).max(1);
        let largest = |channel: &[f32]| channel.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let peaks: Vec<f32> = values.chunks(size).map(largest).collect();
        let highest = peaks.iter().copied().fold(0.0_f32, f32::max);
        let scales: Vec<f32> = peaks.iter().map(|&peak| scale(peak)).collect();
        let stored = values.chunks(size).zip(&scales).flat_map(|(channel, &scale)| {
            channel.iter().map(move |&value| {
                // In range by the clamp.
                (value / scale).round_ties_even().clamp(-STEPS, STEPS) as i8
            })
        });
        Stored {
            values: stored.collect(),
            extreme_channels: peaks
                .iter()
                .filter(|&&peak| peak > LEAST_SCALE && peak * EXTREME_RATIO < highest)
                .count(),
            scales,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_use_the_whole_range_of_their_channel() {
        let stored = Stored::of(&[1.0, -0.5, 0.0, 0.004, 0.002, -0.004, 0.0, 0.0, 0.0], 3);
        assert_eq!(stored.values, [127, -64, 0, 127, 64, -127, 0, 0, 0]);
        assert_eq!(stored.scales[2], LEAST_SCALE);
        assert_eq!(stored.extreme_channels, 0);
        assert_eq!(Stored::of(&[1.0, 1e-4], 2).extreme_channels, 1);
    }
}
