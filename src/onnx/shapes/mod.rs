//! Shape inference for the operators of YOLO exports, with folding of the small integer tensors that carry shapes.
//!
//! Give every input a fixed shape, and the shapes of all tensors follow, dynamic exports included: `Shape`, `Gather`,
//! `Concat` and the arithmetic between them are computed. Nothing is guessed: what cannot be known stays unknown, and the
//! node that made it so is listed in [`Shapes::unknown`]. Contradictions (a convolution whose weights do not fit) are errors.

mod call;
mod constants;
mod convolution;
mod elementwise;
mod fact;
mod fold;
mod linear;
mod rearrange;
mod reduce;
mod resize;
mod slicing;

pub use fact::{Dim, Fact, Values};

use super::index::GraphIndex;
use super::{Model, node, tensor};
use crate::error::{Error, Result};
use call::{Call, Rule};
use onnx_protobuf::{GraphProto, NodeProto};
use std::collections::HashMap;

/// Highest rank of a tensor; keeps hostile graphs small.
const MAX_RANK: usize = 16;
/// Longest constant that is computed with; longer ones are known by shape alone.
pub(crate) const MAX_VALUES: usize = 4096;

/// What is known about every tensor of a graph.
#[derive(Debug, Clone, Default)]
pub struct Shapes {
    facts: HashMap<String, Fact>,
    /// Nodes whose results could not be inferred, in run order.
    pub unknown: Vec<UnknownNode>,
}

/// A node whose results could not be inferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownNode {
    /// The node as users see it.
    pub place: String,
    /// Why.
    pub reason: String,
}

impl Shapes {
    /// What is known about tensor `name`; nothing for one that does not exist.
    pub fn fact(&self, name: &str) -> &Fact {
        self.facts.get(name).unwrap_or(&Fact::NOTHING)
    }

    /// What is known before the first node has run: the declared inputs and the weights.
    pub fn at_inputs(graph: &GraphProto) -> Shapes {
        let mut shapes = Shapes::default();
        for input in GraphIndex::new(graph).inputs() {
            shapes.facts.insert(input.name.clone(), Fact::declared(input));
        }
        for weight in &graph.initializer {
            shapes.facts.insert(weight.name.clone(), Fact::of_tensor(weight));
        }
        shapes
    }

    /// Adds tensor `name`.
    pub fn declare(&mut self, name: &str, fact: Fact) {
        self.facts.insert(name.to_owned(), fact);
    }

    /// Adds the results of `node`, whose inputs must be known already.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when its inputs contradict each other.
    pub fn step(&mut self, node: &NodeProto) -> Result<()> {
        let outcome = outputs(node, self).map_err(|error| error.at(node::place(node)))?;
        if let Some(reason) = outcome.reason {
            self.unknown.push(UnknownNode { place: node::place(node), reason });
        }
        for (name, fact) in node.output.iter().zip(outcome.facts) {
            self.facts.insert(name.clone(), fact);
        }
        Ok(())
    }

    /// The shape of tensor `name` when every dimension is known.
    pub fn fixed(&self, name: &str) -> Option<Vec<i64>> {
        self.fact(name).fixed()
    }
}

/// Infers the shapes of all tensors of `model` from its declared inputs.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] naming the node whose inputs contradict each other.
pub fn infer(model: &Model) -> Result<Shapes> {
    let graph = model.graph();
    let mut shapes = Shapes::at_inputs(graph);
    for position in GraphIndex::new(graph).run_order()? {
        if let Some(node) = graph.node.get(position) {
            shapes.step(node)?;
        }
    }
    Ok(shapes)
}

struct Outcome {
    facts: Vec<Fact>,
    reason: Option<String>,
}

fn outputs(node: &NodeProto, shapes: &Shapes) -> Result<Outcome> {
    let nothing = |reason: String| Outcome { facts: vec![Fact::NOTHING; node.output.len()], reason: Some(reason) };
    let rule = if node::is_default_domain(node) { rule(&node.op_type) } else { None };
    let Some(rule) = rule else {
        return Ok(nothing(format!("no shape rule for operator `{}`", node.op_type)));
    };
    let call = Call::new(node, shapes);
    let mut facts = rule(&call)?;
    if facts.iter().any(|fact| fact.shape.as_ref().is_some_and(|shape| shape.len() > MAX_RANK)) {
        return Err(Error::refused(format!("found a tensor of more than {MAX_RANK} dimensions")));
    }
    facts.resize(node.output.len(), Fact::NOTHING);
    let open = facts.iter().zip(&node.output).any(|(fact, name)| !name.is_empty() && fact.fixed().is_none());
    let cause = call.inputs().any(|fact| fact.fixed().is_none());
    let reason = (open && !cause).then(|| format!("the result of `{}` depends on data", node.op_type));
    Ok(Outcome { facts, reason })
}

fn rule(op_type: &str) -> Option<Rule> {
    elementwise::rule(op_type)
        .or_else(|| convolution::rule(op_type))
        .or_else(|| linear::rule(op_type))
        .or_else(|| rearrange::rule(op_type))
        .or_else(|| resize::rule(op_type))
        .or_else(|| slicing::rule(op_type))
        .or_else(|| reduce::rule(op_type))
        .or_else(|| constants::rule(op_type))
}

/// Whether `tensor` is small enough to compute with.
fn is_small(tensor: &onnx_protobuf::TensorProto) -> bool {
    tensor::element_count(tensor).is_ok_and(|count| count <= crate::units::count(MAX_VALUES))
}

#[cfg(test)]
mod tests;
