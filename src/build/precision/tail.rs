//! What lies behind the last heavy layers: box arithmetic, DFL, class scores. It stays in float in every precision.

use crate::error::Result;
use crate::onnx::index::GraphIndex;
use crate::onnx::{node, tensor};
use onnx_protobuf::NodeProto;
use std::collections::HashSet;

/// The end of a graph, found by walking back from its outputs to the first heavy layers.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Positions of the nodes behind the last heavy layers.
    pub(super) nodes: HashSet<usize>,
    /// Positions of the last heavy layers themselves: the head's output convolutions.
    pub(super) last_layers: HashSet<usize>,
}

impl Tail {
    /// The tail of the graph behind `index`.
    pub(super) fn of(index: &GraphIndex<'_>) -> Result<Tail> {
        let mut tail = Tail::default();
        let mut open: Vec<&str> = index.graph().output.iter().map(|output| output.name.as_str()).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            let Some(position) = index.producer_position(name) else { continue };
            let Some(node) = index.graph().node.get(position) else { continue };
            if node::is_heavy(node) && !is_expectation(node, index)? {
                tail.last_layers.insert(position);
                continue;
            }
            tail.nodes.insert(position);
            // Of a tensor whose size alone is asked for no value comes here: anchors of a graph with free sizes.
            if node.op_type != "Shape" {
                open.extend(node.input.iter().map(String::as_str));
            }
        }
        Ok(tail)
    }
}

/// Whether `node` is the convolution of a DFL: its weights are 0, 1, 2, … and it takes the expectation of a distribution.
fn is_expectation(node: &NodeProto, index: &GraphIndex<'_>) -> Result<bool> {
    let Some(weight) = node.input.get(1).and_then(|name| index.initializer(name)) else { return Ok(false) };
    if weight.dims.first() != Some(&1) || tensor::element_count(weight)? > 256 {
        return Ok(false);
    }
    let values = tensor::f32_data(weight)?;
    Ok(values.len() > 1 && values.iter().zip(0_u16..).all(|(&value, position)| value == f32::from(position)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::node::{self, make};
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::tensor::DataType;

    /// picture → body → last → + a number made of the size of what the body gives → output.
    #[test]
    fn who_gives_a_size_alone_is_no_last_layer() {
        let nodes = vec![
            make::node("Conv", "body", &["images", "weight"], &["x"], vec![]),
            make::node("Conv", "last", &["x", "weight"], &["y"], vec![]),
            make::node("Shape", "size", &["x"], &["sizes"], vec![]),
            make::node("Gather", "height", &["sizes", "two"], &["height"], vec![]),
            make::node("Cast", "number", &["height"], &["number"], vec![make::int("to", 1)]),
            make::node("Add", "anchor", &["y", "number"], &["output0"], vec![]),
        ];
        let mut sample = Sample::new(&[1, 1, 8, 8], nodes, vec![value("output0", DataType::F32, &[1, 1, 8, 8])]);
        sample.weights = vec![tensor::from_f32("weight", &[1, 1, 1, 1], &[1.0]), tensor::from_i64("two", &[], &[2])];
        let model = sample.model();
        let index = GraphIndex::new(model.graph());
        let tail = Tail::of(&index).unwrap();
        let names = |positions: &HashSet<usize>| -> Vec<String> {
            let mut names: Vec<String> = positions.iter().map(|&at| node::label(&model.graph().node[at])).collect();
            names.sort();
            names
        };
        assert_eq!(names(&tail.last_layers), ["last"]);
        assert_eq!(names(&tail.nodes), ["anchor", "height", "number", "size"]);
    }
}
