//! What the line does with a part: the recipe's rule over a judged answer. Never a guess.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub mod parts;
mod rule;

pub use rule::Rule;

/// What the line does with the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The part is good.
    Pass,
    /// The part is bad.
    Reject,
    /// There is no timely, trusted answer.
    NotInspected,
}

impl Decision {
    /// The text form in results and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Decision::Pass => "pass",
            Decision::Reject => "reject",
            Decision::NotInspected => "not_inspected",
        }
    }
}

/// `[decision]` in the recipe.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionRule {
    /// Classes that reject the part, by name.
    pub reject: BTreeMap<String, RejectRule>,
    /// What must be there: class name → exact count.
    pub expect: BTreeMap<String, u32>,
    /// Answers later than this after the trigger are `not_inspected`; milliseconds.
    pub deadline_ms: Option<f64>,
    /// What becomes of a suspect answer that would pass.
    pub suspect_pass: SuspectPass,
}

/// When a class rejects.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RejectRule {
    /// Least score that counts; the bundle's threshold applies as well.
    pub score: f32,
    /// Least number of boxes.
    pub count: u32,
}

impl Default for RejectRule {
    fn default() -> Self {
        RejectRule { score: 0.0, count: 1 }
    }
}

/// What becomes of a suspect answer that would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspectPass {
    /// It is not inspected (default).
    #[default]
    NotInspected,
    /// It passes; `trust` and `reasons` carry the flag.
    Flagged,
}
