//! `edge-build finish`.

use super::flags::GpuFlags;
use super::progress::Screen;
use crate::build::finish::finish;
use crate::cli::{StopRequest, Terminal};
use crate::error::Result;
use std::path::Path;

/// Adds a plan for this machine to a portable bundle.
pub(super) fn run(path: &Path, gpu: &GpuFlags, terminal: &mut Terminal) -> Result<()> {
    let stop = StopRequest::on_signals()?;
    let name = finish(path, &gpu.wishes(), &mut Screen::new(terminal, stop))?;
    terminal.say(format_args!("added plan `{name}` to {}; edge-run proves it when it starts", path.display()));
    Ok(())
}
