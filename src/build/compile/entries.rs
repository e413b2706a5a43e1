//! From a graph to a request, and from a plan to the entries of a bundle.

use super::faults::GraphFacts;
use super::plan::{Compiled, Request};
use super::{PlanOrder, dotted, timings};
use crate::bundle::plan::{PLAN_SCHEMA, PlanFacts};
use crate::bundle::{Files, sha256};
use crate::engine::Layout;
use crate::error::Result;
use crate::ffi::tensorrt::{DataType, ProfilingVerbosity};
use crate::gpu::plan::MemoryPlan;
use crate::onnx::Model;
use crate::units::count;
use std::collections::BTreeMap;

impl Request {
    /// The request for a graph as it runs, with its layout and its layers by precision.
    ///
    /// # Errors
    /// A graph whose types cannot be inferred.
    pub fn new(order: PlanOrder, model: &[u8], layout: &Layout, precision: &BTreeMap<String, u64>) -> Result<Request> {
        let end_to_end = matches!(layout, Layout::EndToEnd { .. } | Layout::NmsPlugin { .. });
        let precisions = precision.keys().filter_map(|name| match name.as_str() {
            "f16" => Some(DataType::Half),
            "int8" => Some(DataType::Int8),
            _ => None,
        });
        Ok(Request {
            graph: GraphFacts::of(&Model::from_bytes(model)?, end_to_end)?,
            model: model.to_vec(),
            order,
            precisions: precisions.collect(),
            verbosity: ProfilingVerbosity::Detailed,
            timings: timings::folder(),
        })
    }
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
        };
        facts.entries(self.plan)
    }
}
