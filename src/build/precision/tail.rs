//! What lies behind the last heavy layers: box arithmetic, DFL, class scores. It stays in float in every precision.

use crate::error::Result;
use crate::onnx::index::GraphIndex;
use crate::onnx::tensor;
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

/// Whether `node` holds most of the arithmetic of a network.
pub(super) fn is_heavy(node: &NodeProto) -> bool {
    matches!(node.op_type.as_str(), "Conv" | "ConvTranspose" | "MatMul" | "Gemm")
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
            if is_heavy(node) && !is_expectation(node, index)? {
                tail.last_layers.insert(position);
                continue;
            }
            tail.nodes.insert(position);
            open.extend(node.input.iter().map(String::as_str));
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
