//! A fresh plan read back in a process of its own: nothing of the build lies in the device's memory then, so the figures are those of
//! edge-run, and a library that crashes on the plan takes the build's program not with it.

use super::progress::Screen;
use crate::build::compile::{ReadBack, dotted, read_back};
use crate::build::{PlanAnswers, PlanToAsk, ask_plan};
use crate::cli::{StopRequest, Terminal};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{Context, DeviceFacts, Driver, Wait, devices};
use crate::ffi::tensorrt::probe::Search;
use crate::units::Bytes;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    let mine = on_the_device(plan);
    let found: ReadBack = child("read-back", PlanToAsk { bundle, name: plan, search }, "")?;
    Ok(match mine {
        Some((_context, others)) => ReadBack { memory: found.memory.without(others), ..found },
        None => found,
    })
}

/// The child's side of the accuracy gate: runs the plan over the pictures that standard input names.
pub(super) fn answer(bundle: &Path, plan: &str, folder: Option<PathBuf>, terminal: &mut Terminal) -> Result<()> {
    let stop = StopRequest::on_signals()?;
    let pictures: Vec<PathBuf> = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| Error::usage("found no list of pictures on standard input").because(error))?;
    let plan = PlanToAsk { bundle, name: plan, search: &Search::new(folder) };
    let found = ask_plan(plan, &pictures, &mut Screen::new(terminal, stop))?;
    let text = serde_json::to_string(&found)
        .map_err(|error| Error::unexpected("the plan's answers cannot be written as JSON").because(error))?;
    terminal.data(text)
}

/// The parent's side of it.
pub(super) fn ask_in_its_own_process(plan: PlanToAsk<'_>, pictures: &[PathBuf]) -> Result<PlanAnswers> {
    let list = serde_json::to_string(pictures)
        .map_err(|error| Error::unexpected("the list of pictures cannot be written as JSON").because(error))?;
    child("ask-plan", plan, &list)
}

/// Runs a subcommand of this program on a plan, with `input` on its standard input, and understands what it says.
fn child<T: DeserializeOwned>(subcommand: &str, plan: PlanToAsk<'_>, input: &str) -> Result<T> {
    let failed = |error: std::io::Error| Error::unexpected("the plan cannot be looked at").because(error);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg(subcommand).arg(plan.bundle).arg(plan.name);
    if let Some(folder) = &plan.search.directory {
        command.arg("--tensorrt-dir").arg(folder);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A child that ended before it read says why itself.
        let _ended = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
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
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::unexpected("what was said of the plan cannot be understood").because(error))
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
        Some(5) => ErrorKind::Accuracy,
        Some(6) => ErrorKind::Source,
        Some(7) => ErrorKind::Device,
        Some(10) => ErrorKind::MachineLacks,
        Some(130) => ErrorKind::Interrupted,
        _ => ErrorKind::Refused,
    }
}
