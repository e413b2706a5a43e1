//! In which precision the heavy operators run.

use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::Shapes;
use crate::onnx::{Model, node};
use std::collections::BTreeMap;

/// Number of `Conv`, `ConvTranspose`, `MatMul` and `Gemm` nodes by precision: `int8` between Q/DQ pairs, else the type of
/// their input.
pub(in crate::build) fn count(model: &Model, shapes: &Shapes) -> BTreeMap<String, u64> {
    let index = GraphIndex::new(model.graph());
    let mut counts = BTreeMap::new();
    for node in model.graph().node.iter().filter(|node| node::is_heavy(node)) {
        let name = if node.input.iter().take(2).all(|name| index.is_dequantized(name)) {
            "int8".to_owned()
        } else {
            node.input.first().map_or_else(String::new, |input| shapes.fact(input).element.to_string())
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
