//! Where INT8 goes: which convolutions, which tensors, and which tensors share a scale.

use super::rules::Rules;
use super::tail::Tail;
use crate::build::attention;
use crate::error::Result;
use crate::onnx::index::GraphIndex;
use crate::onnx::node;
use crate::onnx::shapes::Shapes;
use crate::onnx::tensor::{self, DataType};
use crate::units::count;
use onnx_protobuf::NodeProto;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// One convolution and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layer {
    /// Position of the node.
    pub(super) position: usize,
    /// Name of the node.
    pub(super) name: String,
    /// Multiplications and additions of one run.
    pub(super) operations: u64,
    /// Why it stays in float; `None` for INT8.
    pub(super) float: Option<String>,
    /// Whether its kind keeps it out of INT8, not its accuracy: depthwise, few channels.
    pub(super) unsuited: bool,
}

/// The plan for one graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    /// Every convolution, in the order of the graph.
    pub(super) layers: Vec<Layer>,
    /// Tensors that are stored in 8 bits → the group with which they share a scale.
    pub(super) group_of: BTreeMap<String, usize>,
    /// Tensors whose ranges decide: those of each group that no passing operator makes.
    pub(super) sources: BTreeMap<String, usize>,
    /// Positions of the convolutions out of INT8 that read what is stored in 8 bits by a rule.
    pub(super) readers: BTreeSet<usize>,
    /// Positions of the residual sums that read 8 bits on both sides by the rule for them.
    pub(super) sums: BTreeSet<usize>,
}

impl Placement {
    /// Decides by `rules` for the graph behind `index`; the convolutions named in `kept_float` stay in float, with the reason given.
    pub(super) fn decide(
        index: &GraphIndex<'_>,
        shapes: &Shapes,
        kept_float: &BTreeMap<String, String>,
        rules: &Rules<'_>,
    ) -> Result<Placement> {
        let tail = Tail::of(index)?;
        let attention = if rules.attention { BTreeSet::new() } else { attention::convolutions(index, &tail.nodes) };
        let mut placement = Placement::default();
        for (position, node) in index.graph().node.iter().enumerate().filter(|(_, node)| node.op_type == "Conv") {
            let name = node::label(node);
            let float = match kept_float.get(&name) {
                Some(reason) => Some(reason.clone()),
                None => float_reason(position, node, &tail, index, shapes, rules)?,
            };
            let float = float.or_else(|| attention.contains(&name).then(|| "attention".to_owned()));
            let unsuited = float.is_some() && float == rules.unsuited(node, &weight_sizes(node, index))?;
            placement.layers.push(Layer {
                position,
                name,
                operations: operations(node, index, shapes),
                float,
                unsuited,
            });
        }
        let mut stored: Vec<String> = placement
            .layers
            .iter()
            .filter(|layer| layer.float.is_none())
            .filter_map(|layer| index.graph().node.get(layer.position)?.input.first().cloned())
            .collect();
        placement.group(stored.clone(), index, shapes);
        loop {
            let more = placement.stored_beside(rules, &tail, index, shapes);
            if more.is_empty() {
                return Ok(placement);
            }
            stored.extend(more);
            placement.group(stored.clone(), index, shapes);
        }
    }

    /// Tensors that are stored in 8 bits though no convolution in INT8 reads them, so that the one that makes them writes 8 bits
    /// with its activation in one kernel: what a residual sum adds, what the head's output convolutions read, and what those read whose
    /// kind keeps them out.
    fn stored_beside(
        &mut self,
        rules: &Rules<'_>,
        tail: &Tail,
        index: &GraphIndex<'_>,
        shapes: &Shapes,
    ) -> BTreeSet<String> {
        let is_open = |name: &&String| !self.group_of.contains_key(*name);
        let can_be = |name: &String| shapes.fact(name).element == DataType::F32 && self.activation_of_int8(name, index);
        let mut more = BTreeSet::new();
        let (mut readers, mut sums) = (BTreeSet::new(), BTreeSet::new());
        for (position, node) in index.graph().node.iter().enumerate() {
            if rules.sums && node.op_type == "Add" && node.output.iter().any(|sum| self.group_of.contains_key(sum)) {
                let open: Vec<&String> = node.input.iter().filter(is_open).collect();
                if open.iter().all(|name| can_be(name)) {
                    sums.insert(position);
                    more.extend(open.into_iter().cloned());
                }
            }
            let of_head = rules.head_inputs && node.op_type == "Conv" && tail.last_layers.contains(&position);
            if of_head || self.layers.iter().any(|layer| layer.position == position && layer.unsuited) {
                let input = node.input.first().filter(|name| !is_open(name) || can_be(name));
                readers.extend(input.map(|_| position));
                more.extend(input.filter(is_open).cloned());
            }
        }
        (self.readers, self.sums) = (readers, sums);
        more
    }

    /// Whether `name` is the activation of a convolution in INT8. A convolution without one can be joined with the sum itself.
    fn activation_of_int8(&self, name: &str, index: &GraphIndex<'_>) -> bool {
        let is_int8 =
            |position: usize| self.layers.iter().any(|layer| layer.position == position && layer.float.is_none());
        let by_convolution = |name: &String| index.producer_position(name).is_some_and(is_int8);
        let activations = ["Mul", "Relu", "LeakyRelu", "Clip", "HardSwish", "Mish", "Gelu", "Sigmoid"];
        index.producer(name).is_some_and(|producer| {
            activations.contains(&producer.op_type.as_str()) && producer.input.iter().any(by_convolution)
        })
    }

    /// Share of the convolutions' arithmetic in INT8, 0..1.
    pub(super) fn share(&self) -> f64 {
        let sum = |layers: &mut dyn Iterator<Item = &Layer>| layers.map(|layer| layer.operations).sum::<u64>();
        let all = sum(&mut self.layers.iter());
        let quantised = sum(&mut self.layers.iter().filter(|layer| layer.float.is_none()));
        crate::units::float64(quantised) / crate::units::float64(all.max(1))
    }

    /// Number of convolutions in INT8.
    pub(super) fn quantised(&self) -> usize {
        self.layers.iter().filter(|layer| layer.float.is_none()).count()
    }

    /// Walks from the inputs of the convolutions up through operators that pass 8-bit values on; what such an operator
    /// connects shares a scale.
    fn group(&mut self, inputs: Vec<String>, index: &GraphIndex<'_>, shapes: &Shapes) {
        let mut groups = Groups::default();
        let mut open = inputs;
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut sources = BTreeSet::new();
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            groups.of(&name);
            let Some(producer) = index.producer(&name).filter(|producer| passes(producer)) else {
                sources.insert(name);
                continue;
            };
            let connected = data_inputs(producer)
                .filter(|input| shapes.fact(input).element == DataType::F32 && index.initializer(input).is_none());
            for input in connected {
                groups.join(&name, input);
                open.push(input.clone());
            }
            for sibling in producer.output.iter().filter(|sibling| !sibling.is_empty()) {
                groups.join(&name, sibling);
            }
        }
        let number: HashMap<usize, usize> =
            seen.iter().map(|name| groups.of(name)).collect::<BTreeSet<_>>().into_iter().zip(0..).collect();
        let mut group = |name: &String| number.get(&groups.of(name)).copied().unwrap_or(0);
        self.group_of = seen.iter().map(|name| (name.clone(), group(name))).collect();
        self.sources = sources.iter().map(|name| (name.clone(), group(name))).collect();
    }
}

/// Operators that TensorRT runs on 8-bit values as they are.
pub(super) fn passes(node: &NodeProto) -> bool {
    match node.op_type.as_str() {
        "Concat" | "MaxPool" | "Split" | "Slice" => true,
        "Resize" => !matches!(node::text(node, "mode"), Ok(Some("linear" | "cubic"))),
        _ => false,
    }
}

/// The inputs of a passing operator that hold values, not sizes.
pub(super) fn data_inputs(node: &NodeProto) -> impl Iterator<Item = &String> {
    let most = if node.op_type == "Concat" { usize::MAX } else { 1 };
    node.input.iter().take(most)
}

fn float_reason(
    position: usize,
    node: &NodeProto,
    tail: &Tail,
    index: &GraphIndex<'_>,
    shapes: &Shapes,
    rules: &Rules<'_>,
) -> Result<Option<String>> {
    if tail.last_layers.contains(&position) {
        return Ok(Some("output convolution of the head".to_owned()));
    }
    if tail.nodes.contains(&position) {
        return Ok(Some("DFL and box arithmetic".to_owned()));
    }
    let Some(input) = node.input.first() else { return Ok(Some("no input".to_owned())) };
    let weight = node.input.get(1).and_then(|name| index.initializer(name));
    let Some(weight) = weight.filter(|weight| tensor::data_type(weight) == DataType::F32) else {
        return Ok(Some("its weights are no float constant".to_owned()));
    };
    if shapes.fact(input).element != DataType::F32 {
        return Ok(Some("its input is no float".to_owned()));
    }
    rules.reason(node, &weight.dims, index.producer(input).is_none())
}

fn weight_sizes(node: &NodeProto, index: &GraphIndex<'_>) -> Vec<i64> {
    let weight = node.input.get(1).and_then(|name| index.initializer(name));
    weight.map(|weight| weight.dims.clone()).unwrap_or_default()
}

/// Multiplications and additions of a heavy operator; 0 when a shape is unknown.
pub(super) fn operations(node: &NodeProto, index: &GraphIndex<'_>, shapes: &Shapes) -> u64 {
    let sizes = |name: &String| match index.initializer(name) {
        Some(weight) => Some(weight.dims.clone()),
        None => shapes.fixed(name),
    };
    let outputs = node.output.first().and_then(|name| shapes.fixed(name));
    // A convolution sums over all of its weight but the output channels, a product over its last axis.
    let summed = match node.op_type.as_str() {
        "Conv" => node.input.get(1).and_then(sizes).map(|weight| weight.get(1..).unwrap_or(&[]).to_vec()),
        "MatMul" => node.input.first().and_then(sizes).map(|left| left.last().copied().into_iter().collect()),
        _ => None,
    };
    let (Some(outputs), Some(summed)) = (outputs, summed) else { return 0 };
    let product = |sizes: &[i64]| sizes.iter().map(|&size| u64::try_from(size).unwrap_or(0)).product::<u64>();
    2 * product(&outputs).saturating_mul(product(&summed))
}

/// Sets of tensors that share a scale.
#[derive(Default)]
struct Groups {
    ids: HashMap<String, usize>,
    parents: Vec<usize>,
}

impl Groups {
    fn of(&mut self, name: &str) -> usize {
        let mut id = match self.ids.get(name) {
            Some(&id) => id,
            None => {
                let id = self.parents.len();
                self.ids.insert(name.to_owned(), id);
                self.parents.push(id);
                id
            }
        };
        while let Some(&parent) = self.parents.get(id).filter(|parent| **parent != id) {
            id = parent;
        }
        id
    }

    fn join(&mut self, one: &str, other: &str) {
        let (one, other) = (self.of(one), self.of(other));
        let (low, high) = (one.min(other), one.max(other));
        if let Some(parent) = self.parents.get_mut(high) {
            *parent = low;
        }
    }
}

/// Names of the layers, for messages: the first few and how many more.
pub(super) fn some_names(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", count(names.len() - SHOWN)) } else { shown }
}
