//! Where a graph attends: soft-maxes between two matrix products, and the part of the network that each stands in.

use crate::onnx::index::GraphIndex;
use crate::onnx::node;
use onnx_protobuf::NodeProto;
use std::collections::{BTreeSet, HashSet};

/// Nodes between a matrix product and the soft-max: scaling, masks, a transposition.
const MOST_BETWEEN: usize = 2;
/// A part holds at most one of this many convolutions; a name that covers more is no part but the network.
const LEAST_PARTS: usize = 4;

/// Names of the convolutions in the parts of the network that attend. A part is the shortest beginning of the soft-max's name, step by
/// step, that covers no more than a quarter of all convolutions: `model.10` for `/model.10/m/m.0/attn/Softmax`. Nodes at the positions
/// `but` are not looked at.
pub(super) fn convolutions(index: &GraphIndex<'_>, but: &HashSet<usize>) -> BTreeSet<String> {
    let nodes = &index.graph().node;
    let all: Vec<String> = nodes.iter().filter(|node| node.op_type == "Conv").map(node::label).collect();
    let attends = |(position, node): &(usize, &NodeProto)| {
        node.op_type == "Softmax"
            && !but.contains(position)
            && meets_product(node, |node| node.input.iter().filter_map(|name| index.producer(name)).collect())
            && meets_product(node, |node| node.output.iter().flat_map(|name| index.consumers(name)).collect())
    };
    let mut found = BTreeSet::new();
    for (_, node) in nodes.iter().enumerate().filter(attends) {
        let label = node::label(node);
        let steps: Vec<&str> = node::steps(&label).collect();
        let part = (1..=steps.len()).find_map(|length| {
            let beginning = steps.get(..length)?;
            let covered: Vec<&String> =
                all.iter().filter(|name| node::begins_with(name, beginning.iter().copied())).collect();
            (covered.len() * LEAST_PARTS <= all.len()).then_some(covered)
        });
        found.extend(part.unwrap_or_default().into_iter().cloned());
    }
    found
}

/// Whether a matrix product stands among the neighbours of `node`, `next` by `next`.
fn meets_product<'a>(node: &'a NodeProto, next: impl Fn(&'a NodeProto) -> Vec<&'a NodeProto>) -> bool {
    let mut open = vec![node];
    (0..=MOST_BETWEEN).any(|_| {
        open = open.iter().flat_map(|node| next(node)).collect();
        open.iter().any(|node| node.op_type == "MatMul")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::Model;
    use crate::onnx::node::make;
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::tensor::{self, DataType};

    /// Convolutions of these names in a row, then q × k, scaled, soft-max under `name`, × v.
    fn model(convolutions: &[&str], name: &str, last: &str) -> Model {
        let mut nodes = Vec::new();
        let mut source = "images".to_owned();
        for convolution in convolutions {
            nodes.push(make::node("Conv", convolution, &[&source, "weight"], &[convolution], vec![]));
            source = (*convolution).to_owned();
        }
        nodes.push(make::node("MatMul", "scores", &[&source, &source], &["scores"], vec![]));
        nodes.push(make::node("Mul", "scaled", &["scores", "scale"], &["scaled"], vec![]));
        nodes.push(make::node("Softmax", name, &["scaled"], &["soft"], vec![]));
        nodes.push(make::node("Transpose", "turned", &["soft"], &["turned"], vec![]));
        nodes.push(make::node(last, "values", &[&source, "turned"], &["output0"], vec![]));
        let mut sample = Sample::new(&[1, 1, 8, 8], nodes, vec![value("output0", DataType::F32, &[1, 1, 8, 8])]);
        sample.weights =
            vec![tensor::from_f32("weight", &[1, 1, 1, 1], &[1.0]), tensor::from_f32("scale", &[1], &[0.5])];
        sample.model()
    }

    fn found(model: &Model) -> Vec<String> {
        convolutions(&GraphIndex::new(model.graph()), &HashSet::new()).into_iter().collect()
    }

    const NAMES: [&str; 8] = [
        "/model.0/conv/Conv",
        "/model.1/conv/Conv",
        "/model.2/cv1/conv/Conv",
        "/model.2/cv2/conv/Conv",
        "/model.10/cv1/conv/Conv",
        "/model.10/attn/qkv/conv/Conv",
        "/model.11/cv1/conv/Conv",
        "/model.11/cv2/conv/Conv",
    ];

    #[test]
    fn the_part_of_an_attention_is_its_module() {
        assert_eq!(found(&model(&NAMES, "/model.10/attn/Softmax", "MatMul")), [NAMES[5], NAMES[4]]);
        // A soft-max that stands between no two products is a DFL.
        assert_eq!(found(&model(&NAMES, "/model.10/attn/Softmax", "Add")), Vec::<String>::new());
        assert_eq!(found(&model(&NAMES, "Softmax_7", "MatMul")), Vec::<String>::new());
    }

    #[test]
    fn a_beginning_that_all_names_share_is_no_part() {
        let names: Vec<String> = NAMES.iter().map(|name| format!("/net{name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(found(&model(&names, "/net/model.10/attn/Softmax", "MatMul")), [names[5], names[4]]);
    }
}
