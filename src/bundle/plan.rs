//! Plans in a bundle: `plans/NAME.plan` and beside it `plans/NAME.json`, which says what the plan was made from.

use super::gate::GateResult;
use super::{Bundle, Files, sha256};
use crate::error::{Error, Result};
use crate::ffi::tensorrt::TensorFacts;
use crate::gpu::layers::LayerReport;
use crate::gpu::plan::MemoryPlan;
use crate::units::{Bytes, count};
use serde::{Deserialize, Serialize};

/// Version of [`PlanFacts`]; a reader refuses a newer one.
pub const PLAN_SCHEMA: u32 = 1;

/// `plans/NAME.json`. Holds no times, so equal inputs give equal bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFacts {
    /// [`PLAN_SCHEMA`] of the writer.
    pub schema: u32,
    /// Id of the bundle it belongs to: SHA-256 of `manifest.json`.
    pub bundle: String,
    /// SHA-256 of the plan, lower-case hex.
    pub sha256: String,
    /// Length of the plan in bytes.
    pub bytes: u64,
    /// TensorRT family, as in `rtx`.
    pub flavour: String,
    /// Version of TensorRT that made it, as in `1.7.1`.
    pub tensorrt: String,
    /// Compute capability it runs on, as in `8.6`.
    pub compute_capability: String,
    /// Name of the GPU it was made on; `None` when it was made without one.
    pub made_on: Option<String>,
    /// CPU architecture it was made on, as in `x86_64`.
    pub architecture: String,
    /// Most scratch memory of a layer.
    pub workspace: Bytes,
    /// TensorRT's optimisation level; `None` for its own.
    pub optimization_level: Option<u8>,
    /// Inputs, then outputs.
    pub tensors: Vec<TensorFacts>,
    /// What it takes on the GPU: measured where it was made on a GPU, else estimated; `None` for a plan of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryPlan>,
    /// Its layers, as TensorRT's inspector described them where it was made; `None` where no GPU was at hand, and for a plan of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayerReport>,
    /// What the accuracy gate measured of this plan; `None` where no pictures judged it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateResult>,
}

impl PlanFacts {
    /// The entry name without folder and ending: one plan for each family, version and compute capability.
    pub fn name(&self) -> String {
        format!("{}-{}-cc{}", self.flavour, self.tensorrt, self.compute_capability)
    }

    /// The facts in the two entries of a plan.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when there are none, or they cannot be understood.
    pub fn of_entries(entries: &Files) -> Result<PlanFacts> {
        let json = entries.iter().find(|(name, _)| name.ends_with(".json")).map_or(&[][..], |(_, json)| json);
        serde_json::from_slice(json)
            .map_err(|error| Error::unexpected("the plan's facts cannot be read back").because(error))
    }

    /// The two entries of a plan with these facts in place of their own.
    ///
    /// # Errors
    /// As [`PlanFacts::entries`].
    pub fn into_entries_of(self, entries: Files) -> Result<Files> {
        let plan = entries.into_iter().find(|(name, _)| name.ends_with(".plan"));
        self.entries(plan.map(|(_, plan)| plan).unwrap_or_default())
    }

    /// The two entries for a bundle.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when the facts cannot be written as JSON.
    pub fn entries(&self, plan: Vec<u8>) -> Result<Files> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::unexpected("the plan's facts cannot be written as JSON").because(error))?;
        text.push(b'\n');
        let name = self.name();
        Ok(Files::from([(format!("plans/{name}.plan"), plan), (format!("plans/{name}.json"), text)]))
    }
}

impl Bundle {
    /// What plan `name` was made from; the plan itself is not read.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when the entry is missing, broken, of a newer schema or belongs to another bundle.
    pub fn plan_facts(&self, name: &str) -> Result<PlanFacts> {
        let entry = format!("plans/{name}.json");
        let at = |error: Error| error.at(self.place(&entry)).hint("make the plan again with `edge-build finish`");
        let facts: PlanFacts = serde_json::from_slice(&self.read(&entry)?)
            .map_err(|error| at(Error::refused("the plan's facts cannot be understood").because(error)))?;
        if facts.schema > PLAN_SCHEMA {
            return Err(at(Error::refused(format!(
                "found plan schema {}, expected at most {PLAN_SCHEMA}",
                facts.schema
            ))));
        }
        if facts.bundle != self.id() {
            return Err(at(Error::refused(format!(
                "found a plan of bundle {}, expected one of {}",
                facts.bundle,
                self.id()
            ))));
        }
        Ok(facts)
    }

    /// The plan `name` after its length and hash were checked.
    ///
    /// # Errors
    /// As [`Bundle::plan_facts`]; [`crate::ErrorKind::Refused`] when the plan is not the one that was made.
    pub fn plan(&self, name: &str) -> Result<(PlanFacts, Vec<u8>)> {
        let facts = self.plan_facts(name)?;
        let entry = format!("plans/{name}.plan");
        let plan = self.read(&entry)?;
        let at = |error: Error| error.at(self.place(&entry)).hint("copy the bundle again, or make the plan again");
        if count(plan.len()) != facts.bytes {
            return Err(at(Error::refused(format!("found a plan of {} bytes, expected {}", plan.len(), facts.bytes))));
        }
        super::check::compare_hash(&sha256(&plan), &facts.sha256).map_err(at)?;
        Ok((facts, plan))
    }
}
