//! A fresh plan read back in a process of its own: nothing of the build lies in the device's memory then, so the figures are those of
//! edge-run, and a library that crashes on the plan takes the build's program not with it.

use crate::build::compile::{ReadBack, dotted, read_back};
use crate::cli::Terminal;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{Context, DeviceFacts, Driver, Wait, devices};
use crate::ffi::tensorrt::probe::Search;
use crate::units::Bytes;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The child's side.
pub(super) fn run(bundle: &Path, plan: &str, folder: Option<PathBuf>, terminal: &mut Terminal) -> Result<()> {
    let found = read_back(bundle, plan, &Search::new(folder))?;
    let text = serde_json::to_string(&found)
        .map_err(|error| Error::unexpected("what was read back cannot be written as JSON").because(error))?;
    terminal.data(text)
}

/// The parent's side.
pub(super) fn in_its_own_process(bundle: &Path, plan: &str, search: &Search) -> Result<ReadBack> {
    let failed = |error: std::io::Error| Error::unexpected("the plan cannot be read back").because(error);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("read-back").arg(bundle).arg(plan);
    if let Some(folder) = &search.directory {
        command.arg("--tensorrt-dir").arg(folder);
    }
    let mine = on_the_device(plan);
    let output = command.output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let message = said.lines().find_map(|line| line.split_once("error: ")).map_or(said.trim(), |(_, text)| text);
        let message =
            if message.is_empty() { format!("the process ended with {}", output.status) } else { message.to_owned() };
        return Err(Error::new(
            kind_of(output.status.code()),
            format!("the plan was made but cannot be used here: {message}"),
        ));
    }
    let found: ReadBack = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::unexpected("what was read back cannot be understood").because(error))?;
    Ok(match mine {
        Some((_context, others)) => ReadBack { memory: found.memory.without(others), ..found },
        None => found,
    })
}

/// What this process, which has built the plan, and others hold on the device of `plan`: none of it is the plan's. The context keeps it
/// there until the child has measured.
fn on_the_device(plan: &str) -> Option<(Arc<Context>, Bytes)> {
    let (_, capability) = plan.rsplit_once("-cc")?;
    let driver = Driver::load().ok()?;
    let fits = |device: &DeviceFacts| dotted(device.compute_capability) == capability;
    let ordinal = devices(driver).ok()?.iter().find(|device| fits(device))?.ordinal;
    let context = Context::new(driver, ordinal, Wait::Block).ok()?;
    let memory = context.memory().ok()?;
    Some((context, Bytes(memory.total.0.saturating_sub(memory.free.0))))
}

/// A crash, too, is the plan's fault.
fn kind_of(code: Option<i32>) -> ErrorKind {
    match code {
        Some(1) => ErrorKind::Unexpected,
        Some(4) => ErrorKind::Budget,
        Some(7) => ErrorKind::Device,
        Some(10) => ErrorKind::MachineLacks,
        Some(130) => ErrorKind::Interrupted,
        _ => ErrorKind::Refused,
    }
}
