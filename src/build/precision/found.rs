//! In which precision the heavy operators run.

use crate::onnx::Model;
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::Shapes;
use onnx_protobuf::NodeProto;
use std::collections::BTreeMap;

/// Number of `Conv`, `ConvTranspose`, `MatMul` and `Gemm` nodes by precision: `int8` between Q/DQ pairs, else the type of
/// their input.
pub(in crate::build) fn count(model: &Model, shapes: &Shapes) -> BTreeMap<String, u64> {
    let index = GraphIndex::new(model.graph());
    let heavy = |node: &&NodeProto| matches!(node.op_type.as_str(), "Conv" | "ConvTranspose" | "MatMul" | "Gemm");
    let mut counts = BTreeMap::new();
    for node in model.graph().node.iter().filter(heavy) {
        let operands = node.input.iter().take(2);
        let dequantized =
            |name: &String| index.producer(name).is_some_and(|producer| producer.op_type == "DequantizeLinear");
        let name = if operands.clone().all(dequantized) {
            "int8".to_owned()
        } else {
            node.input.first().map_or_else(String::new, |input| shapes.fact(input).element.to_string())
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
