//! `edge-build`: flags as typed, then checked, then run.

mod finish;
mod flags;
mod inspect;
mod order;
mod progress;
mod sign;
mod targets;
mod verify;
mod wrap;

pub use flags::{BuildFlags, Command, Flags};

use super::{StopRequest, Terminal};
use crate::build::assemble;
use crate::build::compile::Compiler;
use crate::bundle::Bundle;
use crate::bundle::gate::GateResult;
use crate::bundle::manifest::Precision;
use crate::error::{Error, Result};
use progress::Screen;
use serde::Serialize;
use std::path::Path;

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
        Some(Command::Finish { bundle, gpu }) => finish::run(&bundle, &gpu, terminal),
        Some(Command::Wrap(flags)) => wrap::run(flags, terminal),
        None => build(&flags.build, terminal),
    }
}

fn build(flags: &BuildFlags, terminal: &mut Terminal) -> Result<()> {
    terminal.set_quiet(flags.quiet);
    let stop = StopRequest::on_signals()?;
    let order = order::check(flags, terminal)?;
    let built = assemble::assemble(&order, &mut Screen::new(terminal, stop))?;
    terminal.say(format_args!("wrote {} ({}, id {})", order.output.display(), built.bytes, short(&built.id)));
    let bundle = shell_word(&order.output);
    terminal.say(match order.compiler {
        Compiler::Portable { .. } => format!("next, on a {}: edge-build finish {bundle}", order.platform.title),
        _ => format!("next: edge-run --engine {bundle} --camera 0"),
    });
    if flags.json { outcome(&order.output, terminal) } else { Ok(()) }
}

/// What `--json` prints at the end.
#[derive(Serialize)]
struct Outcome<'a> {
    bundle: String,
    id: &'a str,
    cache_key: &'a str,
    bytes: u64,
    precision: &'a Precision,
    gate: Option<&'a GateResult>,
}

fn outcome(path: &Path, terminal: &mut Terminal) -> Result<()> {
    let bundle = Bundle::open(path)?;
    let manifest = bundle.manifest();
    let bytes = bundle.file().metadata().map_or(0, |about| about.len());
    let outcome = Outcome {
        bundle: path.display().to_string(),
        id: bundle.id(),
        cache_key: &manifest.cache_key,
        bytes,
        precision: &manifest.precision,
        gate: manifest.gate.as_ref(),
    };
    let line = serde_json::to_string(&outcome);
    terminal.data(line.map_err(|error| Error::unexpected("the JSON cannot be written").because(error))?)
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
