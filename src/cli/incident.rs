//! `edge-run incident`: what was recorded around a fault.

use crate::cli::Terminal;
use crate::cli::service::StateArgs;
use crate::error::{Error, Result};
use crate::run::incident::export::export;
use crate::run::incident::recording::Recording;
use crate::run::incident::replay::short;
use crate::run::incident::report::{FrameLine, Report};
use crate::run::incident::{Listed, is_id, list, list_in};
use crate::units::Bytes;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Where incidents lie.
#[derive(Debug, Args)]
pub(super) struct PlaceArgs {
    #[command(flatten)]
    state: StateArgs,
    /// The folder of incidents itself, where edge-run was given one with `--incident-folder`
    #[arg(long, value_name = "DIR", conflicts_with = "state")]
    incident_folder: Option<PathBuf>,
}

impl PlaceArgs {
    fn list(self) -> Result<(Vec<Listed>, Vec<String>)> {
        match self.incident_folder {
            Some(folder) if !folder.is_dir() => {
                Err(Error::usage("found no such folder, expected one of incidents").at(folder.display()))
            }
            Some(folder) => Ok(list_in(&folder)),
            None => list(&self.state.folder()?),
        }
    }

    /// A name below the folder of incidents, or a path as it is.
    fn of(self, incident: &str) -> Result<PathBuf> {
        if !is_id(incident) || Path::new(incident).exists() {
            return Ok(PathBuf::from(incident));
        }
        match self.incident_folder {
            Some(folder) => Ok(folder.join(incident)),
            None => Ok(self.state.folder()?.join(crate::run::incident::FOLDER).join(incident)),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum IncidentCommand {
    /// One line for each incident, oldest first
    List {
        #[command(flatten)]
        place: PlaceArgs,
        /// The reports as JSON
        #[arg(long)]
        json: bool,
    },
    /// What happened in one incident, frame by frame
    Show {
        /// Its name, its folder or its zip
        incident: String,
        #[command(flatten)]
        place: PlaceArgs,
        /// Report and frames as JSON
        #[arg(long)]
        json: bool,
    },
    /// One zip with everything that is needed to run it again elsewhere
    Export {
        /// Its name or its folder
        incident: String,
        #[command(flatten)]
        place: PlaceArgs,
        /// The zip to write
        #[arg(long, short, value_name = "FILE", default_value = "incident.zip")]
        output: PathBuf,
        /// Put the bundle that answered into it too
        #[arg(long)]
        with_bundle: bool,
        /// Where that bundle lies now [default: where it lay then]; implies `--with-bundle`
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
    },
}

/// Runs `edge-run incident`.
///
/// # Errors
/// When the state folder, the incident or the output fails.
pub(super) fn incident(command: IncidentCommand, terminal: &mut Terminal) -> Result<()> {
    match command {
        IncidentCommand::List { place, json } => list_all(place, json, terminal),
        IncidentCommand::Show { incident, place, json } => {
            let recording = Recording::open(&place.of(&incident)?)?;
            if json { terminal.data(as_json(&recording)?) } else { show(&recording, terminal) }
        }
        IncidentCommand::Export { incident, place, output, with_bundle, bundle } => {
            let recording = Recording::open(&place.of(&incident)?)?;
            let then = || PathBuf::from(&recording.report().engine.path);
            let bundle = bundle.or_else(|| with_bundle.then(then));
            if let Some(missing) = bundle.as_deref().filter(|bundle| !bundle.exists()) {
                return Err(Error::refused("found no bundle there, expected the one that answered in this incident")
                    .at(missing.display())
                    .hint("name the file that holds it now: `--bundle FILE`"));
            }
            export(&recording, &output, bundle.as_deref())?;
            let bytes = std::fs::metadata(&output).map_or(0, |about| about.len());
            terminal.say(format!("{} in {}, {}", recording.report().id, output.display(), Bytes(bytes)));
            Ok(())
        }
    }
}

fn list_all(place: PlaceArgs, json: bool, terminal: &mut Terminal) -> Result<()> {
    let (incidents, broken) = place.list()?;
    for name in &broken {
        terminal.warn(format!("incident {name} cannot be read and was passed over"));
    }
    if json {
        let line = |listed: &Listed| serde_json::json!({ "bytes": listed.bytes, "folder": listed.folder, "report": listed.report });
        let lines: Vec<_> = incidents.iter().map(line).collect();
        return terminal.data(to_json(&lines)?);
    }
    if incidents.is_empty() {
        terminal.say("no incident is recorded");
        return Ok(());
    }
    let mut rows =
        vec![["seen at", "stream", "reason", "frames", "size", "recovered after", "name"].map(str::to_owned)];
    rows.extend(incidents.iter().map(|listed| {
        let report = &listed.report;
        [
            report.seen_at.clone(),
            report.streams.join(","),
            report.reason.clone(),
            report.frames.to_string(),
            Bytes(listed.bytes).to_string(),
            how_it_ended(report),
            report.id.clone(),
        ]
    }));
    terminal.data(table(&rows))
}

/// Columns as wide as their longest cell.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn how_it_ended(report: &Report) -> String {
    let step = report.steps.last().map_or_else(String::new, |step| format!(" by {step}"));
    match (report.recovered_after_ms, &report.ended) {
        (Some(after_ms), _) => format!("{:.2} s{step}", after_ms / 1e3),
        (None, Some(ended)) => ended.split(':').next().unwrap_or_default().to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn show(recording: &Recording, terminal: &mut Terminal) -> Result<()> {
    let report = recording.report();
    let engine = &report.engine;
    let mut text = vec![
        format!("{}: {}", report.id, report.what),
        format!("seen at     {}", report.seen_at),
        format!("streams     {}", report.streams.join(", ")),
        format!(
            "engine      {} {}, {}, device {}",
            engine.bundle,
            short(&engine.sha256),
            engine.backend,
            engine.device
        ),
        format!("steps       {}", if report.steps.is_empty() { "-".to_owned() } else { report.steps.join(", ") }),
        format!("recovered   {}", report.ended.clone().unwrap_or_else(|| how_it_ended(report))),
    ];
    let left_out = if report.left_out > 0 { format!(", {} left out", report.left_out) } else { String::new() };
    let cut = if report.complete { "" } else { ", cut short" };
    text.push(format!("recorded    {} frames{left_out}{cut}", recording.frames().len()));
    text.push("\nbetween the frames".to_owned());
    text.extend(report.events.iter().map(|event| format!("{}  {:17} {}", event.at, event.kind, event.text)));
    text.push(String::new());
    let mut rows = vec![["at", "stream", "frame", "trust", "boxes", "before NMS", "ms", "why"].map(str::to_owned)];
    rows.extend(recording.frames().iter().map(frame_row));
    text.push(table(&rows));
    terminal.data(text.join("\n"))
}

fn frame_row(frame: &FrameLine) -> [String; 8] {
    let mut why = frame.reasons.join(", ");
    for more in frame.error.iter().chain(&frame.answered_for) {
        why = format!("{why}{}{more}", if why.is_empty() { "" } else { ": " });
    }
    let timings = &frame.timings_ms;
    let engine_ms = timings.preprocess_ms + timings.transfer_ms + timings.inference_ms + timings.postprocess_ms;
    [
        frame.at.clone(),
        frame.stream.clone(),
        frame.frame.map_or_else(|| "-".to_owned(), |number| number.to_string()),
        frame.trust.name().to_owned(),
        frame.detections.len().to_string(),
        frame.candidates_in_all.to_string(),
        format!("{engine_ms:.1}"),
        why,
    ]
}

fn as_json(recording: &Recording) -> Result<String> {
    to_json(&serde_json::json!({ "report": recording.report(), "frames": recording.frames() }))
}

pub(super) fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Error::unexpected("this cannot be written as JSON").because(error))
}
