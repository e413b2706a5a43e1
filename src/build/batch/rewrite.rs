//! Shape operands that carry the batch.

use crate::error::{Error, Result};
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::{Dim, Fact, Shapes};
use crate::onnx::tensor::{self, DataType};
use crate::onnx::{Model, node};
use onnx_protobuf::{GraphProto, NodeProto, TensorProto};
use std::collections::HashSet;

/// Rewrites `model`, fixed at a batch of 1, to run `batch` pictures; returns the number of shape operands replaced.
///
/// The graph is left half changed by an error.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] naming the node behind which the batch cannot be followed.
pub(in crate::build) fn rewrite(model: &mut Model, batch: u32) -> Result<usize> {
    let order = GraphIndex::new(model.graph()).run_order()?;
    let mut one = Shapes::at_inputs(model.graph());
    let inputs: Vec<(String, Fact)> = widened_inputs(model.graph(), batch)?;
    for info in &mut model.graph_mut().input {
        if let Some((name, fact)) = inputs.iter().find(|(name, _)| *name == info.name) {
            *info = fact.declare(name);
        }
    }
    let many = Shapes::at_inputs(model.graph());
    let mut names: HashSet<String> = model.graph().initializer.iter().map(|weight| weight.name.clone()).collect();
    names.extend(model.graph().node.iter().flat_map(|node| node.output.iter().cloned()));
    names.extend(model.graph().input.iter().map(|info| info.name.clone()));
    let ends = model.graph().output.iter().map(|output| output.name.clone()).collect();
    let mut walk = Walk { batch: i64::from(batch), many, names, ends, operands: Vec::new(), inserted: Vec::new() };
    for position in order {
        let Some(found) = model.graph_mut().node.get_mut(position) else { continue };
        one.step(found)?;
        let place = node::place(found);
        walk.pass(position, found, &one).map_err(|error| {
            let error = if error.place().is_some() { error } else { error.at(place) };
            error.hint(format!(
                "export again for it: `yolo export model=x.pt format=onnx batch={batch}` (or `dynamic=True`)"
            ))
        })?;
    }
    let replaced = walk.operands.len();
    let graph = model.graph_mut();
    graph.initializer.extend(walk.operands);
    for (before, node) in walk.inserted.into_iter().rev() {
        graph.node.insert(before, node);
    }
    for info in &mut graph.output {
        let fact = walk.many.fact(&info.name);
        if fact.fixed().is_some() && fact.element != DataType::Undefined {
            *info = fact.declare(&info.name);
        }
    }
    graph.value_info.retain_mut(|info| {
        let fact = walk.many.fact(&info.name);
        let known = fact.fixed().is_some() && fact.element != DataType::Undefined;
        if known {
            *info = fact.declare(&info.name);
        }
        known
    });
    crate::onnx::edit::remove_dead_nodes(graph);
    Ok(replaced)
}

/// The inputs with their first dimension at `batch`.
fn widened_inputs(graph: &GraphProto, batch: u32) -> Result<Vec<(String, Fact)>> {
    let index = GraphIndex::new(graph);
    let widen = |info: &onnx_protobuf::ValueInfoProto| {
        let mut fact = Fact::declared(info);
        match fact.shape.as_deref_mut().and_then(<[Dim]>::first_mut) {
            Some(first @ Dim::Known(1)) => *first = Dim::Known(i64::from(batch)),
            _ => {
                return Err(Error::refused(format!("found `{fact}`, expected a batch of 1 in front"))
                    .at(format!("input `{}`", info.name)));
            }
        }
        Ok((info.name.clone(), fact))
    };
    index.inputs().map(widen).collect()
}

/// The walk through the graph.
struct Walk {
    batch: i64,
    /// Facts at the new batch.
    many: Shapes,
    /// Names in use.
    names: HashSet<String>,
    /// Outputs of the graph.
    ends: HashSet<String>,
    /// New constants.
    operands: Vec<TensorProto>,
    /// New nodes, each with the position of the node that it goes in front of, ascending in run order.
    inserted: Vec<(usize, NodeProto)>,
}

impl Walk {
    /// Makes `node` right for the new batch and adds what it gives.
    fn pass(&mut self, position: usize, node: &mut NodeProto, one: &Shapes) -> Result<()> {
        let mut carried = Vec::with_capacity(node.input.len());
        for name in &node.input {
            carried.push(self.axis(name, one)?);
        }
        if carried.iter().any(Option::is_some) {
            match node.op_type.as_str() {
                "Reshape" => self.reshape(node, one, carried.first().copied().flatten())?,
                // A target of 1 leaves the batch of the input as it is; a computed target follows by itself.
                "Expand" => {}
                "Resize" => self.resize(node, one, carried.first().copied().flatten())?,
                "Concat" => self.concat(position, node, one, &carried)?,
                _ => along_the_batch(node, one, &carried)?,
            }
        }
        self.many.step(node)?;
        self.check(node, one, &carried)
    }

    /// The axis of tensor `name` that holds the batch; `None` for a tensor without it.
    fn axis(&self, name: &str, one: &Shapes) -> Result<Option<usize>> {
        axis_between(one.fact(name), self.many.fact(name), self.batch)
    }

    /// Every result has the batch in one place when an input has it.
    fn check(&self, node: &NodeProto, one: &Shapes, carried: &[Option<usize>]) -> Result<()> {
        let values_only = matches!(node.op_type.as_str(), "Shape" | "Size");
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            let axis = self.axis(name, one)?;
            if carried.iter().any(Option::is_some) && axis.is_none() && !values_only {
                return Err(lost(&format!("its result {} holds no batch", one.fact(name))));
            }
            let shared = axis.is_some_and(|axis| fixed(one, Some(name)).is_ok_and(|small| small.get(axis) != Some(&1)));
            if shared && self.ends.contains(name) {
                let result = one.fact(name);
                return Err(lost(&format!(
                    "its result {result} ends the graph and has no dimension for the batch alone"
                )));
            }
        }
        Ok(())
    }

    fn reshape(&mut self, node: &mut NodeProto, one: &Shapes, from: Option<usize>) -> Result<()> {
        let (Some(from), Some(target)) = (from, self.constant_target(node, 1)) else { return Ok(()) };
        let input = fixed(one, node.input.first())?;
        let output = fixed(one, node.output.first())?;
        let before: i64 = input.iter().take(from).product();
        // The batch goes where as many elements lie before it as in the input; a slot stays whole then. Without a dimension of its own
        // there it becomes the outer factor of one: areas of a picture that attend apart.
        let fits = |axis: &usize| output.iter().take(*axis).product::<i64>() == before;
        let alone = (0..output.len()).find(|axis| output.get(*axis) == Some(&1) && fits(axis));
        let Some(to) = alone.or_else(|| (0..output.len()).find(fits)) else {
            return Err(lost(&format!("it turns {input:?} into {output:?}, which has no dimension for the batch")));
        };
        match target.get(to) {
            Some(-1) => return Ok(()),
            Some(0) if to == from => return Ok(()),
            _ => {}
        }
        let length = output.get(to).copied().unwrap_or(1);
        self.replace(node, 1, &target, to, length)
    }

    fn resize(&mut self, node: &mut NodeProto, one: &Shapes, from: Option<usize>) -> Result<()> {
        let (Some(from), Some(target)) = (from, self.constant_target(node, 3)) else { return Ok(()) };
        let input = fixed(one, node.input.first())?;
        let length = input.get(from).copied().unwrap_or(1);
        if target.len() == input.len() { self.replace(node, 3, &target, from, length) } else { Ok(()) }
    }

    /// Joins tensors with and without a batch: those without are repeated first.
    fn concat(&mut self, position: usize, node: &mut NodeProto, one: &Shapes, carried: &[Option<usize>]) -> Result<()> {
        along_the_batch(node, one, carried)?;
        let batch_axis = carried.iter().flatten().next().copied();
        for (at, _) in carried.iter().enumerate().filter(|(_, axis)| axis.is_none()) {
            let (Some(axis), Some(name)) = (batch_axis, node.input.get(at).cloned()) else { continue };
            let mut shape = fixed(one, Some(&name))?;
            let Some(length @ 1) = shape.get_mut(axis) else { continue };
            *length = self.batch;
            let target = self.new_constant(&format!("{name}_batch_shape"), &shape);
            let repeated = self.new_name(&format!("{name}_batch"));
            let expand = node::make::node("Expand", &repeated, &[&name, &target], &[&repeated], vec![]);
            self.many.step(&expand)?;
            self.inserted.push((position, expand));
            if let Some(input) = node.input.get_mut(at) {
                *input = repeated;
            }
        }
        Ok(())
    }

    /// The shape operand at input `at` when it is a constant that does not follow from the batch.
    fn constant_target(&self, node: &NodeProto, at: usize) -> Option<Vec<i64>> {
        let name = node.input.get(at).filter(|name| !name.is_empty())?;
        self.many.fact(name).ints().map(<[i64]>::to_vec)
    }

    /// Gives `node` a shape operand of its own with the batch at `axis`, whose length was `one` without it.
    fn replace(&mut self, node: &mut NodeProto, at: usize, target: &[i64], axis: usize, one: i64) -> Result<()> {
        let mut target = target.to_vec();
        let many = one.saturating_mul(self.batch);
        match target.get_mut(axis) {
            Some(length) if *length == many => return Ok(()),
            Some(length) if *length == 0 || *length == one => *length = many,
            other => return Err(lost(&format!("its shape operand has {other:?} where the batch belongs"))),
        }
        let name =
            self.new_constant(&format!("{}_batch", node.output.first().map_or("shape", String::as_str)), &target);
        if let Some(input) = node.input.get_mut(at) {
            *input = name;
        }
        Ok(())
    }

    fn new_constant(&mut self, wish: &str, values: &[i64]) -> String {
        let name = self.new_name(wish);
        let length = i64::try_from(values.len()).unwrap_or(i64::MAX);
        let operand = tensor::from_i64(&name, &[length], values);
        self.many.declare(&name, Fact::of_tensor(&operand));
        self.operands.push(operand);
        name
    }

    fn new_name(&mut self, wish: &str) -> String {
        let mut name = wish.to_owned();
        let mut number = 1_u32;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{wish}_{number}");
        }
        name
    }
}

/// The one axis on which a tensor grows `batch` times; `None` when it does not grow.
fn axis_between(one: &Fact, many: &Fact, batch: i64) -> Result<Option<usize>> {
    let (Some(small), Some(large)) = (one.fixed(), many.fixed()) else {
        return if one.shape.is_none() && many.shape.is_none() && one.element == DataType::Undefined {
            Ok(None)
        } else {
            Err(lost(&format!("a shape cannot be known: {one} becomes {many}")))
        };
    };
    let grown: Vec<usize> = (0..small.len().max(large.len())).filter(|&at| small.get(at) != large.get(at)).collect();
    match grown.as_slice() {
        [] => Ok(None),
        &[axis]
            if small.len() == large.len()
                && small.get(axis).and_then(|length| length.checked_mul(batch)) == large.get(axis).copied() =>
        {
            Ok(Some(axis))
        }
        _ => Err(lost(&format!("a tensor of shape {small:?} becomes {large:?}"))),
    }
}

/// Refuses operators that work along the axis of the batch: they mix pictures.
fn along_the_batch(node: &NodeProto, one: &Shapes, carried: &[Option<usize>]) -> Result<()> {
    let usual = match node.op_type.as_str() {
        "Softmax" | "LogSoftmax" | "Hardmax" | "TopK" | "LayerNormalization" => -1,
        "Concat" | "Gather" | "GatherElements" | "Split" | "CumSum" | "ArgMax" | "ArgMin" | "ScatterElements" => 0,
        _ => return Ok(()),
    };
    let axis = node::int_or(node, "axis", usual)?;
    for (at, batch_axis) in carried.iter().enumerate() {
        let Some(batch_axis) = *batch_axis else { continue };
        let rank = fixed(one, node.input.get(at))?.len();
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
        if usize::try_from(axis) == Ok(batch_axis) {
            return Err(lost("it works along the batch, so pictures would mix"));
        }
    }
    Ok(())
}

fn fixed(shapes: &Shapes, name: Option<&String>) -> Result<Vec<i64>> {
    let name = name.map_or("", String::as_str);
    shapes.fixed(name).ok_or_else(|| lost(&format!("the shape of `{name}` cannot be known")))
}

fn lost(reason: &str) -> Error {
    Error::refused(format!("found an export for batch 1 that cannot be rewritten to a larger one: {reason}"))
}
