//! What a graph asks of its nodes' precision: told to TensorRT 8, whose types are loose, and compared with every plan's layers.

use crate::error::Result;
use crate::gpu::layers::{LayerReport, Parts};
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::{self, Shapes};
use crate::onnx::tensor::DataType;
use crate::onnx::{Model, node};
use onnx_protobuf::NodeProto;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};

/// What the graph says of its nodes' precision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphPrecision {
    /// Every node.
    pub nodes: BTreeSet<String>,
    /// Nodes that compute in float and must stay there: those of 32-bit floats that Q/DQ nodes do not allow less.
    pub float: BTreeSet<String>,
    /// Nodes that compute in half: convolutions and products of half weights, and the arithmetic that follows them.
    pub half: BTreeSet<String>,
    /// Convolutions and products of 8-bit weights.
    pub int8: BTreeSet<String>,
}

/// Tensors whose layers TensorRT 8 is held to a precision; it is free in all others, and chooses there by time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// Computed in float.
    pub float: Vec<String>,
    /// Computed in half.
    pub half: Vec<String>,
}

impl Held {
    /// Reads a graph with halves whose shapes are fixed.
    ///
    /// # Errors
    /// A graph whose types cannot be inferred.
    pub fn of(model: &Model) -> Result<Held> {
        let shapes = shapes::infer(model)?;
        let index = GraphIndex::new(model.graph());
        let free = ["Cast", "Constant", "QuantizeLinear", "DequantizeLinear"];
        let nodes = model.graph().node.iter().filter(|node| !free.contains(&node.op_type.as_str()));
        let float = nodes
            .flat_map(|node| node.output.iter().filter(|name| shapes.fact(name).element == DataType::F32))
            .cloned()
            .collect();
        let half = half_nodes(model, &shapes, &index).flat_map(|node| node.output.iter().take(1)).cloned().collect();
        Ok(Held { float, half })
    }
}

/// The layers of a plan beside what its graph asks of their nodes. Layers whose nodes or type TensorRT does not tell are not compared,
/// nor those that only move data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AsAsked {
    /// How many layers hold nodes of whose precision the graph says something.
    pub compared: u32,
    /// Those of them that compute in more, in words: a product of 8-bit weights in anything else, one of halves or arithmetic on its
    /// results in float. No harm to the answers, only to time and memory.
    pub above: Vec<String>,
}

impl AsAsked {
    /// Compares.
    pub fn of(graph: &GraphPrecision, layers: &LayerReport, parts: &[Parts]) -> AsAsked {
        let mut found = AsAsked::default();
        for (layer, part) in layers.layers.iter().zip(parts).filter(|(_, part)| !part.moves && part.precision != "?") {
            let any = |names: &BTreeSet<String>| part.nodes.iter().any(|name| names.contains(name));
            let all = |names: &BTreeSet<String>| !part.nodes.is_empty() && part.nodes.is_subset(names);
            let asked = if part.product && any(&graph.int8) {
                "int8"
            } else if part.product && any(&graph.half) || all(&graph.half) {
                "f16"
            } else if all(&graph.float) {
                "f32"
            } else {
                continue;
            };
            found.compared += 1;
            if asked == "int8" && part.precision != "int8" || asked == "f16" && part.precision == "f32" {
                found.above.push(format!("`{}` in {} for {asked}", layer.name, part.precision));
            }
        }
        found
    }

    /// A line for people.
    pub fn to_line(&self) -> String {
        const MOST: usize = 3;
        let AsAsked { compared, above } = self;
        if above.is_empty() {
            return format!("read back: as asked: all of the {compared} layers that the graph asks a precision of");
        }
        let more = above.len().saturating_sub(MOST);
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let first = above.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
        format!("read back: {} of {compared} layers compute in more than asked: {first}{more}", above.len())
    }
}

/// Operators whose layers say nothing of the precision that the graph computes in: they move or rename values, or are
/// quantisation itself. Another question than that of [`crate::onnx::twin`], whether a result of halves needs rounding.
const WITHOUT_PRECISION: [&str; 22] = [
    "Cast",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "DequantizeLinear",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "Identity",
    "MaxPool",
    "QuantizeLinear",
    "Reshape",
    "Resize",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
];

impl GraphPrecision {
    /// Reads a graph whose shapes are fixed.
    ///
    /// # Errors
    /// A graph whose types cannot be inferred.
    pub fn of(model: &Model) -> Result<GraphPrecision> {
        let shapes = shapes::infer(model)?;
        let index = GraphIndex::new(model.graph());
        let any_low = model.graph().node.iter().any(|node| {
            node.op_type == "QuantizeLinear"
                || node.output.iter().any(|name| matches!(shapes.fact(name).element, DataType::F16 | DataType::BF16))
        });
        let mut found = GraphPrecision::default();
        for node in &model.graph().node {
            found.nodes.insert(node.name.clone());
            let float = node.output.first().is_some_and(|name| shapes.fact(name).element == DataType::F32);
            let quantized = node.input.iter().any(|name| index.is_dequantized(name));
            let feeds_quantized = node
                .output
                .first()
                .is_some_and(|name| index.consumers(name).any(|consumer| consumer.op_type == "QuantizeLinear"));
            // SiLU between a quantised convolution and the next quantisation is part of the convolution's layer.
            let between = node::is_default_domain(node)
                && matches!(node.op_type.as_str(), "Sigmoid" | "Mul" | "Relu" | "LeakyRelu" | "Clip")
                && quantized_behind(node, &index);
            let moves = WITHOUT_PRECISION.contains(&node.op_type.as_str());
            if any_low && float && !quantized && !feeds_quantized && !between && !moves {
                found.float.insert(node.name.clone());
            }
            if node::is_heavy(node)
                && node.input.len() > 1
                && node.input.iter().take(2).all(|name| dequantized(name, &index))
            {
                found.int8.insert(node.name.clone());
            }
        }
        found.half = half_nodes(model, &shapes, &index).map(|node| node.name.clone()).collect();
        Ok(found)
    }
}

/// Whether a convolution with dequantised inputs stands at most two nodes before.
fn quantized_behind(node: &NodeProto, index: &GraphIndex<'_>) -> bool {
    let quantized = |node: &NodeProto| node.input.iter().any(|name| index.is_dequantized(name));
    let before =
        |node: &NodeProto| node.input.iter().filter_map(|name| index.producer(name).cloned()).collect::<Vec<_>>();
    let first = before(node);
    first.iter().any(quantized) || first.iter().flat_map(before).any(|node| quantized(&node))
}

/// Whether `name` comes from 8-bit values, casts looked through.
fn dequantized(name: &str, index: &GraphIndex<'_>) -> bool {
    let mut name = name;
    while let Some(source) =
        index.producer(name).filter(|node| node.op_type == "Cast").and_then(|cast| cast.input.first())
    {
        name = source;
    }
    index.is_dequantized(name)
}

/// Products that give halves and whose weights are not of 8 bits, and the arithmetic in half that follows them, in the graph's order.
/// What follows a product of 8-bit weights is part of that one's layer, and what only moves values has no precision.
fn half_nodes<'a>(
    model: &'a Model,
    shapes: &'a Shapes,
    index: &'a GraphIndex<'a>,
) -> impl Iterator<Item = &'a NodeProto> {
    let mut made: HashSet<&str> = HashSet::new();
    model.graph().node.iter().filter(move |node| {
        let Some(output) = node.output.first().filter(|name| shapes.fact(name).element == DataType::F16) else {
            return false;
        };
        let in_half = if node::is_heavy(node) {
            !node.input.get(1).is_some_and(|weights| dequantized(weights, index))
        } else {
            !WITHOUT_PRECISION.contains(&node.op_type.as_str())
                && node.input.iter().any(|name| made.contains(name.as_str()))
        };
        if in_half {
            made.insert(output);
        }
        in_half
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::node::make;
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::tensor;

    fn names(found: &BTreeSet<String>) -> Vec<&str> {
        found.iter().map(String::as_str).collect()
    }

    /// A convolution in half with SiLU, one of 8-bit weights with SiLU, and a float tail.
    fn mixed() -> Model {
        let weights = |name: &str| tensor::from_f32_as_f16(name, &[4, 4, 1, 1], &[0.25; 16]);
        let cast = |name: &str, from: &str, to: &str, element: DataType| {
            make::node("Cast", name, &[from], &[to], vec![make::int("to", i64::from(element.code()))])
        };
        let silu = |of: &str| {
            let (sigmoid, product) = (format!("{of}_s"), format!("{of}_a"));
            [
                make::node("Sigmoid", &format!("sigmoid_{of}"), &[of], &[&sigmoid], vec![]),
                make::node("Mul", &format!("mul_{of}"), &[of, &sigmoid], &[&product], vec![]),
            ]
        };
        let mut nodes = vec![
            cast("in", "images", "half", DataType::F16),
            make::node("Sigmoid", "before", &["half"], &["opened"], vec![]),
            make::node("Conv", "plain", &["opened", "w"], &["p"], vec![]),
        ];
        nodes.extend(silu("p"));
        nodes.extend([
            cast("up", "p_a", "p_f", DataType::F32),
            make::node("QuantizeLinear", "q", &["p_f", "scale", "zero"], &["q8"], vec![]),
            make::node("DequantizeLinear", "dq", &["q8", "scale", "zero"], &["d_f"], vec![]),
            cast("down", "d_f", "d", DataType::F16),
            make::node("DequantizeLinear", "dqw", &["w8", "scale", "zero"], &["dw_f"], vec![]),
            cast("downw", "dw_f", "dw", DataType::F16),
            make::node("Conv", "eighths", &["d", "dw"], &["e"], vec![]),
        ]);
        nodes.extend(silu("e"));
        nodes.extend([
            make::node("Concat", "both", &["p_a", "e_a"], &["c"], vec![make::int("axis", 1)]),
            cast("out", "c", "wide", DataType::F32),
            make::node("Softmax", "tail", &["wide"], &["y"], vec![]),
        ]);
        let outputs = vec![value("y", DataType::F32, &[1, 8, 8, 8])];
        let weights = vec![
            weights("w"),
            tensor::from_i8("w8", &[4, 4, 1, 1], &[3; 16]),
            tensor::from_f32("scale", &[], &[0.1]),
            tensor::from_i8("zero", &[], &[0]),
        ];
        Sample { weights, ..Sample::new(&[1, 4, 8, 8], nodes, outputs) }.model()
    }

    #[test]
    fn every_node_is_asked_what_its_types_say() {
        let found = GraphPrecision::of(&mixed()).unwrap();
        assert_eq!(names(&found.half), ["mul_p", "plain", "sigmoid_p"]);
        assert_eq!(names(&found.int8), ["eighths"]);
        assert_eq!(names(&found.float), ["tail"]);
    }

    #[test]
    fn tensorrt_8_is_held_to_float_tails_and_to_products_in_half_with_what_follows() {
        let held = Held::of(&mixed()).unwrap();
        assert_eq!(held.half, ["p", "p_s", "p_a"]);
        assert_eq!(held.float, ["y"]);
    }

    #[test]
    fn layers_that_compute_in_more_than_the_graph_asks_are_named() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let graph = GraphPrecision {
            nodes: names(&["/a/Conv", "/a/Mul", "/b/Conv", "/b/Mul", "/tail"]),
            float: names(&["/tail"]),
            half: names(&["/a/Conv", "/a/Mul"]),
            int8: names(&["/b/Conv"]),
        };
        let found = |half: &str, after: &str, eighths: &str| {
            let layer = |name: &str, kind: &str, weights: &str, output: &str| {
                format!(
                    r#"{{"Name": "{name}", "LayerType": "{kind}", "Weights": {{"Type": "{weights}"}}, "Outputs": [{{"Format/Datatype": "{output}"}}]}}"#
                )
            };
            let layers = [
                layer("/a/Conv", "CaskConvolution", half, "Row major linear FP16 format"),
                layer("PWN(/a/Mul)", "PointWiseV2", "", after),
                layer("/b/Conv + PWN(/b/Mul)", "CaskConvolution", eighths, "Row major linear FP16 format"),
                layer("/tail", "SoftMaxV2", "", "Row major linear FP32"),
                layer("copy", "Reformat", "", "Row major linear FP32"),
            ];
            let text = format!(r#"{{"Layers": [{}]}}"#, layers.join(","));
            let (report, parts) = LayerReport::parse(&text, &graph.nodes).unwrap();
            AsAsked::of(&graph, &report, &parts)
        };
        let right = found("Half", "Row major linear FP16 format", "Int8");
        assert_eq!(right, AsAsked { compared: 4, above: vec![] });
        assert_eq!(right.to_line(), "read back: as asked: all of the 4 layers that the graph asks a precision of");
        let more = found("Float", "Row major linear FP32", "Half");
        let expected =
            ["`/a/Conv` in f32 for f16", "`PWN(/a/Mul)` in f32 for f16", "`/b/Conv + PWN(/b/Mul)` in f16 for int8"];
        assert_eq!(more, AsAsked { compared: 4, above: expected.map(str::to_owned).to_vec() });
        let many = AsAsked { compared: 9, above: ["`a`", "`b`", "`c`", "`d`"].map(str::to_owned).to_vec() };
        assert_eq!(many.to_line(), "read back: 4 of 9 layers compute in more than asked: `a`, `b`, `c` (and 1 more)");
    }
}
