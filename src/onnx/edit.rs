//! Changes to a graph that keep it whole.

use super::index::GraphIndex;
use super::{Model, node};
use crate::error::{Error, Result};
use onnx_protobuf::{GraphProto, ValueInfoProto};
use std::collections::{HashMap, HashSet};

/// Makes `names` the outputs of the graph and removes what does not lead to them.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] for a name that no operator of the graph makes.
pub fn keep_outputs(model: &mut Model, names: &[String]) -> Result<()> {
    let graph = model.graph_mut();
    let mut outputs = Vec::with_capacity(names.len());
    for name in names {
        let declared = graph.output.iter().chain(&graph.value_info).find(|info| &info.name == name).cloned();
        let made = graph.node.iter().any(|node| node.output.contains(name));
        match declared {
            Some(info) if made => outputs.push(info),
            None if made => outputs.push(ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() }),
            _ => {
                return Err(Error::usage(format!("found no operator that makes `{name}`")).hint(format!(
                    "the graph's outputs are {}",
                    graph.output.iter().map(|output| format!("`{}`", output.name)).collect::<Vec<_>>().join(", ")
                )));
            }
        }
    }
    graph.output = outputs;
    remove_dead_nodes(graph);
    Ok(())
}

/// Removes `Identity` operators: who reads one reads what it reads. One that makes an output of the graph stays. Gives how many went.
///
/// Exporters write them for equal weights. TensorRT sees no weight behind one, so that a convolution has none to store in 8 bits, and
/// rten joins both names to one, of which it then can show only one.
pub fn remove_identities(model: &mut Model) -> usize {
    let graph = model.graph_mut();
    let outputs: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let mut sources: HashMap<String, String> = HashMap::new();
    for node in graph.node.iter().filter(|node| node.op_type == "Identity" && node.domain.is_empty()) {
        if let ([from], [to]) = (node.input.as_slice(), node.output.as_slice())
            && !outputs.contains(to.as_str())
        {
            sources.insert(to.clone(), from.clone());
        }
    }
    if sources.is_empty() {
        return 0;
    }
    graph.node.retain(|node| node.op_type != "Identity" || !node.output.iter().any(|name| sources.contains_key(name)));
    let ends = ends_of(&sources);
    for name in graph.node.iter_mut().flat_map(|node| &mut node.input) {
        if let Some(end) = ends.get(name.as_str()) {
            (*end).clone_into(name);
        }
    }
    graph.value_info.retain(|info| !sources.contains_key(&info.name));
    sources.len()
}

/// Where the chains of `next` end: every name that has a next one → the first that has none. A circle ends anywhere in itself.
fn ends_of(next: &HashMap<String, String>) -> HashMap<&str, &str> {
    let mut ends: HashMap<&str, &str> = HashMap::with_capacity(next.len());
    for start in next.keys() {
        let (mut at, mut passed) = (start.as_str(), Vec::new());
        while let Some(further) = next.get(at).filter(|_| !ends.contains_key(at) && passed.len() < next.len()) {
            passed.push(at);
            at = further;
        }
        let end = ends.get(at).copied().unwrap_or(at);
        ends.extend(passed.into_iter().map(|name| (name, end)));
    }
    ends
}

/// Writes out strides, dilations and paddings that windows leave to the standard's defaults, which rten does not know for all of
/// them. Gives whether any did.
pub fn spell_out_windows(model: &mut Model) -> bool {
    let ranks: HashMap<String, usize> = model
        .graph()
        .initializer
        .iter()
        .map(|weight| (weight.name.clone(), weight.dims.len().saturating_sub(2)))
        .collect();
    let mut changed = false;
    for node in &mut model.graph_mut().node {
        let rank = match node.op_type.as_str() {
            "Conv" | "ConvTranspose" => node.input.get(1).and_then(|weight| ranks.get(weight)).copied(),
            "MaxPool" | "AveragePool" => node::ints(node, "kernel_shape").ok().flatten().map(<[i64]>::len),
            _ => None,
        };
        let Some(rank) = rank.filter(|rank| (1..=3).contains(rank)) else { continue };
        let padded = node::attribute(node, "auto_pad").is_some();
        for (name, value, length, applies) in [
            ("strides", 1, rank, true),
            ("dilations", 1, rank, node.op_type != "AveragePool"),
            ("pads", 0, 2 * rank, !padded),
        ] {
            if applies && node::attribute(node, name).is_none() {
                node.attribute.push(node::make::ints(name, &vec![value; length]));
                changed = true;
            }
        }
    }
    changed
}

/// Removes nodes, initialisers and value infos that no output of the graph needs. Gives the number of nodes removed.
pub fn remove_dead_nodes(graph: &mut GraphProto) -> usize {
    let mut live_nodes = vec![false; graph.node.len()];
    let mut live_names: HashSet<String> = HashSet::new();
    {
        let index = GraphIndex::new(graph);
        let mut open: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        while let Some(name) = open.pop() {
            if name.is_empty() || !live_names.insert(name.to_owned()) {
                continue;
            }
            let Some(position) = index.producer_position(name) else { continue };
            if let (Some(live), Some(node)) = (live_nodes.get_mut(position), graph.node.get(position))
                && !*live
            {
                *live = true;
                open.extend(node.input.iter().map(String::as_str));
            }
        }
    }
    let before = graph.node.len();
    let mut live = live_nodes.into_iter();
    graph.node.retain(|_| live.next().unwrap_or(true));
    live_names.extend(graph.node.iter().flat_map(|node| node.output.iter().cloned()));
    graph.initializer.retain(|tensor| live_names.contains(&tensor.name));
    graph.value_info.retain(|info| live_names.contains(&info.name));
    graph.input.retain(|input| live_names.contains(&input.name));
    before - graph.node.len()
}
