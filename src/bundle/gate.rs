//! What the accuracy gate measured, as the manifest keeps it.

use serde::{Deserialize, Serialize};

/// The gate's result: a candidate compared with the model as exported, on the same pictures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    /// What answered for the candidate: `graph` on a CPU engine, `graph in half arithmetic`, or `plan`.
    pub judged: String,
    /// Backend that ran the original, with version; the candidate as well where no plan was judged.
    pub backend: String,
    /// The plan, where it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<JudgedPlan>,
    /// Number of pictures.
    pub pictures: u64,
    /// SHA-256 over the hashes of the pictures' pixels, sorted.
    pub pictures_sha256: String,
    /// What counts as true: `labels`, or `answers of the original` where there are none.
    pub truth: String,
    /// The model as exported.
    pub original: Figures,
    /// What was judged.
    pub candidate: Figures,
    /// How far boxes and scores moved; `None` where the original's boxes were not at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift: Option<Shift>,
    /// Every limit with its verdict.
    pub checks: Vec<Check>,
}

impl GateResult {
    /// Whether every limit holds.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// A plan that answered for the candidate, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgedPlan {
    /// Its name in the bundle, as in `trt8-8.6.1-cc9.0`.
    pub name: String,
    /// What ran it, with version, as in `TensorRT 8 8.6.1`.
    pub tensorrt: String,
    /// Name of the GPU.
    pub gpu: String,
    /// What the graph that it was made from reached on the CPU, on the same pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Figures>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What is limited, as in `recall` or `false boxes of short`.
    pub name: String,
    /// Change from the original to the candidate that was found; worse is positive.
    pub worse_by: f64,
    /// Largest change allowed.
    pub allowed: f64,
    /// Whether it holds.
    pub passed: bool,
}

/// Accuracy over all classes and for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Mean average precision at an overlap of 0.5; `None` without labels.
    pub map50: Option<f64>,
    /// Mean average precision over overlaps from 0.5 to 0.95; `None` without labels.
    pub map50_95: Option<f64>,
    /// Counts at the operating point, all classes together.
    pub operating: Operating,
    /// The same for each class, index = class id.
    pub classes: Vec<ClassFigures>,
}

/// Counts at the operating point: the recipe's score thresholds, overlap 0.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operating {
    /// True boxes.
    pub labels: u64,
    /// True boxes that were found.
    pub found: u64,
    /// Boxes that match no true one.
    pub false_boxes: u64,
}

impl Operating {
    /// Share of the true boxes that were found, 0..1; 1 without any.
    pub fn recall(&self) -> f64 {
        if self.labels == 0 { 1.0 } else { crate::units::float64(self.found) / crate::units::float64(self.labels) }
    }
}

/// Accuracy of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassFigures {
    /// Class name.
    pub class: String,
    /// Average precision at an overlap of 0.5; `None` without labels of this class.
    pub ap50: Option<f64>,
    /// Average precision over overlaps from 0.5 to 0.95; `None` without labels of this class.
    pub ap50_95: Option<f64>,
    /// Counts at the operating point.
    pub operating: Operating,
    /// The score threshold with the best balance of misses and false boxes (highest F1); `None` without labels.
    pub best_score: Option<f32>,
}

/// How far the candidate's boxes lie from the original's, at the operating point.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shift {
    /// Boxes that both found.
    pub matched: u64,
    /// Boxes of the original that the candidate lacks.
    pub lost: u64,
    /// Boxes of the candidate that the original lacks.
    pub new: u64,
    /// Median over matched boxes of the largest corner difference, px of the source picture.
    pub box_median_px: f64,
    /// 99th percentile of it.
    pub box_p99_px: f64,
    /// Median difference of scores, candidate less original.
    pub score_median: f64,
    /// 1st percentile of it.
    pub score_p1: f64,
    /// 99th percentile of it.
    pub score_p99: f64,
}
