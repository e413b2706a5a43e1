//! How a run looks after itself, and what it does when nobody says.

use super::reload::ReloadOptions;
use super::standby::StandbyLimits;
use crate::guard::GuardMode;
use crate::guard::ladder::LadderLimits;
use crate::guard::memory::MemoryLimits;
use crate::guard::schedule::ProofLimits;
use crate::run::incident::IncidentOptions;
use crate::run::product::ProductOptions;
use crate::units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// How a run looks after itself.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// Folder for what outlives the process: unproven results, the last good bundle. `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// What soft checks may do.
    pub guard: GuardMode,
    /// How often known answers are asked for.
    pub proofs: ProofLimits,
    /// Every how many frames one is run twice; 0: never.
    pub echo_every: u64,
    /// How long a call of the engine may take; `None`: ten times the slowest at the start, at least 2 s.
    pub call_limit: Option<Duration>,
    /// How long a capture waits for others to make a batch with; `None`: half of what the engine takes, at most 10 ms and at
    /// most a tenth of the decision's deadline.
    pub batch_wait: Option<Duration>,
    /// How long a call beyond its limit is waited for before the process has to end.
    pub patience: Duration,
    /// A camera thread that has not moved for longer than this is stuck in a read.
    pub camera_stuck_after: Duration,
    /// The recovery ladder.
    pub ladder: LadderLimits,
    /// The memory watch.
    pub memory: MemoryLimits,
    /// What all engines on the CPU may take together; `None`: the bundle's budget, else four fifths of what the machine has
    /// left.
    pub cpu_budget: Option<Bytes>,
    /// How bundles are replaced while the line runs.
    pub reload: ReloadOptions,
    /// Ordinals of the GPUs in the order in which they are used: the first serves, the others stand by. Empty: the one GPU
    /// of the engine's options.
    pub devices: Vec<u32>,
    /// How engines that stand by are looked after.
    pub standby: StandbyLimits,
    /// The deep log.
    pub incidents: IncidentOptions,
    /// What the line can be changed over to.
    pub products: ProductOptions,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            state: None,
            guard: GuardMode::default(),
            proofs: ProofLimits::default(),
            echo_every: 500,
            call_limit: None,
            batch_wait: None,
            patience: Duration::from_secs(20),
            camera_stuck_after: Duration::from_secs(20),
            ladder: LadderLimits::default(),
            memory: MemoryLimits::default(),
            cpu_budget: None,
            reload: ReloadOptions::default(),
            devices: Vec::new(),
            standby: StandbyLimits::default(),
            incidents: IncidentOptions::default(),
            products: ProductOptions::default(),
        }
    }
}
