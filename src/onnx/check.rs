//! What every model must satisfy before anybody looks at its operators.

use super::{NEWEST_OPSET, OLDEST_OPSET, node, tensor};
use crate::error::{Error, Result};
use onnx_protobuf::{GraphProto, ModelProto};
use std::collections::HashSet;

/// Checks the model's frame and gives the opset of the default domain.
pub(super) fn model(model: &ModelProto) -> Result<i64> {
    let Some(graph) = model.graph.as_ref() else {
        return Err(
            Error::refused("found no graph, expected an ONNX model").hint("the file is cut off or is no ONNX model")
        );
    };
    if graph.node.is_empty() {
        return Err(Error::refused("found a graph without operators, expected a network"));
    }
    let opset = opset(model)?;
    if let Some(sparse) = graph.sparse_initializer.first() {
        return Err(Error::refused("found a sparse initialiser, expected dense weights")
            .at(format!("tensor `{}`", sparse.values.get_or_default().name))
            .hint("export the model with dense weights"));
    }
    for tensor in &graph.initializer {
        tensor::check_length(tensor)?;
    }
    for constant in graph.node.iter().filter(|node| node.op_type == "Constant" && node::is_default_domain(node)) {
        if let Some(value) = node::constant(constant)? {
            tensor::check_length(&value).map_err(|error| error.at(node::place(constant)))?;
        }
    }
    names(graph)?;
    Ok(opset)
}

fn opset(model: &ModelProto) -> Result<i64> {
    let found: Vec<i64> = model
        .opset_import
        .iter()
        .filter(|set| matches!(set.domain.as_str(), "" | "ai.onnx"))
        .map(|set| set.version)
        .collect();
    let (Some(&lowest), Some(&highest)) = (found.iter().min(), found.iter().max()) else {
        return Err(Error::refused("found no opset of the standard operators, expected 11 to 22"));
    };
    if lowest != highest || !(OLDEST_OPSET..=NEWEST_OPSET).contains(&highest) {
        return Err(Error::refused(format!("found opset {highest}, expected {OLDEST_OPSET} to {NEWEST_OPSET}"))
            .hint("export again with another opset, for example `yolo export model=x.pt format=onnx opset=17`"));
    }
    Ok(highest)
}

/// Every tensor is made once; every tensor that is used is made.
fn names(graph: &GraphProto) -> Result<()> {
    let mut known: HashSet<&str> = HashSet::new();
    for tensor in &graph.initializer {
        if !known.insert(&tensor.name) {
            return Err(Error::refused(format!("found two initialisers named `{}`, expected one", tensor.name)));
        }
    }
    let mut inputs: HashSet<&str> = HashSet::new();
    for input in &graph.input {
        if !inputs.insert(&input.name) {
            return Err(Error::refused(format!("found two inputs named `{}`, expected one", input.name)));
        }
    }
    known.extend(inputs);
    for made in &graph.node {
        for output in made.output.iter().filter(|output| !output.is_empty()) {
            if !known.insert(output) {
                return Err(
                    Error::refused(format!("found tensor `{output}` made twice, expected once")).at(node::place(made))
                );
            }
        }
    }
    for user in &graph.node {
        if let Some(input) = user.input.iter().find(|input| !input.is_empty() && !known.contains(input.as_str())) {
            return Err(Error::refused(format!("found no source of tensor `{input}`")).at(node::place(user)));
        }
    }
    match graph.output.iter().find(|output| !known.contains(output.name.as_str())) {
        Some(output) => Err(Error::refused(format!("found no source of the graph's output `{}`", output.name))),
        None => Ok(()),
    }
}
