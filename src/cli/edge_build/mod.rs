//! `edge-build`: flags as typed, then checked, then run.

mod finish;
mod flags;
mod inspect;
mod junit;
mod order;
mod outcome;
mod progress;
mod read_back;
mod sign;
mod sweep;
mod targets;
mod verify;
mod wrap;

pub use flags::{BuildFlags, Command, Flags};
pub use sweep::SweepFlags;

use super::{StopRequest, Terminal};
use crate::aside;
use crate::build::assemble;
use crate::build::compile::Compiler;
use crate::bundle::gate::GateResult;
use crate::error::{Error, Result};
use outcome::{Done, End};
use progress::Screen;
use std::path::Path;
use std::time::Instant;

/// Runs `edge-build` with `flags`.
///
/// # Errors
/// Whatever ends the program with another exit code than 0.
pub fn run(flags: Flags, terminal: &mut Terminal) -> Result<()> {
    match flags.command {
        Some(Command::Targets { json }) => targets::run(json, terminal),
        Some(Command::Inspect { bundle, json }) => inspect::run(&bundle, json, terminal),
        Some(Command::Verify { bundle, cpu }) => verify::run(&bundle, &cpu, terminal),
        Some(Command::Sign { bundle, key }) => sign::run(&bundle, &key, terminal),
        Some(Command::Finish { bundle, gpu, gate }) => finish::run(&bundle, &gpu, gate, terminal),
        Some(Command::AskPlan { bundle, plan, tensorrt_dir }) => {
            read_back::answer(&bundle, &plan, tensorrt_dir, terminal)
        }
        Some(Command::ReadBack { bundle, plan, tensorrt_dir }) => {
            read_back::run(&bundle, &plan, tensorrt_dir, terminal)
        }
        Some(Command::Sweep(flags)) => sweep::run(&flags, terminal),
        Some(Command::Wrap(flags)) => wrap::run(flags, terminal),
        None => build(&flags.build, terminal),
    }
}

fn build(flags: &BuildFlags, terminal: &mut Terminal) -> Result<()> {
    terminal.set_quiet(flags.quiet);
    let began = Instant::now();
    let mut gate = None;
    let (junit, result) = match flags.junit.as_deref().map(aside::check).transpose() {
        Ok(_) => (flags.junit.as_deref(), build_and_tell(flags, &mut gate, terminal)),
        Err(error) => (None, Err(error)),
    };
    let end = End { result: result.as_ref(), gate: gate.as_ref(), took: began.elapsed() };
    let reported = outcome::report(flags, junit, &end, terminal);
    // What ended the build is told before what could not be written about it.
    result.and(reported)
}

fn build_and_tell(flags: &BuildFlags, gate: &mut Option<GateResult>, terminal: &mut Terminal) -> Result<Done> {
    let stop = StopRequest::on_signals()?;
    let order = order::check(flags, terminal)?;
    let mut screen = Screen::new(terminal, stop);
    let built = assemble::assemble(&order, &mut screen);
    *gate = screen.take_gate();
    drop(screen);
    let built = built?;
    let (path, id) = (order.output.display(), short(&built.id));
    if built.rebuilt {
        terminal.say(format_args!("wrote {path} ({}, id {id})", built.bytes));
    } else {
        terminal.say(format_args!("unchanged: {path} ({}, id {id}) was made from the same inputs", built.bytes));
    }
    let bundle = shell_word(&order.output);
    terminal.say(match order.compiler {
        Compiler::Portable { .. } => {
            format!("next, on the device ({}): edge-build finish {bundle}", order.platform.title)
        }
        _ => format!("next: edge-run --engine {bundle} --camera 0"),
    });
    Ok(Done { output: order.output, rebuilt: built.rebuilt })
}

/// The first 12 digits of an id: enough to tell bundles apart by eye.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// A path as it can be pasted into a shell.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// JSON for programs, pretty enough for people.
fn json_text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|error| Error::unexpected("the JSON cannot be written").because(error))
}
