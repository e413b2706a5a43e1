//! `edge-run unproven` and `edge-run rollback`: what the state folder of a running line holds, and a request to it.

use crate::cli::Terminal;
use crate::error::{Error, Result};
use crate::run::ROLLBACK_REQUEST;
use crate::run::ledger::{self, Unproven};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The state folder of a line.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// The folder that edge-run was given with `--state`
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum UnprovenCommand {
    /// One line for each self-test that failed
    List(StateArgs),
    /// Every result that stood on it, as JSON lines
    Export(StateArgs),
}

impl StateArgs {
    pub(super) fn folder(self) -> Result<PathBuf> {
        let of_systemd = || std::env::split_paths(&std::env::var_os("STATE_DIRECTORY")?).next();
        self.state.or_else(of_systemd).ok_or_else(|| {
            Error::usage("found no state folder").hint("name the folder that edge-run was given: `--state DIR`")
        })
    }
}

/// Prints results without a good proof.
///
/// # Errors
/// When the folder cannot be read or the terminal cannot be written.
pub(super) fn unproven(command: UnprovenCommand, terminal: &mut Terminal) -> Result<()> {
    let (args, whole) = match command {
        UnprovenCommand::List(args) => (args, false),
        UnprovenCommand::Export(args) => (args, true),
    };
    let (incidents, broken) = ledger::read(&args.folder()?)?;
    if broken > 0 {
        terminal.warn(format!("{broken} lines of {} are not whole and were passed over", ledger::FILE));
    }
    for incident in &incidents {
        if whole {
            export(incident, terminal)?;
        } else {
            terminal.data(format!("{}\n", line(incident)))?;
        }
    }
    if incidents.is_empty() {
        terminal.say("no self-test has failed and every run ended in order: every result is proved");
    }
    Ok(())
}

fn line(incident: &Unproven) -> String {
    let Unproven { failed_at, bundle, why, .. } = incident;
    if incident.uncounted {
        return format!("{failed_at}  results of {bundle} whose `proved_at` was the last one before: {why}");
    }
    let results = incident.older + crate::units::count(incident.results.len());
    let since = incident.proved_at.as_deref().unwrap_or("the start");
    format!("{failed_at}  {results} results since {since} of {bundle}: {why}")
}

fn export(incident: &Unproven, terminal: &mut Terminal) -> Result<()> {
    for result in &incident.results {
        let row = serde_json::json!({
            "stream": result.stream,
            "frame": result.frame,
            "part": result.part,
            "decision": result.decision,
            "failed_at": incident.failed_at,
            "proved_at": incident.proved_at,
            "why": incident.why,
            "sha256": incident.sha256,
        });
        terminal.data(format!("{row}\n"))?;
    }
    for (stream, older) in &incident.older_by_stream {
        let number = |frame: Option<u64>| frame.map_or_else(|| "?".to_owned(), |frame| frame.to_string());
        terminal.warn(format!(
            "{} results of stream {stream} before {} are not listed one by one: frames {} to {}",
            older.results,
            incident.failed_at,
            number(older.first_frame),
            number(older.last_frame)
        ));
    }
    if incident.uncounted {
        terminal.warn(line(incident));
    }
    Ok(())
}

/// Asks the running line for the bundle before.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when the request cannot be written.
pub(super) fn rollback(args: StateArgs, terminal: &mut Terminal) -> Result<()> {
    let folder = args.folder()?;
    if !folder.is_dir() {
        return Err(
            Error::usage("found no such folder, expected the state folder of a running line").at(folder.display())
        );
    }
    let request = folder.join(ROLLBACK_REQUEST);
    std::fs::write(&request, "").map_err(|error| crate::aside::cannot_write(&request, error))?;
    terminal.say("asked: the line goes back to the last bundle that worked within a few seconds; its log says when");
    terminal.say("put that bundle in place of the file too, or a restart takes the other one again");
    Ok(())
}
