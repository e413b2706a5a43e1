//! From a graph to a request, and from a plan to the entries of a bundle.

use super::asked::Held;
use super::faults::GraphFacts;
use super::plan::{Compiled, Request};
use super::{PlanOrder, dotted, timings};
use crate::bundle::plan::{PLAN_SCHEMA, PlanFacts};
use crate::bundle::{Files, sha256};
use crate::engine::Layout;
use crate::error::Result;
use crate::ffi::tensorrt::version::Flavour;
use crate::ffi::tensorrt::{DataType, ProfilingVerbosity};
use crate::gpu::plan::MemoryPlan;
use crate::onnx::{Model, opset, twin};
use crate::units::count;
use std::collections::BTreeMap;

impl Request {
    /// The request for a graph as it runs, with its layout and its layers by precision.
    ///
    /// # Errors
    /// A graph whose types cannot be inferred.
    pub fn new(order: PlanOrder, model: &[u8], layout: &Layout, precision: &BTreeMap<String, u64>) -> Result<Request> {
        let end_to_end = matches!(layout, Layout::EndToEnd { .. } | Layout::NmsPlugin { .. });
        let mut graph = Model::from_bytes(model)?;
        let facts = GraphFacts::of(&graph, end_to_end)?;
        let is_int8 = precision.contains_key("int8");
        let is_half = precision.contains_key("f16") || is_int8 && twin::has_half(&graph);
        let precisions = [(is_half, DataType::Half), (is_int8, DataType::Int8)];
        // The types that TensorRT 8.6 tells of a parsed network's tensors are not the graph's: holding every layer to them makes it
        // refuse its own casts.
        let (held, model) = if order.flavour == Flavour::Trt8 && is_half {
            (widened_for_8(&mut graph)?, graph.to_bytes()?)
        } else {
            (Held::default(), model.to_vec())
        };
        Ok(Request {
            graph: facts,
            model,
            order,
            precisions: precisions.into_iter().filter(|(found, _)| *found).map(|(_, name)| name).collect(),
            held,
            verbosity: ProfilingVerbosity::Detailed,
            timings: timings::folder(),
        })
    }
}

/// Makes of a graph with halves and Q/DQ pairs the float one behind it, and gives the tensors that stay in float or half: TensorRT 8
/// takes no half scales, and chooses the precision by time where it is free to.
fn widened_for_8(graph: &mut Model) -> Result<Held> {
    let held = Held::of(graph)?;
    twin::widen_all(graph)?;
    opset::lower(graph);
    Ok(held)
}

impl Compiled {
    /// The plan's two entries for the bundle with this id.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when the facts cannot be written as JSON.
    pub fn into_entries(self, order: &PlanOrder, bundle_id: &str, memory: Option<MemoryPlan>) -> Result<Files> {
        let facts = PlanFacts {
            schema: PLAN_SCHEMA,
            bundle: bundle_id.to_owned(),
            sha256: sha256(&self.plan),
            bytes: count(self.plan.len()),
            flavour: order.flavour.name().to_owned(),
            tensorrt: self.version.to_string(),
            compute_capability: dotted(order.compute_capability),
            made_on: self.made_on,
            architecture: std::env::consts::ARCH.to_owned(),
            workspace: order.workspace,
            optimization_level: order.optimization_level,
            tensors: self.tensors,
            memory,
            layers: None,
            gate: None,
        };
        facts.entries(self.plan)
    }
}
