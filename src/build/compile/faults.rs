//! What is known not to work: version × precision × tail, said before the build.

use super::dotted;
use crate::build::attention;
use crate::error::{Error, Result};
use crate::ffi::tensorrt::version::{Flavour, Version};
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::{self, Shapes};
use crate::onnx::tensor::DataType;
use crate::onnx::{Model, node};
use onnx_protobuf::NodeProto;
use std::collections::HashSet;

/// What a graph holds that some TensorRT cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphFacts {
    /// Matrix products (MatMul, Gemm) in FP32: how many, and the place of the first.
    pub float_products: Occurrence,
    /// Nodes that compute in bfloat16.
    pub bfloat16: Occurrence,
    /// Convolutions over three dimensions.
    pub volume_convolutions: Occurrence,
    /// Q/DQ nodes.
    pub quantized: Occurrence,
    /// Depthwise convolutions whose weights are stored in 8 bits.
    pub quantized_depthwise: Occurrence,
    /// Convolutions and matrix products that compute in half.
    pub halves: Occurrence,
    /// Depthwise convolutions of attentions, which make positions out of the values, whose weights are stored in 8 bits.
    pub quantized_positions: Occurrence,
    /// Whether the graph ends in rows of finished boxes (no NMS left to do).
    pub end_to_end: bool,
}

/// How often something occurs, and where first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Occurrence {
    /// Number of nodes.
    pub count: u32,
    /// Label of the first node.
    pub first: String,
}

impl Occurrence {
    fn add(&mut self, label: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = label();
        }
        self.count += 1;
    }
}

impl GraphFacts {
    /// Reads a graph whose shapes are fixed.
    ///
    /// # Errors
    /// A graph whose types cannot be inferred.
    pub fn of(model: &Model, end_to_end: bool) -> Result<GraphFacts> {
        let shapes = shapes::infer(model)?;
        let index = GraphIndex::new(model.graph());
        let mut facts = GraphFacts { end_to_end, ..GraphFacts::default() };
        let attention = attention::convolutions(&index, &HashSet::new());
        for node in &model.graph().node {
            let label = || node::label(node);
            let first = node.input.first().map(|name| shapes.fact(name).element);
            let stored = node.input.get(1).is_some_and(|weight| index.is_dequantized(weight));
            match node.op_type.as_str() {
                "MatMul" | "Gemm"
                    if first == Some(DataType::F32)
                        && !node.input.iter().take(2).all(|name| index.is_dequantized(name)) =>
                {
                    facts.float_products.add(label);
                }
                "Conv" | "ConvTranspose" => {
                    let weight = node.input.get(1).and_then(|name| shapes.fact(name).rank());
                    if weight == Some(5) {
                        facts.volume_convolutions.add(label);
                    }
                    if stored && is_depthwise(node, &shapes) {
                        facts.quantized_depthwise.add(label);
                        if attention.contains(&label()) {
                            facts.quantized_positions.add(label);
                        }
                    }
                }
                "QuantizeLinear" | "DequantizeLinear" => facts.quantized.add(label),
                _ => {}
            }
            if matches!(node.op_type.as_str(), "Conv" | "MatMul" | "Gemm") && first == Some(DataType::F16) && !stored {
                facts.halves.add(label);
            }
            if first == Some(DataType::BF16) {
                facts.bfloat16.add(label);
            }
        }
        Ok(facts)
    }
}

fn is_depthwise(node: &NodeProto, shapes: &Shapes) -> bool {
    let inputs = node.input.get(1).and_then(|weight| shapes.fixed(weight)?.get(1).copied());
    inputs == Some(1) && matches!(node::int_or(node, "group", 1), Ok(2..))
}

/// One thing that is known not to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happens, and where it is known from.
    pub what: String,
    /// What to do.
    pub way_out: &'static str,
    /// Whether a build is pointless: it fails, or the plan answers wrongly.
    pub fatal: bool,
    /// Text in TensorRT's errors by which this fault is known again.
    sign: &'static str,
}

/// The faults that a build of `graph` by this library for this compute capability (× 10) will meet.
pub fn known(flavour: Flavour, version: Version, capability: u32, graph: &GraphFacts) -> Vec<Fault> {
    let mut faults = vec![];
    let mut add = |when: bool, what: String, way_out, fatal, sign| {
        if when {
            faults.push(Fault { what, way_out, fatal, sign });
        }
    };
    let on_turing = flavour == Flavour::Rtx && capability == 75;
    let product = flavour.product();
    let several = |found: &Occurrence, what: &str| match found.count {
        1 => format!("1 {what} ({})", found.first),
        count => format!("{count} {what}s (the first is {})", found.first),
    };
    add(
        on_turing && graph.float_products.count > 0,
        format!(
            "found {}, expected none: {product} has no FP32 matrix product for compute capability 7.5, newer versions fail to \
             build and older ones answer all zero without an error",
            several(&graph.float_products, "FP32 matrix product")
        ),
        if graph.quantized.count > 0 {
            "build the bundle again with `--int8-rest half` (yolo11, yolo12 and yolo26 hold attention), take yolov8, or build for `trt10`"
        } else {
            "export the model in FP16 (yolo11, yolo12 and yolo26 hold attention), take yolov8, or build for `trt10`"
        },
        true,
        "FP32 GEMM is not supported",
    );
    add(
        on_turing && graph.bfloat16.count > 0,
        format!(
            "found {}, expected none: compute capability 7.5 has no bfloat16",
            several(&graph.bfloat16, "bfloat16 node")
        ),
        "export the model in FP32 or FP16",
        true,
        "",
    );
    add(
        on_turing && graph.volume_convolutions.count > 0,
        format!(
            "found {}, expected none: {product} has none for compute capability 7.5",
            several(&graph.volume_convolutions, "3-D convolution")
        ),
        "build for `trt10`",
        true,
        "",
    );
    let at = |major, minors: std::ops::RangeInclusive<u16>| version.major == major && minors.contains(&version.minor);
    let nvidia = flavour != Flavour::Rtx;
    add(
        nvidia && at(10, 3..=6) && graph.quantized.count > 0,
        format!(
            "{product} {version} dies in an internal graph check on INT8 models with some tails (ultralytics/ultralytics#23841; \
             gone in 10.7)"
        ),
        "update to TensorRT 10.7 or newer, build the float model, or export without the NMS-free tail (`end2end=False`)",
        false,
        "Assertion",
    );
    add(
        nvidia && at(10, 6..=6) && graph.quantized_positions.count > 0 && graph.halves.count > 0,
        format!(
            "{product} {version} makes plans that answer wrongly of INT8 models whose attention is INT8 as well, {} of it, and the rest half \
             (seen with yolov10, yolo11 and yolo26 on an H200); the known answers will not let such a plan pass",
            graph.quantized_positions.first
        ),
        "build the bundle again without `--int8-attention yes`",
        false,
        "",
    );
    add(
        nvidia && at(10, 2..=2),
        format!("{product} {version} is refused, as exporters refuse it (ultralytics/ultralytics#24368)"),
        "update to TensorRT 10.3 or newer",
        true,
        "",
    );
    add(
        nvidia && version < (Version { major: 8, minor: 5, patch: 0 }) && graph.end_to_end,
        format!("{product} {version} has no `Mod` operator, which the NMS-free tail needs"),
        "update to TensorRT 8.5 or newer, or export without the NMS-free tail (`end2end=False`)",
        true,
        "",
    );
    faults
}

/// The way out for INT8 with the rest in half that answers wrongly.
pub const REST_IN_FLOAT: &str = "build the bundle again with `--int8-rest float`";

/// An error for the first fault that makes a build pointless.
///
/// # Errors
/// [`crate::ErrorKind::Refused`], exactly that.
pub fn refuse_fatal(faults: &[Fault]) -> Result<()> {
    match faults.iter().find(|fault| fault.fatal) {
        Some(fault) => Err(Error::refused(fault.what.clone()).hint(fault.way_out)),
        None => Ok(()),
    }
}

/// The way out of a failed build whose error text shows a known fault.
pub fn way_out_of(text: &str, faults: &[Fault], graph: &GraphFacts, capability: u32) -> Option<String> {
    let known = faults.iter().find(|fault| !fault.sign.is_empty() && text.contains(fault.sign));
    if let Some(fault) = known {
        return Some(format!("{}: {}", fault.what, fault.way_out));
    }
    if text.contains("incorrectly marked as an int8 node") {
        let part = match (graph.quantized_positions.count, graph.quantized_depthwise.count) {
            (1.., _) => "its attention out of INT8 (no `--int8-attention yes`)",
            (0, 1..) => {
                "its depthwise convolutions out of INT8 with `--int8-depthwise no`, or a part with `--int8-keep PART`"
            }
            (0, 0) => "the part that it stumbles over out of INT8 with `--int8-keep PART`",
        };
        return Some(format!(
            "this TensorRT cannot build this INT8 graph: leave {part}, take TensorRT 10, or `--fp16`"
        ));
    }
    if text.contains("builder_resource") {
        return Some(
            "TensorRT looks for its builder's library by name alone: put its folder on the loader's paths, as in \
             `LD_LIBRARY_PATH=FOLDER edge-build …`"
                .to_owned(),
        );
    }
    if text.contains("is not supported") && text.contains("Cannot compile operation") {
        return Some(format!("this TensorRT cannot do that for compute capability {}", dotted(capability)));
    }
    lacks_implementation(text)
        .then(|| "give layers more scratch memory with `--workspace`, or update TensorRT".to_owned())
}

/// Whether TensorRT found no kernel for a layer.
pub fn lacks_implementation(text: &str) -> bool {
    text.contains("Could not find any implementation")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::node::make;
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::tensor;

    fn graph() -> GraphFacts {
        GraphFacts::default()
    }

    fn occurs(count: u32) -> Occurrence {
        Occurrence { count, first: "`/model.10/m/MatMul` (MatMul)".to_owned() }
    }

    fn version(text: &str) -> Version {
        let parts: Vec<u16> = text.split('.').map(|part| part.parse().unwrap()).collect();
        Version { major: parts[0], minor: parts[1], patch: parts[2] }
    }

    fn verdict(flavour: Flavour, text: &str, capability: u32, graph: &GraphFacts) -> (usize, bool) {
        let faults = known(flavour, version(text), capability, graph);
        (faults.len(), refuse_fatal(&faults).is_err())
    }

    #[test]
    fn p05_turing_under_rtx_refuses_float_products_bfloat16_and_volumes_by_target() {
        let attention = GraphFacts { float_products: occurs(2), ..graph() };
        assert_eq!(verdict(Flavour::Rtx, "1.7.1", 75, &attention), (1, true));
        assert_eq!(verdict(Flavour::Rtx, "1.7.1", 86, &attention), (0, false));
        assert_eq!(verdict(Flavour::Trt10, "10.7.0", 75, &attention), (0, false));
        assert_eq!(verdict(Flavour::Rtx, "1.7.1", 75, &graph()), (0, false));
        let in_int8 = GraphFacts { quantized: occurs(8), ..attention.clone() };
        let error = refuse_fatal(&known(Flavour::Rtx, version("1.7.1"), 75, &in_int8)).unwrap_err();
        assert!(error.hint_text().unwrap().contains("--int8-rest half"), "{error}");
        let all = GraphFacts { bfloat16: occurs(1), volume_convolutions: occurs(1), ..attention };
        assert_eq!(verdict(Flavour::Rtx, "1.7.1", 75, &all), (3, true));
        let error = refuse_fatal(&known(Flavour::Rtx, version("1.7.1"), 75, &all)).unwrap_err().to_string();
        assert!(error.contains("2 FP32 matrix products (the first is `/model.10/m/MatMul` (MatMul))"), "{error}");
        assert!(error.contains("FP16"), "{error}");
    }

    #[test]
    fn p06_versions_with_holes_are_named_with_the_way_out() {
        let end_to_end_int8 = GraphFacts { quantized: occurs(8), end_to_end: true, ..graph() };
        assert_eq!(verdict(Flavour::Trt10, "10.3.0", 87, &end_to_end_int8), (1, false));
        assert_eq!(verdict(Flavour::Trt10, "10.7.0", 87, &end_to_end_int8), (0, false));
        assert_eq!(verdict(Flavour::Trt10, "10.3.0", 87, &graph()), (0, false));
        // Seen on an H200: 10.6 builds it, and the plan answers wrongly. With the rest in float it answers right.
        let half = GraphFacts { halves: occurs(12), quantized_positions: occurs(2), ..end_to_end_int8.clone() };
        let warned = |text: &str, graph: &GraphFacts| {
            known(Flavour::Trt10, version(text), 90, graph)
                .iter()
                .any(|fault| fault.way_out.contains("--int8-attention yes"))
        };
        assert!(warned("10.6.0", &half));
        assert!(!warned("10.6.0", &end_to_end_int8) && !warned("10.7.0", &half));
        assert!(warned("10.6.0", &GraphFacts { end_to_end: false, ..half.clone() }));
        assert!(!warned("10.6.0", &GraphFacts { halves: occurs(0), ..half.clone() }));
        assert!(!warned("10.6.0", &GraphFacts { quantized_positions: occurs(0), ..half.clone() }));
        assert!(refuse_fatal(&known(Flavour::Trt10, version("10.6.0"), 90, &half)).is_ok());
        assert_eq!(verdict(Flavour::Trt10, "10.2.0", 87, &graph()), (1, true));
        let end_to_end = GraphFacts { end_to_end: true, ..graph() };
        assert_eq!(verdict(Flavour::Trt8, "8.4.3", 72, &end_to_end), (1, true));
        assert_eq!(verdict(Flavour::Trt8, "8.5.2", 72, &end_to_end), (0, false));
        assert_eq!(verdict(Flavour::Rtx, "1.7.1", 86, &end_to_end_int8), (0, false));
    }

    /// picture → half → depthwise in INT8 → another in half → one in INT8 that is not depthwise.
    #[test]
    fn what_a_graph_has_in_half_and_depthwise_in_8_bits_is_counted() {
        let stored = |name: &str| {
            make::node(
                "DequantizeLinear",
                &format!("{name}_back"),
                &[name, "scale"],
                &[&format!("{name}_back")],
                vec![],
            )
        };
        let conv = |name: &str, input: &str, weight: &str, groups| {
            make::node("Conv", name, &[input, weight], &[name], vec![make::int("group", groups)])
        };
        let nodes = vec![
            make::node("Cast", "half", &["images"], &["half"], vec![make::int("to", 10)]),
            stored("deep"),
            stored("plain"),
            conv("first", "half", "deep_back", 4),
            conv("second", "first", "light", 4),
            conv("third", "second", "plain_back", 1),
        ];
        let weights = vec![
            tensor::from_i8("deep", &[4, 1, 1, 1], &[1; 4]),
            tensor::from_i8("plain", &[4, 4, 1, 1], &[1; 16]),
            tensor::from_f32_as_f16("light", &[4, 1, 1, 1], &[1.0; 4]),
            tensor::from_f32_as_f16("scale", &[], &[0.5]),
        ];
        let outputs = vec![value("third", DataType::F16, &[1, 4, 8, 8])];
        let model = Sample { weights, ..Sample::new(&[1, 4, 8, 8], nodes, outputs) }.model();
        let facts = GraphFacts::of(&model, false).unwrap();
        assert_eq!((facts.quantized.count, facts.float_products.count), (2, 0));
        assert_eq!((facts.quantized_depthwise.count, facts.halves.count), (1, 1), "{facts:?}");
        assert!(
            facts.quantized_depthwise.first.contains("first") && facts.halves.first.contains("second"),
            "{facts:?}"
        );
    }

    #[test]
    fn a_failed_build_is_matched_to_the_fault_that_was_announced() {
        let int8 = GraphFacts { quantized: occurs(8), ..graph() };
        let faults = known(Flavour::Trt10, version("10.3.0"), 87, &int8);
        let text = "Error Code 2: Internal Error (Assertion bound >= 0 failed. )";
        assert!(way_out_of(text, &faults, &int8, 87).unwrap().contains("10.7"));
        assert_eq!(way_out_of(text, &[], &int8, 87), None);
        let marked =
            "All of the candidates were removed, which points to the node being incorrectly marked as an int8 node.";
        let marked = |graph: &GraphFacts| way_out_of(marked, &[], graph, 90).unwrap();
        let plain = marked(&int8);
        assert!(plain.contains("TensorRT 10") && plain.contains("`--int8-keep PART`"), "{plain}");
        assert!(!plain.contains("depthwise") && !plain.contains("--int8-rest"), "{plain}");
        let both = marked(&GraphFacts { quantized_depthwise: occurs(7), halves: occurs(3), ..int8.clone() });
        assert!(both.contains("its depthwise") && both.contains("--int8-depthwise no"), "{both}");
        let attends =
            marked(&GraphFacts { quantized_depthwise: occurs(7), quantized_positions: occurs(3), ..int8.clone() });
        assert!(attends.contains("no `--int8-attention yes`"), "{attends}");
        let lacks = "Unable to load library: libnvinfer_builder_resource.so.10.6.0: cannot open shared object file";
        assert!(way_out_of(lacks, &[], &int8, 90).unwrap().contains("LD_LIBRARY_PATH"));
        assert!(
            way_out_of("Could not find any implementation for node", &[], &int8, 87).unwrap().contains("--workspace")
        );
    }
}
