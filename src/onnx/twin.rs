//! The float twin of a half-precision graph: what half arithmetic gives, computed by engines that keep more digits.
//!
//! Neither CPU engine computes a half graph in half: one widens it while loading, the other keeps floats between the
//! nodes. The twin is a float graph that rounds after every node, so that an overflow is an infinity there as well.

use super::node::make;
use super::shapes;
use super::tensor::{self, DataType};
use super::{Model, node};
use crate::error::Result;
use onnx_protobuf::{GraphProto, NodeProto, TensorProto};
use std::collections::{HashMap, HashSet};

/// How the twin rounds a float to the nearest half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// `Cast` to `FLOAT16` and back: exact, for engines that carry it out.
    Casts,
    /// Splitting with 2¹³ + 1, for engines that widen every half: keeps 11 bits, and infinity from 65520 on. Numbers below
    /// 2⁻¹⁴, which half keeps with fewer bits, keep 11 bits here.
    Arithmetic,
    /// Not at all: the graph as if it had never been halved.
    Never,
}

/// Operators that move, pick, compare or negate values: of halves they make halves, and nothing is to be rounded.
const OF_HALVES_HALVES: &[&str] = &[
    "Abs",
    "Clip",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Neg",
    "Pad",
    "Relu",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
    "Where",
];

/// Whether any tensor of `model` is a half.
pub fn has_half(model: &Model) -> bool {
    let graph = model.graph();
    let half = |tensor: &TensorProto| tensor::data_type(tensor) == DataType::F16;
    graph.initializer.iter().any(half)
        || graph.node.iter().any(|node| {
            (node.op_type == "Cast" && node::cast_target(node).is_ok_and(|target| target == DataType::F16))
                || node.attribute.iter().any(|attribute| attribute.t.as_ref().is_some_and(half))
        })
}

/// Turns a graph with halves into its float twin; one without stays as it is. Inputs and outputs keep their types.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] when shapes contradict each other or a constant cannot be read.
pub fn make_twin(model: &mut Model, rounding: Rounding) -> Result<()> {
    let shapes = shapes::infer(model)?;
    let is_half = |name: &str| shapes.fact(name).element == DataType::F16;
    let graph = model.graph_mut();
    for weight in &mut graph.initializer {
        widen(weight)?;
    }
    let mut twin = Twin { rounding, nodes: Vec::new(), renamed: HashMap::new() };
    let outputs: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    for input in graph.input.iter().filter(|input| is_half(&input.name)) {
        let float = format!("{}_twin_float", input.name);
        twin.nodes.push(cast(&input.name, &float, DataType::F32));
        twin.renamed.insert(input.name.clone(), float);
    }
    for mut node in std::mem::take(&mut graph.node) {
        for attribute in &mut node.attribute {
            if let Some(value) = attribute.t.as_mut() {
                widen(value)?;
            }
        }
        for input in &mut node.input {
            if let Some(name) = twin.renamed.get(input) {
                input.clone_from(name);
            }
        }
        let half: Vec<bool> = node.output.iter().map(|name| is_half(name)).collect();
        twin.add(node, &half, &outputs);
    }
    graph.node = twin.nodes;
    if rounding == Rounding::Arithmetic {
        add_constants(graph);
    }
    let kept: HashSet<&str> = graph.input.iter().chain(&graph.output).map(|info| info.name.as_str()).collect();
    graph.value_info.retain(|info| !is_half(&info.name) || kept.contains(info.name.as_str()));
    Ok(())
}

/// Turns a graph with halves into the float graph behind it, without the casts between the two. Inputs and outputs keep
/// their types.
///
/// # Errors
/// As [`make_twin`].
pub fn widen_all(model: &mut Model) -> Result<()> {
    make_twin(model, Rounding::Never)?;
    let shapes = shapes::infer(model)?;
    let is_float = |name: &str| shapes.fact(name).element == DataType::F32;
    let graph = model.graph_mut();
    let ends: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let mut same: HashMap<String, String> = HashMap::new();
    for mut node in std::mem::take(&mut graph.node) {
        for input in &mut node.input {
            if let Some(source) = same.get(input) {
                input.clone_from(source);
            }
        }
        match (node.op_type.as_str(), node.input.first(), node.output.first()) {
            ("Cast", Some(input), Some(output)) if is_float(input) && is_float(output) && !ends.contains(output) => {
                same.insert(output.clone(), input.clone());
            }
            _ => graph.node.push(node),
        }
    }
    graph.value_info.retain(|info| !same.contains_key(&info.name));
    Ok(())
}

struct Twin {
    rounding: Rounding,
    nodes: Vec<NodeProto>,
    /// Half tensor → the float tensor that holds its value.
    renamed: HashMap<String, String>,
}

impl Twin {
    fn add(&mut self, mut node: NodeProto, half: &[bool], graph_outputs: &HashSet<String>) {
        if !half.contains(&true) {
            self.nodes.push(node);
            return;
        }
        let exact = self.rounding == Rounding::Never
            || node.op_type == "Constant"
            || OF_HALVES_HALVES.contains(&node.op_type.as_str());
        if node.op_type == "Cast" {
            node.attribute = vec![make::int("to", i64::from(DataType::F32.code()))];
        }
        let mut after = Vec::new();
        for (output, _) in node.output.iter_mut().zip(half).filter(|(output, half)| **half && !output.is_empty()) {
            let name = output.clone();
            let rounded = if graph_outputs.contains(&name) { format!("{name}_twin_float") } else { name.clone() };
            if exact {
                output.clone_from(&rounded);
            } else {
                *output = format!("{name}_twin_exact");
                self.round(output, &rounded, &mut after);
            }
            if rounded != name {
                after.push(cast(&rounded, &name, DataType::F16));
                self.renamed.insert(name, rounded);
            }
        }
        self.nodes.push(node);
        self.nodes.append(&mut after);
    }

    fn round(&self, exact: &str, rounded: &str, nodes: &mut Vec<NodeProto>) {
        if self.rounding == Rounding::Casts {
            let half = format!("{rounded}_twin_half");
            nodes.push(cast(exact, &half, DataType::F16));
            nodes.push(cast(&half, rounded, DataType::F32));
            return;
        }
        let [clipped, split, rest, high, raised] =
            ["clipped", "split", "rest", "high", "raised"].map(|step| format!("{rounded}_twin_{step}"));
        let mut add = |op: &str, inputs: &[&str], output: &str| {
            nodes.push(make::node(op, output, inputs, &[output], Vec::new()));
        };
        add("Clip", &[exact, CONSTANTS[0].0, CONSTANTS[1].0], &clipped);
        add("Mul", &[&clipped, CONSTANTS[2].0], &split);
        add("Sub", &[&split, &clipped], &rest);
        add("Sub", &[&split, &rest], &high);
        add("Mul", &[&high, CONSTANTS[3].0], &raised);
        add("Mul", &[&raised, CONSTANTS[4].0], rounded);
    }
}

/// Beyond ±65536 everything is infinite, and the split must not overflow. 2¹¹² lifts 65536 to infinity and 65504 not.
const CONSTANTS: [(&str, f32); 5] = [
    ("twin_constant_least", -65_536.0),
    ("twin_constant_most", 65_536.0),
    ("twin_constant_split", 8_193.0),
    ("twin_constant_raise", f32::from_bits((127 + 112) << 23)),
    ("twin_constant_lower", f32::from_bits((127 - 112) << 23)),
];

fn add_constants(graph: &mut GraphProto) {
    for (name, value) in CONSTANTS {
        graph.initializer.push(tensor::from_f32(name, &[], &[value]));
    }
}

fn cast(from: &str, to: &str, target: DataType) -> NodeProto {
    make::node("Cast", &format!("{to}_twin_cast"), &[from], &[to], vec![make::int("to", i64::from(target.code()))])
}

/// Makes a tensor of halves one of floats; exact.
fn widen(weight: &mut TensorProto) -> Result<()> {
    if tensor::data_type(weight) == DataType::F16 {
        *weight = tensor::from_f32(&weight.name, &weight.dims, &tensor::f32_data(weight)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::samples::{Sample, value};
    use half::f16;

    fn rounded(exact: f32) -> f32 {
        let [least, most, split, raise, lower] = CONSTANTS.map(|(_, value)| value);
        let clipped = exact.clamp(least, most);
        let product = clipped * split;
        let high = product - (product - clipped);
        high * raise * lower
    }

    #[test]
    fn the_split_rounds_as_half_does() {
        for exact in [0.0, 1.0, -1.0, 1.000_4, 0.1, 255.9, 640.3, -3.161_59, 65_503.9, 6.2e-5, 12_345.678] {
            assert_eq!(rounded(exact), f16::from_f32(exact).to_f32(), "{exact}");
        }
        for beyond in [65_530.0, -70_000.0, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(rounded(beyond), f16::from_f32(beyond).to_f32(), "{beyond}");
        }
        assert!(rounded(f32::NAN).is_nan());
    }

    fn half_chain() -> Model {
        let nodes = vec![
            make::node("Cast", "in", &["images"], &["half"], vec![make::int("to", 10)]),
            make::node("Mul", "mul", &["half", "weight"], &["product"], vec![]),
            make::node("Relu", "relu", &["product"], &["kept"], vec![]),
            make::node("Cast", "out", &["kept"], &["answer"], vec![make::int("to", 1)]),
        ];
        let mut sample = Sample::new(&[1, 3, 2, 2], nodes, vec![value("answer", DataType::F32, &[1, 3, 2, 2])]);
        sample.weights = vec![tensor::from_f32_as_f16("weight", &[1], &[3.0])];
        sample.model()
    }

    #[test]
    fn every_rounding_operator_is_followed_by_a_rounding() {
        let ops = |rounding| {
            let mut model = half_chain();
            assert!(has_half(&model));
            make_twin(&mut model, rounding).unwrap();
            assert!(crate::onnx::shapes::infer(&model).unwrap().unknown.is_empty());
            model.graph().node.iter().map(|node| node.op_type.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ops(Rounding::Casts), "Cast Cast Cast Mul Cast Cast Relu Cast");
        let split = "Clip Mul Sub Sub Mul Mul";
        assert_eq!(ops(Rounding::Arithmetic), format!("Cast {split} Mul {split} Relu Cast"));
    }

    #[test]
    fn the_float_graph_has_no_cast_left() {
        let mut model = half_chain();
        widen_all(&mut model).unwrap();
        let ops: Vec<&str> = model.graph().node.iter().map(|node| node.op_type.as_str()).collect();
        // The last one makes the output, which keeps its name.
        assert_eq!(ops, ["Mul", "Relu", "Cast"]);
        assert_eq!(model.graph().node[0].input, ["images", "weight"]);
        assert!(!has_half(&model) && shapes::infer(&model).unwrap().unknown.is_empty());
    }

    #[test]
    fn a_float_graph_stays_as_it_is() {
        let sample = Sample::constant_output(&[1, 3, 32, 32], &[("output0", DataType::F32, &[1, 6, 21])]);
        let (mut twin, before) = (sample.model(), sample.model());
        assert!(!has_half(&before));
        make_twin(&mut twin, Rounding::Casts).unwrap();
        assert_eq!(twin.graph().node, before.graph().node);
    }
}
