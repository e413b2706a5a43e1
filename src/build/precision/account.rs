//! What was done to a graph, for report and manifest.

use super::int8::ActivationScale;
use super::repair::Step;
use super::{Built, fp16, is_picture, placement};
use crate::build::{Prepared, memory};
use crate::error::Result;
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::Shapes;
use crate::onnx::{Model, node};
use serde::Serialize;
use std::collections::BTreeMap;

/// What was done to the graph, for the report.
#[derive(Debug, Clone, Default, Serialize)]
pub(in crate::build) struct Account {
    /// `fp16` or `int8`.
    pub(in crate::build) precision: String,
    /// What was done and what stays in float, one sentence each; goes into the manifest as well.
    pub(in crate::build) decided: Vec<String>,
    /// Share of the convolutions' arithmetic in INT8, 0..1; `None` for FP16.
    pub(in crate::build) int8_share: Option<f64>,
    /// Calibrator of the activations; `None` for FP16.
    pub(in crate::build) calibrator: Option<String>,
    /// Layers with most of the arithmetic, in the order of the graph.
    pub(in crate::build) layers: Vec<LayerAccount>,
    /// Peak memory of the activations by input size.
    pub(in crate::build) memory: Vec<MemoryPoint>,
    /// Tensor → range seen and range kept; empty for FP16.
    pub(in crate::build) ranges: Vec<RangeAccount>,
    /// What the repair tried, in order. The last that passed with the most in INT8 was taken.
    pub(in crate::build) repair: Vec<Step>,
}

/// One layer in the report.
#[derive(Debug, Clone, Serialize)]
pub(in crate::build) struct LayerAccount {
    pub(in crate::build) name: String,
    /// Multiplications and additions of one run.
    pub(in crate::build) operations: u64,
    /// `int8`, `f16` or `f32`.
    pub(in crate::build) precision: String,
    /// Why it is not in the precision asked for.
    pub(in crate::build) because: Option<String>,
}

/// Most activations alive at once, by the graph, at one input size.
#[derive(Debug, Clone, Serialize)]
pub(in crate::build) struct MemoryPoint {
    /// Longer side of the input, px.
    pub(in crate::build) size_px: u32,
    pub(in crate::build) export_mib: f64,
    pub(in crate::build) converted_mib: f64,
}

/// One activation range in the report.
#[derive(Debug, Clone, Serialize)]
pub(in crate::build) struct RangeAccount {
    pub(in crate::build) tensor: String,
    pub(in crate::build) largest: f32,
    pub(in crate::build) cut: f32,
}

/// The heavy layers of a graph in half precision.
pub(super) fn half_layers(model: &Model, shapes: &Shapes, done: &fp16::Fp16) -> Vec<LayerAccount> {
    let index = GraphIndex::new(model.graph());
    let heavy = model.graph().node.iter().filter(|node| node::is_heavy(node));
    heavy
        .map(|node| {
            let name = node::label(node);
            let because = done.exceptions.iter().find(|(_, nodes)| nodes.contains(&name)).map(|(why, _)| why.clone());
            let precision = if because.is_some() { "f32" } else { "f16" }.to_owned();
            LayerAccount { operations: placement::operations(node, &index, shapes), name, precision, because }
        })
        .collect()
}

/// Peak memory of the export and of the converted graph, at common input sizes around that of the model.
pub(super) fn memory_points(prepared: &Prepared, export: &Model, converted: &Model) -> Result<Vec<MemoryPoint>> {
    const SIZES_PX: [u32; 8] = [320, 416, 512, 640, 768, 896, 1024, 1280];
    let batch = f64::from(prepared.input.batch.max(1));
    let used = prepared.input.size.width_px.max(prepared.input.size.height_px);
    let mib = |bytes: u64| crate::units::float64(bytes) / f64::from(1 << 20) / batch;
    let (export, converted) = (mib(memory::peak_bytes(export)?), mib(memory::peak_bytes(converted)?));
    let mut sizes: Vec<u32> = SIZES_PX.into_iter().chain([used]).filter(|&size| size > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let point = |size_px: u32| {
        let area = (f64::from(size_px) / f64::from(used.max(1))).powi(2);
        MemoryPoint { size_px, export_mib: export * area, converted_mib: converted * area }
    };
    Ok(sizes.into_iter().map(point).collect())
}

/// What stays in float beside halves, and why.
pub(super) fn describe_half(done: &fp16::Fp16, account: &mut Account) {
    for (reason, nodes) in &done.exceptions {
        let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        account.decided.push(format!("{} stay in float ({reason}): {}", nodes.len(), placement::some_names(&names)));
    }
    if done.lost_weights.0 > 0 {
        account.decided.push(format!(
            "{} of {} weights are so small that half stores them as 0",
            done.lost_weights.0, done.lost_weights.1
        ));
    }
}

/// What was done for INT8, and what stays out of it.
pub(super) fn describe(built: &Built, ranges: &BTreeMap<String, ActivationScale>, account: &mut Account) {
    let placement = &built.placement;
    account.decided.push(format!(
        "{} of {} convolutions compute in INT8, {:.1} % of their arithmetic",
        placement.quantised(),
        placement.layers.len(),
        100.0 * placement.share()
    ));
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for layer in &placement.layers {
        if let Some(reason) = &layer.float {
            by_reason.entry(reason).or_default().push(&layer.name);
        }
        let is_half = |half: &fp16::Fp16| !half.exceptions.values().flatten().any(|name| name == &layer.name);
        let precision = match (&layer.float, &built.half) {
            (None, _) => "int8",
            (Some(_), Some(half)) if is_half(half) => "f16",
            _ => "f32",
        };
        account.layers.push(LayerAccount {
            name: layer.name.clone(),
            operations: layer.operations,
            precision: precision.to_owned(),
            because: layer.float.clone(),
        });
    }
    for (reason, names) in by_reason {
        account.decided.push(format!("{} stay out of INT8 ({reason}): {}", names.len(), placement::some_names(&names)));
    }
    if placement.group_of.keys().any(|name| is_picture(&built.written, name)) {
        account.decided.push("the first convolution reads the picture in steps of 1/127".to_owned());
    }
    if !placement.sums.is_empty() {
        account.decided.push(format!("{} residual sums add 8 bits on both sides", placement.sums.len()));
    }
    if !placement.readers.is_empty() {
        account.decided.push(format!("{} convolutions out of INT8 read 8 bits", placement.readers.len()));
    }
    if let Some(half) = &built.half {
        account.decided.push("what is not in INT8 computes in half precision".to_owned());
        describe_half(half, account);
    } else {
        account.decided.push("what is not in INT8 computes in float".to_owned());
    }
    account.decided.extend(built.corrected.sentences());
    account.decided.extend(built.remarks.iter().cloned());
    account.ranges = ranges
        .iter()
        .map(|(tensor, range)| RangeAccount { tensor: tensor.clone(), largest: range.largest, cut: range.cut })
        .collect();
}
