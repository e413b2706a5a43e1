//! Which operators a model may hold: refuses those outside the standard ([`crate::onnx::operators`]), those that run graphs inside
//! graphs, and integer ones, by name, before any parser meets them.

use crate::error::{Error, Result};
use crate::onnx::index::GraphIndex;
use crate::onnx::{Model, node, operators};
use onnx_protobuf::NodeProto;

/// Most nodes that an error lists.
const LISTED: usize = 8;

/// Refuses non-standard operators, control flow, and quantised operators that TensorRT cannot take.
pub(super) fn check(model: &Model) -> Result<()> {
    let nodes = &model.graph().node;
    let foreign: Vec<&NodeProto> =
        nodes.iter().filter(|node| !node::is_default_domain(node) || !operators::is_standard(&node.op_type)).collect();
    if !foreign.is_empty() {
        return Err(non_standard(model, &foreign));
    }
    let control: Vec<&NodeProto> = nodes.iter().filter(|node| operators::is_control_flow(&node.op_type)).collect();
    if !control.is_empty() {
        return Err(Error::refused(format!(
            "found control flow, expected a graph that always runs the same way: {}",
            list(&control)
        ))
        .hint("export with fixed shapes and without options that branch: `yolo export model=x.pt format=onnx`"));
    }
    let integer: Vec<&NodeProto> = nodes.iter().filter(|node| is_integer_operator(&node.op_type)).collect();
    if !integer.is_empty() {
        return Err(Error::refused(format!(
            "found quantised operators, expected Q/DQ pairs around float operators: {}",
            list(&integer)
        ))
        .hint(
            "quantise again in QDQ format (ONNX Runtime: `quant_format=QuantFormat.QDQ`), or give the float export",
        ));
    }
    Ok(())
}

fn is_integer_operator(op_type: &str) -> bool {
    matches!(op_type, "QLinearConv" | "QLinearMatMul" | "ConvInteger" | "MatMulInteger" | "DynamicQuantizeLinear")
}

fn list(nodes: &[&NodeProto]) -> String {
    let mut texts: Vec<String> = nodes
        .iter()
        .take(LISTED)
        .map(|node| {
            let domain = if node::is_default_domain(node) { String::new() } else { format!("{}.", node.domain) };
            format!("{domain}{} (node `{}`)", node.op_type, node::label(node))
        })
        .collect();
    if nodes.len() > LISTED {
        texts.push(format!("{} more", nodes.len() - LISTED));
    }
    texts.join(", ")
}

fn non_standard(model: &Model, foreign: &[&NodeProto]) -> Error {
    let error = Error::refused(format!("found operators outside the ONNX standard, expected none: {}", list(foreign)));
    let inputs = above(model, foreign);
    let nms = foreign.iter().any(|node| node.op_type.contains("NMS") || node.op_type.contains("Nms"));
    let cut = format!("cut the graph above it: `--outputs {}`", inputs.join(","));
    if model.proto().functions.iter().any(|function| foreign.iter().any(|node| node.op_type == function.name)) {
        return error.hint("they are functions of the model: inline them with `onnx.inliner.inline_local_functions`");
    }
    match (nms, inputs.is_empty()) {
        (true, false) => error.hint(format!("edge-run does NMS itself: export without the NMS plugin, or {cut}")),
        (true, true) => error.hint("edge-run does NMS itself: export without the NMS plugin"),
        (false, false) => error.hint(format!("export without them, or {cut}")),
        (false, true) => error.hint("export without them"),
    }
}

/// Tensors that standard operators make and the foreign ones use: where the graph could end.
fn above(model: &Model, foreign: &[&NodeProto]) -> Vec<String> {
    let index = GraphIndex::new(model.graph());
    let mut names: Vec<String> = Vec::new();
    for input in foreign.iter().flat_map(|node| &node.input) {
        let standard = index.producer(input).is_some_and(|producer| {
            node::is_default_domain(producer)
                && operators::is_standard(&producer.op_type)
                && producer.op_type != "Constant"
        });
        if standard && !names.contains(input) {
            names.push(input.clone());
        }
    }
    names
}
