//! Where a graph attends: soft-maxes between two matrix products, and the convolutions that belong to each.

use crate::onnx::index::GraphIndex;
use crate::onnx::node;
use onnx_protobuf::NodeProto;
use std::collections::{BTreeSet, HashSet};

/// Nodes between a matrix product and the soft-max: scaling, masks, a transposition.
const MOST_BETWEEN: usize = 2;
/// Nodes between a matrix product and a convolution of the same attention: reshapes, splits, transpositions, the soft-max, a sum.
const MOST_AROUND: usize = 16;

/// Names of the convolutions of every attention: those that make its queries, keys and values, the one that makes the positions out of the
/// values beside the products, and the projection that reads the result. What else stands in the same part of the network, such as a
/// feed-forward network, is none of them. Soft-maxes at the positions `but` are not looked at.
pub(super) fn convolutions(index: &GraphIndex<'_>, but: &HashSet<usize>) -> BTreeSet<String> {
    let nodes = &index.graph().node;
    let mut found = BTreeSet::new();
    for (position, node) in nodes.iter().enumerate() {
        if node.op_type != "Softmax" || but.contains(&position) {
            continue;
        }
        let is_product = |node: &NodeProto| node.op_type == "MatMul";
        let scores = nearest(node, Way::Up, MOST_BETWEEN, index, is_product);
        let results = nearest(node, Way::Down, MOST_BETWEEN, index, is_product);
        if scores.is_empty() || results.is_empty() {
            continue;
        }
        let around = |from: &NodeProto, way| labels(&nearest(from, way, MOST_AROUND, index, is_convolution));
        let before: BTreeSet<String> =
            scores.iter().chain(&results).flat_map(|product| around(product, Way::Up)).collect();
        let after: BTreeSet<String> = results.iter().flat_map(|product| around(product, Way::Down)).collect();
        let within = |names: &BTreeSet<String>, whole: &BTreeSet<String>| !names.is_empty() && names.is_subset(whole);
        let beside = nodes.iter().filter(|node| {
            is_convolution(node) && within(&around(node, Way::Up), &before) && within(&around(node, Way::Down), &after)
        });
        found.extend(beside.map(node::label));
        found.extend(before);
        found.extend(after);
    }
    found
}

/// Against the flow of values, or with it.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

fn is_convolution(node: &NodeProto) -> bool {
    node.op_type == "Conv"
}

fn labels(nodes: &[&NodeProto]) -> BTreeSet<String> {
    nodes.iter().map(|node| node::label(node)).collect()
}

/// The first nodes that are `wanted` on each path from `node`, with at most `between` others on the way. Sizes are no values: no path leads
/// through `Shape`.
fn nearest<'a>(
    node: &NodeProto,
    way: Way,
    between: usize,
    index: &GraphIndex<'a>,
    wanted: impl Fn(&NodeProto) -> bool,
) -> Vec<&'a NodeProto> {
    let next = |node: &NodeProto| -> Vec<&'a NodeProto> {
        match way {
            Way::Up => node.input.iter().filter_map(|name| index.producer(name)).collect(),
            Way::Down => node.output.iter().flat_map(|name| index.consumers(name)).collect(),
        }
    };
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open = next(node);
    for _ in 0..=between {
        let is_new = |node: &&NodeProto| node.op_type != "Shape" && seen.insert(std::ptr::from_ref(*node));
        let here = open.into_iter().filter(is_new).collect::<Vec<_>>();
        let (reached, others): (Vec<_>, Vec<_>) = here.into_iter().partition(|node| wanted(node));
        found.extend(reached);
        open = others.into_iter().flat_map(next).collect();
    }
    found
}

/// stem → q, k and v out of one convolution, as YOLO11 writes it: q × k, scaled, soft-max, × v; the positions out of v are added and
/// projected; a feed-forward network beside a shortcut, and a head. `last` multiplies with v.
#[cfg(test)]
pub(super) fn sample(last: &str) -> crate::onnx::Model {
    use crate::onnx::node::make;
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::tensor::{self, DataType};
    let convolution = |name, from, to| make::node("Conv", name, &[from, "weight"], &[to], vec![]);
    let nodes = vec![
        convolution("stem", "images", "x"),
        make::node("Conv", "qkv", &["x", "weights"], &["qkv"], vec![]),
        make::node("Split", "split", &["qkv"], &["q", "k", "v"], vec![make::int("axis", 1)]),
        make::node("MatMul", "scores", &["q", "k"], &["scores"], vec![]),
        make::node("Mul", "scaled", &["scores", "scale"], &["scaled"], vec![]),
        make::node("Softmax", "soft", &["scaled"], &["soft"], vec![]),
        make::node("Transpose", "turned", &["soft"], &["turned"], vec![make::ints("perm", &[0, 1, 3, 2])]),
        make::node(last, "values", &["v", "turned"], &["values"], vec![]),
        convolution("pe", "v", "positions"),
        make::node("Add", "placed", &["values", "positions"], &["placed"], vec![]),
        convolution("proj", "placed", "projected"),
        make::node("Add", "shortcut", &["x", "projected"], &["sum"], vec![]),
        convolution("ffn.0", "sum", "wide"),
        convolution("ffn.1", "wide", "narrow"),
        make::node("Add", "shortcut.1", &["sum", "narrow"], &["y"], vec![]),
        convolution("head", "y", "output0"),
    ];
    let mut sample = Sample::new(&[1, 1, 8, 8], nodes, vec![value("output0", DataType::F32, &[1, 1, 8, 8])]);
    sample.weights = vec![
        tensor::from_f32("weight", &[1, 1, 1, 1], &[1.0]),
        tensor::from_f32("weights", &[3, 1, 1, 1], &[1.0; 3]),
        tensor::from_f32("scale", &[1], &[0.5]),
    ];
    sample.model()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::Model;

    fn found(model: &Model, but: &HashSet<usize>) -> Vec<String> {
        convolutions(&GraphIndex::new(model.graph()), but).into_iter().collect()
    }

    #[test]
    fn an_attention_has_its_own_convolutions_and_no_others() {
        let attends = sample("MatMul");
        assert_eq!(found(&attends, &HashSet::new()), ["pe", "proj", "qkv"]);
        let soft = attends.graph().node.iter().position(|node| node.op_type == "Softmax").unwrap();
        assert_eq!(found(&attends, &HashSet::from([soft])), Vec::<String>::new());
        // A soft-max that stands between no two products is a DFL.
        assert_eq!(found(&sample("Add"), &HashSet::new()), Vec::<String>::new());
    }
}
