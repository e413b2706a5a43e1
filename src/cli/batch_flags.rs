//! Flags of batching: how frames of several streams reach one engine.

use crate::config::run::BatchConfig;
use crate::error::{Error, Result};
use clap::Args;
use std::time::Duration;

/// Batches.
#[derive(Debug, Args)]
pub(super) struct BatchFlags {
    /// How long a frame waits for others to share a run of the engine with [default: half of what a run takes, at most 10ms
    /// and a tenth of the decision's deadline]
    #[arg(long, value_name = "TIME", value_parser = super::edge_run::parse_duration)]
    batch_wait: Option<Duration>,
}

/// Longer waits are surely a slip of the unit.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl BatchFlags {
    /// What was typed, else what the file says.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a wait of more than one second or none that is a time.
    pub(super) fn wait(&self, config: &BatchConfig) -> Result<Option<Duration>> {
        let (wait, place) = match (self.batch_wait, config.wait_ms) {
            (Some(wait), _) => (Some(wait), "--batch-wait"),
            (None, Some(wait_ms)) => {
                let wait = Duration::try_from_secs_f64(wait_ms / 1e3).map_err(|_| {
                    Error::usage(format!("found wait_ms = {wait_ms}, expected 0 to 1000")).at("[batch]")
                })?;
                (Some(wait), "[batch] wait_ms")
            }
            (None, None) => (None, ""),
        };
        match wait {
            Some(wait) if wait > LONGEST_WAIT => {
                Err(Error::usage(format!("found a wait of {:.1} s, expected at most 1 s", wait.as_secs_f64()))
                    .at(place)
                    .hint("leave it out: the wait then follows the engine's own time"))
            }
            wait => Ok(wait),
        }
    }
}
