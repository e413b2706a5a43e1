//! Bias correction: the class scores' systematic shift is taken out of the biases of the convolutions that give them.
//!
//! Storing in 8 bits cuts off what stands out, so that what a network is sure of becomes a little less sure: all scores sink, and true
//! boxes are lost at the threshold. The shift is measured where either network sees something, on calibration pictures. The textbook
//! form, the mean of every convolution over whole pictures (Nagel et al. 2019, "Data-Free Quantization through Weight Equalization and
//! Bias Correction"), is one of background: it left the shift as it was and cost pcb-yolov8n 12 boxes of 2,962.

use super::observe::{Beside, Observation};
use super::tail::Tail;
use crate::build::watcher::Watcher;
use crate::error::Result;
use crate::onnx::Model;
use crate::onnx::index::GraphIndex;
use crate::onnx::node;
use crate::onnx::shapes::Shapes;
use crate::onnx::tensor;
use crate::units::{float64, narrow};
use onnx_protobuf::NodeProto;
use std::collections::{BTreeMap, HashSet};

/// Calibration pictures on which the shift is measured.
pub(super) const PICTURES: usize = 32;
/// A class score counts from here on, the mean of both networks: choosing by one of them would find the other lower by chance.
const SEEN: f64 = 0.1;
/// Scores that a layer needs for a correction.
const LEAST_SEEN: u64 = 100;
/// A class with as many scores is corrected half by its own shift and half by that of its layer.
const TRUST: f64 = 200.0;

/// What was corrected.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Corrected {
    /// Layers with a corrected bias, in the order of the graph.
    pub(super) layers: Vec<Shift>,
    /// Scores that were seen by layers with too few of them; `None` where every layer that gives scores is corrected.
    pub(super) too_few: Option<u64>,
}

/// The correction of one layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shift {
    pub(super) layer: String,
    /// Scores that it was measured on.
    pub(super) seen: u64,
    /// The class that moved most, before the sigmoid.
    pub(super) largest: f32,
}

impl Corrected {
    /// One sentence for each thing worth telling.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut told: Vec<String> = self.layers.iter().map(Shift::sentence).collect();
        if let (true, Some(seen)) = (self.layers.is_empty(), self.too_few) {
            told.push(format!(
                "class scores are not corrected for INT8: {seen} lie above {SEEN} on the calibration pictures, expected {LEAST_SEEN} or \
                 more; add pictures that show what is to be found"
            ));
        }
        told
    }
}

impl Shift {
    fn sentence(&self) -> String {
        format!(
            "class scores are corrected by up to {:+.3} before the sigmoid, from {} scores seen: {}",
            self.largest, self.seen, self.layer
        )
    }
}

/// Sums over what one channel of a layer sees.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    seen: u64,
    weights: f64,
    shifts: f64,
}

impl Sums {
    fn add(&mut self, exact: f32, found: f32) {
        let (exact, found) = (f64::from(exact), f64::from(found));
        let score = (sigmoid(exact) + sigmoid(found)) / 2.0;
        // NaN compares false.
        if score > SEEN && (exact - found).is_finite() {
            // A score near 0 or 1 says little about its logit, and decides nothing.
            let weight = score * (1.0 - score);
            self.seen += 1;
            self.weights += weight;
            self.shifts += weight * (exact - found);
        }
    }

    fn mean(&self) -> f64 {
        if self.weights > 0.0 { self.shifts / self.weights } else { 0.0 }
    }
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

/// What each channel is to be moved by; `None` where too little was seen.
fn shifts(channels: &[Sums]) -> Option<Vec<f64>> {
    let mut all = Sums::default();
    for channel in channels {
        all.seen += channel.seen;
        all.weights += channel.weights;
        all.shifts += channel.shifts;
    }
    let one = |channel: &Sums| {
        let own = float64(channel.seen) / (float64(channel.seen) + TRUST);
        own * channel.mean() + (1.0 - own) * all.mean()
    };
    (all.seen >= LEAST_SEEN).then(|| channels.iter().map(one).collect())
}

/// Corrects the class scores of `quantised`; `observation` looks at the export.
pub(super) fn correct(
    quantised: &mut Model,
    observation: &Observation<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Corrected> {
    let layers = score_layers(observation.model, observation.shapes)?;
    let names: Vec<String> = layers.iter().filter_map(|(layer, _)| layer.output.first().cloned()).collect();
    let mut corrected = Corrected::default();
    if names.is_empty() {
        return Ok(corrected);
    }
    let mut sums: BTreeMap<String, Vec<Sums>> = names
        .iter()
        .zip(&layers)
        .map(|(name, (_, channels))| (name.clone(), vec![Sums::default(); *channels]))
        .collect();
    observation.beside(quantised, "correction of scores", &names, watcher, &mut |beside| {
        let Beside { name, places, exact, found } = beside;
        let Some(sums) = sums.get_mut(name) else { return };
        let size = (exact.len() / (places * sums.len()).max(1)).max(1);
        let channels = exact.chunks(size).zip(found.chunks(size));
        for ((exact, found), at) in channels.zip((0..sums.len()).cycle()) {
            if let Some(sums) = sums.get_mut(at) {
                exact.iter().zip(found).for_each(|(&exact, &found)| sums.add(exact, found));
            }
        }
    })?;
    for ((layer, _), name) in layers.iter().zip(&names) {
        let sums = sums.get(name).map_or(&[][..], Vec::as_slice);
        let seen = sums.iter().map(|sums| sums.seen).sum();
        let shift = shifts(sums).map(|shifts| apply(layer, &shifts, quantised)).transpose()?.flatten();
        match shift {
            Some(largest) => corrected.layers.push(Shift { layer: node::label(layer), seen, largest }),
            None => corrected.too_few = Some(corrected.too_few.unwrap_or(0) + seen),
        }
    }
    crate::onnx::edit::remove_dead_nodes(quantised.graph_mut());
    Ok(corrected)
}

/// The convolutions that give class scores, each with its channels: what a sigmoid behind the last layers reads, and of these those
/// with as many channels as it. Empty where boxes have as many as well, and nothing tells one from the other.
fn score_layers<'a>(model: &'a Model, shapes: &Shapes) -> Result<Vec<(&'a NodeProto, usize)>> {
    let index = GraphIndex::new(model.graph());
    let tail = Tail::of(&index)?;
    let nodes = &model.graph().node;
    let mut sigmoids = tail.nodes.iter().filter_map(|&at| nodes.get(at)).filter(|node| node.op_type == "Sigmoid");
    let (Some(sigmoid), None) = (sigmoids.next(), sigmoids.next()) else { return Ok(Vec::new()) };
    let sizes = sigmoid.output.first().and_then(|name| shapes.fixed(name)).unwrap_or_default();
    let mut last: Vec<usize> = tail.last_layers.iter().copied().collect();
    last.sort_unstable();
    let mut reached = HashSet::new();
    let mut open: Vec<&str> = sigmoid.input.iter().map(String::as_str).collect();
    let mut seen = HashSet::new();
    while let Some(name) = open.pop() {
        let Some(position) = index.producer_position(name).filter(|_| seen.insert(name)) else { continue };
        if tail.last_layers.contains(&position) {
            reached.insert(position);
        } else if let Some(node) = nodes.get(position) {
            open.extend(node.input.iter().map(String::as_str));
        }
    }
    let channels = |position: &usize| {
        let node = nodes.get(*position).filter(|node| node.op_type == "Conv")?;
        let channels = *index.initializer(node.input.get(1)?)?.dims.first()?;
        Some((node, channels))
    };
    let fits = |channels: i64| sizes.get(1).is_some_and(|&classes| classes == channels);
    let others = last.iter().filter_map(channels).any(|(_, channels)| !fits(channels));
    let layers = last.iter().filter(|position| reached.contains(*position)).filter_map(channels);
    let layers = layers.filter(|(_, channels)| fits(*channels));
    let layers = layers.filter_map(|(node, channels)| Some((node, usize::try_from(channels).ok()?)));
    Ok(if others { layers.collect() } else { Vec::new() })
}

/// Adds `means` to the bias of `layer` in `quantised`; gives the one of largest magnitude, or `None` where it cannot be done.
fn apply(layer: &NodeProto, means: &[f64], quantised: &mut Model) -> Result<Option<f32>> {
    let Some(name) = layer.output.first() else { return Ok(None) };
    let index = GraphIndex::new(quantised.graph());
    let before = match layer.input.get(2).filter(|bias| !bias.is_empty()) {
        Some(bias) => match index.constant(bias)? {
            Some(bias) => tensor::f32_data(&bias)?,
            None => return Ok(None),
        },
        None => vec![0.0; means.len()],
    };
    let after: Vec<f32> = before.iter().zip(means).map(|(&bias, &mean)| narrow(f64::from(bias) + mean)).collect();
    if after.len() != means.len() || before.len() != means.len() || !after.iter().all(|bias| bias.is_finite()) {
        return Ok(None);
    }
    let Some(position) = index.producer_position(name) else { return Ok(None) };
    let corrected = format!("{name}_bias_corrected");
    let graph = quantised.graph_mut();
    let Some(node) = graph.node.get_mut(position) else { return Ok(None) };
    node.input.truncate(2);
    node.input.push(corrected.clone());
    let channels = [i64::try_from(after.len()).unwrap_or(i64::MAX)];
    graph.initializer.push(tensor::from_f32(&corrected, &channels, &after));
    let largest = means.iter().copied().fold(0.0_f64, |most, mean| if mean.abs() > most.abs() { mean } else { most });
    Ok(Some(narrow(largest)))
}

#[cfg(test)]
mod tests;
