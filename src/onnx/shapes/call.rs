//! One node with what is known about its inputs: what a shape rule gets to see.

use super::{Dim, Fact, Shapes};
use crate::error::{Error, Result};
use crate::onnx::node;
use crate::onnx::tensor::DataType;
use onnx_protobuf::NodeProto;

/// Gives the facts of a node's outputs.
pub(super) type Rule = fn(&Call<'_>) -> Result<Vec<Fact>>;

/// A node and its inputs.
pub(super) struct Call<'a> {
    pub(super) node: &'a NodeProto,
    shapes: &'a Shapes,
}

impl<'a> Call<'a> {
    pub(super) fn new(node: &'a NodeProto, shapes: &'a Shapes) -> Self {
        Call { node, shapes }
    }

    pub(super) fn op(&self) -> &'a str {
        &self.node.op_type
    }

    /// Whether input `position` is given.
    pub(super) fn has(&self, position: usize) -> bool {
        self.node.input.get(position).is_some_and(|name| !name.is_empty())
    }

    /// Input `position`; nothing is known about an absent one.
    pub(super) fn input(&self, position: usize) -> &'a Fact {
        match self.node.input.get(position) {
            Some(name) if !name.is_empty() => self.shapes.fact(name),
            _ => &Fact::NOTHING,
        }
    }

    /// All inputs that are given.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &'a Fact> + '_ {
        self.node.input.iter().filter(|name| !name.is_empty()).map(|name| self.shapes.fact(name))
    }

    pub(super) fn shape(&self, position: usize) -> Option<&'a [Dim]> {
        self.input(position).shape.as_deref()
    }

    pub(super) fn element(&self, position: usize) -> DataType {
        self.input(position).element
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64> {
        node::int_or(self.node, name, default)
    }

    pub(super) fn ints(&self, name: &str) -> Result<Option<&'a [i64]>> {
        node::ints(self.node, name)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        node::text(self.node, name)
    }

    /// Integers that older opsets keep in attribute `name` and newer ones in input `position`.
    ///
    /// `Ok(None)` when neither is given; `Ok(Some(None))` when the input is given and not constant.
    pub(super) fn ints_either(&self, name: &str, position: usize) -> Result<Option<Option<&'a [i64]>>> {
        if self.has(position) {
            return Ok(Some(self.input(position).ints()));
        }
        Ok(self.ints(name)?.map(Some))
    }

    /// One result with the element type of input 0.
    pub(super) fn like_first(&self, shape: Option<Vec<Dim>>) -> Vec<Fact> {
        vec![Fact::new(self.element(0), shape)]
    }

    /// One result of which only the element type is known.
    pub(super) fn unknown(&self) -> Vec<Fact> {
        self.like_first(None)
    }

    pub(super) fn wrong(&self, message: impl Into<String>) -> Error {
        Error::refused(message).hint("the graph contradicts itself at this input size: export it at the size you want")
    }

    /// `axis`, counted from the end when negative, as an index into `rank` dimensions.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let length = i64::try_from(rank).unwrap_or(i64::MAX);
        let counted = if axis < 0 { axis.checked_add(length) } else { Some(axis) };
        counted
            .and_then(|axis| usize::try_from(axis).ok())
            .filter(|&axis| axis < rank)
            .ok_or_else(|| self.wrong(format!("found axis {axis}, expected −{rank} to {}", rank.saturating_sub(1))))
    }
}
