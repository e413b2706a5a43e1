//! Who makes and who uses a tensor; the order in which nodes can run.

use super::node;
use crate::error::{Error, Result};
use onnx_protobuf::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use std::collections::{HashMap, VecDeque};

/// Look-up tables over a graph. They borrow it: make a new index after a change.
#[derive(Debug)]
pub struct GraphIndex<'a> {
    graph: &'a GraphProto,
    producers: HashMap<&'a str, usize>,
    consumers: HashMap<&'a str, Vec<usize>>,
    initializers: HashMap<&'a str, usize>,
}

impl<'a> GraphIndex<'a> {
    /// An index of `graph`, in one pass.
    pub fn new(graph: &'a GraphProto) -> Self {
        let mut producers = HashMap::new();
        let mut consumers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (position, node) in graph.node.iter().enumerate() {
            for output in node.output.iter().filter(|name| !name.is_empty()) {
                producers.insert(output.as_str(), position);
            }
            for input in node.input.iter().filter(|name| !name.is_empty()) {
                let users = consumers.entry(input.as_str()).or_default();
                if users.last() != Some(&position) {
                    users.push(position);
                }
            }
        }
        let initializers =
            graph.initializer.iter().enumerate().map(|(position, tensor)| (tensor.name.as_str(), position)).collect();
        GraphIndex { graph, producers, consumers, initializers }
    }

    /// The graph behind this index.
    pub fn graph(&self) -> &'a GraphProto {
        self.graph
    }

    /// The node that makes tensor `name`.
    pub fn producer(&self, name: &str) -> Option<&'a NodeProto> {
        self.producer_position(name).and_then(|position| self.graph.node.get(position))
    }

    /// The position in the graph's node list of the node that makes tensor `name`.
    pub fn producer_position(&self, name: &str) -> Option<usize> {
        self.producers.get(name).copied()
    }

    /// Whether tensor `name` comes right from a `DequantizeLinear`: from values stored in 8 bits.
    pub fn is_dequantized(&self, name: &str) -> bool {
        self.producer(name).is_some_and(|producer| producer.op_type == "DequantizeLinear")
    }

    /// The nodes that use tensor `name`, each once, in the order of the file.
    pub fn consumers(&self, name: &str) -> impl Iterator<Item = &'a NodeProto> {
        let graph = self.graph;
        self.consumer_positions(name).iter().filter_map(move |&position| graph.node.get(position))
    }

    /// The positions of the nodes that use tensor `name`.
    pub fn consumer_positions(&self, name: &str) -> &[usize] {
        self.consumers.get(name).map_or(&[], Vec::as_slice)
    }

    /// The initialiser `name`.
    pub fn initializer(&self, name: &str) -> Option<&'a TensorProto> {
        self.initializers.get(name).and_then(|&position| self.graph.initializer.get(position))
    }

    /// The constant behind tensor `name`: an initialiser or the value of a `Constant` node.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a `Constant` node whose attribute has the wrong type.
    pub fn constant(&self, name: &str) -> Result<Option<TensorProto>> {
        if let Some(tensor) = self.initializer(name) {
            return Ok(Some(tensor.clone()));
        }
        match self.producer(name) {
            Some(producer) if producer.op_type == "Constant" => node::constant(producer),
            _ => Ok(None),
        }
    }

    /// The inputs that a caller must give: graph inputs without those that are initialisers.
    pub fn inputs(&self) -> impl Iterator<Item = &'a ValueInfoProto> {
        self.graph.input.iter().filter(|input| !self.initializers.contains_key(input.name.as_str()))
    }

    /// Positions of all nodes in an order in which each runs after those it needs; stable, so a sorted file stays as it is.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] naming a node that needs its own result.
    pub fn run_order(&self) -> Result<Vec<usize>> {
        let mut missing: Vec<usize> = vec![0; self.graph.node.len()];
        for position in
            self.consumers.iter().filter(|(name, _)| self.producers.contains_key(*name)).flat_map(|(_, users)| users)
        {
            if let Some(count) = missing.get_mut(*position) {
                *count += 1;
            }
        }
        let mut ready: VecDeque<usize> =
            (0..missing.len()).filter(|&position| missing.get(position) == Some(&0)).collect();
        let mut order = Vec::with_capacity(missing.len());
        while let Some(position) = ready.pop_front() {
            order.push(position);
            let outputs = self.graph.node.get(position).map_or(&[][..], |node| node.output.as_slice());
            for user in outputs.iter().filter(|name| !name.is_empty()).flat_map(|name| self.consumer_positions(name)) {
                if let Some(count) = missing.get_mut(*user) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push_back(*user);
                    }
                }
            }
        }
        if order.len() < missing.len() {
            let stuck = (0..missing.len())
                .find(|&position| missing.get(position) != Some(&0))
                .and_then(|position| self.graph.node.get(position));
            let error = Error::refused("found operators that need their own results, expected a graph without loops");
            return Err(match stuck {
                Some(stuck) => error.at(node::place(stuck)),
                None => error,
            });
        }
        Ok(order)
    }
}
