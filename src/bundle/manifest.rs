//! The manifest: what a bundle is, field by field. Its SHA-256 is the bundle's id.

use super::gate::GateResult;
use crate::decision::DecisionRule;
use crate::detections::Thresholds;
use crate::engine::{InputSpec, Layout};
use crate::guard::GuardSpec;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this schema; a reader refuses a newer one and names both.
pub const SCHEMA: u32 = 1;

/// `manifest.json`. Holds no times and no paths of the building machine, so equal inputs give equal bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the bundle, as in `line1`.
    pub name: String,
    /// Version of edge-build that wrote it.
    pub edge_build: String,
    /// Where the model came from.
    pub source: Source,
    /// Input of the network as it runs.
    pub input: InputSpec,
    /// Layout of the outputs.
    pub layout: Layout,
    /// Class names, index = class id.
    pub classes: Vec<String>,
    /// Metadata of the export that was understood, key → text.
    pub metadata: BTreeMap<String, String>,
    /// What was pinned or decided for the user, one sentence each.
    pub decided: Vec<String>,
    /// The target the bundle was built for.
    pub target: Target,
    /// Precision asked for and found.
    pub precision: Precision,
    /// Thresholds that the guard, the reference, decision and proofs always use.
    pub thresholds: Thresholds,
    /// What the guard compares with.
    pub guard: GuardSpec,
    /// The recipe's rule; `None` leaves `decision` null.
    pub decision: Option<DecisionRule>,
    /// How this bundle may take over from a running one; `None`: as edge-run is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<ReloadRules>,
    /// The known answers.
    pub golden: Golden,
    /// What the accuracy gate measured; `None` when no precision was asked for or no pictures were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateResult>,
    /// Hash over everything that makes this bundle what it is (see [`crate::bundle`]).
    pub cache_key: String,
    /// What went into `cache_key`, field → value, so that two keys can be told apart.
    pub cache_key_fields: BTreeMap<String, String>,
    /// Every file in the bundle but plans, the manifest and its signature.
    pub files: BTreeMap<String, FileEntry>,
}

/// What a bundle must show beside the running one before it takes over (`[reload]` in the recipe).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadRules {
    /// Frames that both engines answer; 0: the self-test alone decides.
    #[serde(default = "ReloadRules::usual_frames")]
    pub shadow_frames: u64,
    /// Least mean agreement of the boxes on them, 0..1.
    #[serde(default = "ReloadRules::usual_agreement")]
    pub agreement: f64,
}

impl ReloadRules {
    const fn usual_frames() -> u64 {
        30
    }

    const fn usual_agreement() -> f64 {
        0.8
    }

    /// Refuses values that mean nothing.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an agreement out of 0..1, or more frames than a day holds.
    pub fn check(&self) -> crate::error::Result<()> {
        if !(0.0..=1.0).contains(&self.agreement) {
            return Err(crate::error::Error::usage(format!("found {}, expected 0 to 1", self.agreement))
                .at("[reload] agreement"));
        }
        if self.shadow_frames > 1_000_000 {
            let message = format!("found {}, expected at most 1000000", self.shadow_frames);
            return Err(crate::error::Error::usage(message).at("[reload] shadow_frames"));
        }
        Ok(())
    }
}

impl Default for ReloadRules {
    fn default() -> Self {
        ReloadRules { shadow_frames: Self::usual_frames(), agreement: Self::usual_agreement() }
    }
}

/// The exported model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// File name without folder.
    pub file_name: String,
    /// SHA-256 over the file and its side files, lower-case hex.
    pub sha256: String,
    /// Names of the side files with external weights.
    pub side_files: Vec<String>,
    /// Who wrote it, from the model's `producer_name` and `producer_version`.
    pub producer: String,
    /// ONNX opset of the default domain; [`Source::NO_MODEL`] for a wrapped plan.
    pub opset: i64,
}

impl Source {
    /// In place of an opset: the bundle was made from a plan and holds no model.
    pub const NO_MODEL: i64 = 0;
}

/// What the bundle was built for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Platform name, as in `cpu` or `t4`.
    pub platform: String,
    /// TensorRT family, or `cpu`.
    pub flavour: String,
    /// Compute capability as in `7.5`; `None` for the CPU.
    pub compute_capability: Option<String>,
    /// GPU memory that may be used; `None` for the CPU.
    pub budget: Option<Bytes>,
}

/// Precision asked for and found in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// `as exported`, `fp16` or `int8`.
    pub asked: String,
    /// Number of convolutions, matrix products and Gemm by the precision they run in.
    pub found: BTreeMap<String, u64>,
}

/// The known answers of a bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// Where the pictures came from.
    pub kind: GoldenKind,
    /// Entry names of the pictures, in order; the answers are in `golden.json`.
    pub frames: Vec<String>,
    /// Backend that gave the answers, with version.
    pub answered_by: String,
    /// Largest corner difference allowed, px of the source picture.
    pub tolerance_px: f32,
    /// Largest score difference allowed.
    pub tolerance_score: f32,
    /// Share of a frame's boxes that may differ by more, 0..1; 0 where backends compute alike (FP32).
    #[serde(default)]
    pub tolerated_share: f32,
    /// Answers are compared down to this score.
    pub score_floor: f32,
}

/// Where golden pictures came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoldenKind {
    /// `--golden DIR`.
    Given,
    /// Chosen among the calibration pictures.
    Calibration,
    /// No picture was given: drawn by edge-build, compared on raw candidates.
    Synthetic,
}

/// A file in the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// SHA-256, lower-case hex.
    pub sha256: String,
    /// Length in bytes.
    pub bytes: u64,
}
