//! What a build tells programs at its end: one JSON line, a JUnit file.

use super::flags::BuildFlags;
use super::junit;
use crate::bundle::gate::GateResult;
use crate::bundle::manifest::Precision;
use crate::bundle::{Bundle, MODEL};
use crate::cli::Terminal;
use crate::error::{Error, Result};
use crate::units::Bytes;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A build that went well.
pub(super) struct Done {
    /// The bundle.
    pub(super) output: PathBuf,
    /// Whether it was built now.
    pub(super) rebuilt: bool,
}

/// How a build ended.
pub(super) struct End<'a> {
    /// The bundle, or what ended the build.
    pub(super) result: Result<&'a Done, &'a Error>,
    /// What the accuracy gate measured, if it came to that.
    pub(super) gate: Option<&'a GateResult>,
    /// How long it took.
    pub(super) took: Duration,
}

/// Sizes of the bundle's parts, bytes.
#[derive(Default, Serialize)]
struct Sizes {
    bundle: u64,
    model: u64,
    plans: u64,
    known_answers: u64,
}

/// What `--json` prints at the end.
#[derive(Default, Serialize)]
struct Outcome<'a> {
    /// The bundle; `null` when none was written.
    bundle: Option<String>,
    id: Option<String>,
    cache_key: Option<String>,
    rebuilt: bool,
    bytes: Option<Bytes>,
    sizes: Option<Sizes>,
    precision: Option<Precision>,
    gate_passed: Option<bool>,
    gate: Option<&'a GateResult>,
    error: Option<Failure<'a>>,
}

#[derive(Serialize)]
struct Failure<'a> {
    exit_code: u8,
    message: String,
    place: Option<&'a str>,
    hint: Option<&'a str>,
}

/// Writes what the flags ask for, the JUnit file to `junit`.
///
/// # Errors
/// [`crate::ErrorKind::Output`]; those of opening the bundle that was written.
pub(super) fn report(flags: &BuildFlags, junit: Option<&Path>, end: &End<'_>, terminal: &mut Terminal) -> Result<()> {
    let written = junit.map(|file| junit::write(file, &suite_name(flags, end), end)).transpose();
    if flags.json {
        let line = serde_json::to_string(&outcome(end)?);
        terminal.data(line.map_err(|error| Error::unexpected("the JSON cannot be written").because(error))?)?;
    }
    if let (Err(_), Err(error)) = (&end.result, &written) {
        terminal.warn(format_args!("the JUnit file was not written: {}", error.message()));
    }
    written.map(|_| ())
}

/// Name of the recipe or model.
fn suite_name(flags: &BuildFlags, end: &End<'_>) -> String {
    let named = end.result.ok().map(|done| &done.output).or(flags.input.as_ref());
    let stem = named.and_then(|path| path.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
    flags.name.clone().or(stem).unwrap_or_else(|| "edge-build".to_owned())
}

fn outcome<'a>(end: &End<'a>) -> Result<Outcome<'a>> {
    let mut outcome = Outcome { gate_passed: end.gate.map(GateResult::passed), gate: end.gate, ..Outcome::default() };
    match end.result {
        Err(error) => {
            outcome.error = Some(Failure {
                exit_code: error.kind().exit_code(),
                message: error.message().to_owned(),
                place: error.place(),
                hint: error.hint_text(),
            });
        }
        Ok(done) => {
            let bundle = Bundle::open(&done.output)?;
            let bytes = bundle.file().metadata().map_or(0, |about| about.len());
            outcome.bundle = Some(done.output.display().to_string());
            outcome.id = Some(bundle.id().to_owned());
            outcome.rebuilt = done.rebuilt;
            outcome.bytes = Some(Bytes(bytes));
            outcome.sizes = Some(sizes(&bundle, bytes));
            let manifest = bundle.manifest();
            outcome.cache_key = Some(manifest.cache_key.clone());
            outcome.precision = Some(manifest.precision.clone());
        }
    }
    Ok(outcome)
}

fn sizes(bundle: &Bundle, whole: u64) -> Sizes {
    let mut sizes = Sizes { bundle: whole, ..Sizes::default() };
    for name in bundle.entry_names() {
        let bytes = bundle.entry_range(name).map_or(0, |range| range.length_bytes);
        let part = match name {
            MODEL => &mut sizes.model,
            name if name.starts_with("plans/") => &mut sizes.plans,
            name if name.starts_with("golden") => &mut sizes.known_answers,
            _ => continue,
        };
        *part += bytes;
    }
    sizes
}
