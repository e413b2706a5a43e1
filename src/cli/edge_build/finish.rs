//! `edge-build finish`.

use super::flags::{DeviceGateFlags, GpuFlags};
use super::progress::Screen;
use crate::build::finish::finish;
use crate::build::{AskBy, DeviceGate};
use crate::cli::{StopRequest, Terminal};
use crate::error::Result;
use std::path::Path;

/// Adds a plan for this machine to a portable bundle.
pub(super) fn run(path: &Path, gpu: &GpuFlags, gate: DeviceGateFlags, terminal: &mut Terminal) -> Result<()> {
    let stop = StopRequest::on_signals()?;
    let ask_by: Option<AskBy> = Some(super::read_back::ask_in_its_own_process);
    let gate = gate.gate.zip(gate.labels).map(|(pictures, labels)| DeviceGate { pictures, labels, ask_by });
    let name = finish(path, &gpu.wishes(), gate.as_ref(), &mut Screen::new(terminal, stop))?;
    terminal.say(format_args!("added plan `{name}` to {}; edge-run proves it when it starts", path.display()));
    Ok(())
}
