//! What to run, checked, and what a run did.

use super::depot::Delivery;
use super::outlet::OutputOptions;
use super::service::{Incident, ServiceOptions};
use crate::bundle::signature::PublicKey;
use crate::camera::{SourceKind, SourceSpec};
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::GpuOptions;
use crate::guard::Trust;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One stream to run.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Unique name.
    pub name: String,
    /// The bundle that answers it; `None`: the run's.
    pub engine: Option<PathBuf>,
    /// Where pictures come from.
    pub spec: SourceSpec,
    /// How frames reach the engine; `None`: newest for live sources, every for files.
    pub delivery: Option<Delivery>,
    /// Whether the start waits for the source or fails at once.
    pub wait: bool,
    /// Whether only frames triggered from outside are parts; otherwise every frame gets a decision.
    pub triggered: bool,
}

impl StreamOptions {
    /// How its frames reach the engine, also when nobody says.
    pub(super) fn delivery(&self) -> Delivery {
        self.delivery.unwrap_or(match self.spec.kind() {
            SourceKind::Live => Delivery::Newest,
            SourceKind::Files => Delivery::Every,
        })
    }
}

/// What to run, checked.
#[derive(Debug, Clone)]
pub struct Options {
    /// The bundle.
    pub bundle: PathBuf,
    /// The streams; at least one, with unique names.
    pub streams: Vec<StreamOptions>,
    /// The key that every bundle must be signed with.
    pub trust: Option<PublicKey>,
    /// The CPU engine.
    pub cpu: CpuOptions,
    /// The GPU engine.
    pub gpu: GpuOptions,
    /// Boxes are reported from this score on; what is judged does not change.
    pub conf: Option<f32>,
    /// Overlap above which boxes of one class are one object, for the report.
    pub iou: Option<f32>,
    /// Where results go.
    pub output: OutputOptions,
    /// How the run looks after itself.
    pub service: ServiceOptions,
    /// Stop after this many results.
    pub frames: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Results by trust.
    pub results: BTreeMap<Trust, u64>,
    /// Pictures that could not be read.
    pub unreadable: u64,
    /// Why the run ended.
    pub interrupted: bool,
    /// Faults of the engine that were repaired.
    pub incidents: Vec<Incident>,
}
