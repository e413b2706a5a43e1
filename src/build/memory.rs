//! What a graph will take on the GPU, before anything is built.

use super::watcher::Watcher;
use crate::engine::{ElementType, InputSpec, Layout};
use crate::error::Result;
use crate::ffi::lane::LaneShape;
use crate::gpu::plan::{Basis, MemoryInputs, MemoryPlan};
use crate::onnx::index::GraphIndex;
use crate::onnx::{Model, node, shapes, tensor};
use crate::platform::PlatformKind;
use crate::units::{Bytes, count, count32};
use onnx_protobuf::NodeProto;
use std::collections::{BTreeMap, HashMap};

/// CUDA context, kernels and libraries on a GPU with its own memory: what an H200 with TensorRT 8.6 takes, rounded up (see
/// `docs/measurements/gpu-h200.md`). Nothing was measured where CPU and GPU share the memory.
const DISCRETE_OVERHEAD: Bytes = Bytes::mib(640);
/// TensorRT keeps more alive than the graph needs, in padded layouts and, beside FP16, partly in FP32: pcb-yolov8n at 640 asked for
/// 17.0 MiB in FP32 and 11.5 MiB in FP16 (TensorRT 8.6.1), where the graph alone needs 12.5 and 6.3.
const SLACK_PERCENT: u64 = 150;
const HALF_SLACK_PERCENT: u64 = 200;
/// Operators whose result TensorRT never stores: fused into the layer before.
const FUSED: [&str; 6] = ["Sigmoid", "Relu", "LeakyRelu", "Clip", "Cast", "Identity"];

/// What stands beside the graph.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// Input of the network.
    pub input: &'a InputSpec,
    /// Layout of the outputs.
    pub layout: &'a Layout,
    /// Layers by precision.
    pub precision: &'a BTreeMap<String, u64>,
    /// What may be taken.
    pub budget: Bytes,
    /// Use above this share of the budget raises the alarm, percent.
    pub alarm_percent: u32,
    /// Whose memory it is.
    pub kind: PlatformKind,
}

/// The estimate for one context.
///
/// # Errors
/// A graph whose shapes contradict each other.
pub fn estimate(model: &Model, about: &Circumstances<'_>) -> Result<MemoryInputs> {
    let half = about.precision.iter().any(|(name, &layers)| layers > 0 && name != "f32");
    let (element_bytes, slack_percent) = if half { (2, HALF_SLACK_PERCENT) } else { (4, SLACK_PERCENT) };
    let graph = model.graph();
    let weights: u64 = graph.initializer.iter().filter_map(|weight| tensor::element_count(weight).ok()).sum();
    let input = about.input;
    let anchors = about.layout.capacity();
    let io_bytes = |elements: u64, element: ElementType| match element {
        ElementType::F16 => 2 * elements,
        ElementType::U8 => elements,
        _ => 4 * elements,
    };
    let pixels = count(input.size.pixels()) * u64::from(input.channels) * u64::from(input.batch);
    let row = match about.layout {
        Layout::Raw { classes, .. } => classes + 4,
        Layout::Objectness { classes, .. } => classes + 5,
        Layout::EndToEnd { .. } | Layout::NmsPlugin { .. } => 6,
    };
    let output = u64::from(row) * u64::from(anchors) * u64::from(input.batch);
    Ok(MemoryInputs {
        basis: Basis::Estimate,
        weights: Bytes(weights * element_bytes),
        activations: Bytes(peak_elements(model)? * element_bytes * slack_percent / 100),
        tensors: vec![Bytes(io_bytes(pixels, input.element)), Bytes(4 * output)],
        shape: LaneShape {
            batch: input.batch,
            channels: input.channels,
            width: input.size.width_px,
            height: input.size.height_px,
            picture_bytes: usize::try_from(crate::engine::tensorrt::GpuOptions::default().largest_picture.0)
                .unwrap_or(usize::MAX),
            anchors,
            cap: anchors.min(count32(crate::engine::candidates::CAP)),
            ahead: false,
        },
        overhead: overhead(about.kind),
        libraries: Bytes(0),
        contexts: 1,
        budget: about.budget,
        alarm_percent: about.alarm_percent,
    })
}

/// CUDA context, kernels and libraries, once for the process; 0 where nothing was measured.
pub fn overhead(kind: PlatformKind) -> Bytes {
    if kind == PlatformKind::Discrete { DISCRETE_OVERHEAD } else { Bytes(0) }
}

/// Most elements that are alive at once when the graph runs in order and nothing is kept longer than needed.
fn peak_elements(model: &Model) -> Result<u64> {
    let shapes = shapes::infer(model)?;
    let stored = |node: &NodeProto| !node::is_default_domain(node) || !FUSED.contains(&node.op_type.as_str());
    peak(model, |node, name| if stored(node) { elements(name, &shapes) } else { 0 })
}

/// Most bytes of activations that are alive at once, each in its own type: what a Q/DQ pair holds in 8 bits is not kept in
/// another form beside it.
///
/// # Errors
/// A graph whose shapes contradict each other.
pub fn peak_bytes(model: &Model) -> Result<u64> {
    let shapes = shapes::infer(model)?;
    let index = GraphIndex::new(model.graph());
    let only_quantised = |name: &str| {
        let mut consumers = index.consumers(name).peekable();
        consumers.peek().is_some() && consumers.all(|node| node.op_type == "QuantizeLinear")
    };
    // The activation behind a layer is computed where the layer's result lies.
    let fused = |name: &str| {
        let mut consumers = index.consumers(name).peekable();
        consumers.peek().is_some()
            && consumers.all(|node| matches!(node.op_type.as_str(), "Sigmoid" | "Mul"))
            && index.producer(name).is_some_and(|node| node.op_type == "Conv")
    };
    peak(model, |node, name| {
        let nowhere = FUSED.contains(&node.op_type.as_str()) || node.op_type == "DequantizeLinear";
        if nowhere || only_quantised(name) || fused(name) {
            return 0;
        }
        elements(name, &shapes).saturating_mul(shapes.fact(name).element.bits().unwrap_or(32) / 8)
    })
}

fn elements(name: &str, shapes: &shapes::Shapes) -> u64 {
    shapes.fixed(name).map_or(0, |sizes| {
        sizes.iter().fold(1_u64, |product, &size| product.saturating_mul(u64::try_from(size).unwrap_or(0)))
    })
}

/// The largest sum of `size` over the tensors alive at one time.
fn peak(model: &Model, size: impl Fn(&NodeProto, &str) -> u64) -> Result<u64> {
    let graph = model.graph();
    let order = GraphIndex::new(graph).run_order()?;
    let mut last_use: HashMap<&str, usize> = HashMap::new();
    for (step, &position) in order.iter().enumerate() {
        for name in graph.node.get(position).map_or(&[][..], |node| &node.input) {
            last_use.insert(name, step);
        }
    }
    let mut ending: Vec<Vec<u64>> = vec![vec![]; order.len() + 1];
    let (mut alive, mut peak) = (0_u64, 0_u64);
    for (step, &position) in order.iter().enumerate() {
        let Some(node) = graph.node.get(position) else { continue };
        for name in node.output.iter().filter(|_| node.op_type != "Constant") {
            let size = size(node, name);
            alive = alive.saturating_add(size);
            ending[last_use.get(name.as_str()).copied().unwrap_or(step).max(step)].push(size);
        }
        peak = peak.max(alive);
        alive -= ending[step].iter().sum::<u64>().min(alive);
    }
    Ok(peak.max(1))
}

/// The plan for one context, told as a table.
///
/// # Errors
/// [`crate::ErrorKind::Budget`] with what would fit; a graph whose shapes contradict each other.
pub fn plan(model: &[u8], about: &Circumstances<'_>, watcher: &mut dyn Watcher) -> Result<MemoryPlan> {
    let plan = estimate(&Model::from_bytes(model)?, about)?.checked()?;
    for line in plan.to_table().lines() {
        watcher.say(line);
    }
    if about.kind == PlatformKind::Unified {
        watcher.warn(
            "what CUDA and its libraries take where CPU and GPU share the memory was not measured and is not counted",
        );
    }
    if plan.total > plan.alarm {
        watcher.warn(&format!("the plan of {} lies above the alarm of {}", plan.total, plan.alarm));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Options, prepare};

    /// TensorRT 8.6.1 asks for 12.1 MB for pcb-yolov8n in FP16 (see the notes beside the plan): the estimate is no less and not
    /// more than three times as much.
    #[test]
    fn the_estimate_for_a_known_network_is_near_what_tensorrt_asks_for() {
        let Some(path) = crate::test_inputs::shared("models/pcb-yolov8n.onnx") else { return };
        let model = Model::read(&path).unwrap();
        let prepared = prepare(model, &Options::default()).unwrap();
        let about = Circumstances {
            input: &prepared.input,
            layout: &prepared.layout,
            precision: &BTreeMap::from([("f16".to_owned(), 64)]),
            budget: Bytes::gib(4),
            alarm_percent: 85,
            kind: PlatformKind::Discrete,
        };
        let found = estimate(&Model::from_bytes(&prepared.model_bytes).unwrap(), &about).unwrap();
        let asked = 12_100_000;
        assert!((asked..3 * asked).contains(&found.activations.0), "{}", found.activations);
        assert!((6_000_000..7_000_000).contains(&found.weights.0), "{}", found.weights);
    }
}
