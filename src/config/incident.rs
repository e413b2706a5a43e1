//! `[incident]` of `edge.toml`: what is kept of the frames around a fault. One struct serves keys and flags: `space = "2GiB"` is
//! `--incident-space 2GiB`; what is typed goes before the file.

use super::service::{bytes, set, text_or_number};
use crate::error::{Error, Result};
use crate::run::incident::IncidentOptions;
use crate::units::{Bytes, index};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What is kept of the frames around a fault; what is not given stays at its default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct IncidentSettings {
    /// Record every frame, not only those around faults; needs a state folder or a folder for incidents
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deep_log: bool,
    /// Folder for incidents, as on another disk [default: `incidents` in the state folder]
    #[arg(id = "incident_folder", long = "incident-folder", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Frames kept of each stream before a fault, 1 to 250 [default: 25]
    #[arg(id = "incident_frames_before", long = "incident-frames-before", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_before: Option<u32>,
    /// Frames recorded of each stream from the fault on, 1 to 250 [default: 25]
    #[arg(id = "incident_frames_after", long = "incident-frames-after", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_after: Option<u32>,
    /// Room for incidents on the disk; the oldest are removed [default: 1GiB]
    #[arg(id = "incident_space", long = "incident-space", value_name = "BYTES", value_parser = bytes)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub space: Option<Bytes>,
    /// Memory for pictures of the last frames, and again for those that wait for the disk [default: 128MiB]
    #[arg(id = "incident_memory", long = "incident-memory", value_name = "BYTES", value_parser = bytes)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub memory: Option<Bytes>,
}

/// Less than this holds not even the words of a few incidents.
const LEAST_SPACE: Bytes = Bytes::mib(1);

impl IncidentSettings {
    /// What is typed, and for what is not typed the file.
    #[must_use]
    pub fn or(self, file: IncidentSettings) -> IncidentSettings {
        IncidentSettings {
            deep_log: self.deep_log || file.deep_log,
            folder: self.folder.or(file.folder),
            frames_before: self.frames_before.or(file.frames_before),
            frames_after: self.frames_after.or(file.frames_after),
            space: self.space.or(file.space),
            memory: self.memory.or(file.memory),
        }
    }

    /// The options of a run, checked.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a number of frames that is none or too large, or a limit that holds nothing.
    pub fn options(&self) -> Result<IncidentOptions> {
        let mut options = IncidentOptions { deep_log: self.deep_log, ..IncidentOptions::default() };
        if let Some(folder) = &self.folder {
            if folder.as_os_str().is_empty() {
                return Err(Error::usage("found an empty name, expected a folder").at("--incident-folder"));
            }
            options.folder = Some(folder.clone());
        }
        if let Some(before) = frames("frames-before", self.frames_before)? {
            options.frames_before = index(before);
        }
        set(&mut options.frames_after, frames("frames-after", self.frames_after)?);
        if let Some(space) = self.space.filter(|space| *space < LEAST_SPACE) {
            return Err(Error::usage(format!("found {space}, expected at least {LEAST_SPACE}"))
                .at("--incident-space")
                .hint("without a state folder and a folder for incidents none are written"));
        }
        set(&mut options.space, self.space);
        set(&mut options.memory, self.memory);
        if options.memory > options.space {
            return Err(Error::usage(format!(
                "found {} of memory for pictures and {} of room for incidents, expected no more memory than room",
                options.memory, options.space
            ))
            .hint("set both `--incident-memory` and `--incident-space`"));
        }
        Ok(options)
    }
}

fn frames(name: &str, value: Option<u32>) -> Result<Option<u32>> {
    match value {
        Some(frames) if !(1..=IncidentOptions::MOST_FRAMES).contains(&frames) => {
            Err(Error::usage(format!("found {frames} frames, expected 1 to {}", IncidentOptions::MOST_FRAMES))
                .at(format!("--incident-{name}"))
                .hint("`--deep-log` records every frame"))
        }
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        incident: IncidentSettings,
    }

    /// Every key with a value that is not its default, as `edge.toml` has it.
    const WHOLE: &str = r#"
deep_log = true
folder = "/data/incidents"
frames_before = 50
frames_after = 10
space = "2GiB"
memory = 1000000
"#;

    #[test]
    fn keys_and_flags_are_the_same_and_mean_the_same() {
        let file: IncidentSettings = toml::from_str(WHOLE).unwrap();
        let table: toml::Table = toml::from_str(WHOLE).unwrap();
        let mut typed = vec!["edge-run".to_owned()];
        for (key, value) in &table {
            let flag = key.replace('_', "-");
            typed.push(if key == "deep_log" { format!("--{flag}") } else { format!("--incident-{flag}") });
            match value {
                toml::Value::Boolean(_) => {}
                toml::Value::String(text) => typed.push(text.clone()),
                other => typed.push(other.to_string()),
            }
        }
        assert_eq!(Flags::command().get_arguments().count(), table.len(), "a flag without a key above");
        let typed = Flags::try_parse_from(typed).unwrap().incident;
        assert_eq!(typed, file);
        // A key that is read and then forgotten would change nothing.
        for (key, value) in &table {
            let alone: IncidentSettings = toml::Table::from_iter([(key.clone(), value.clone())]).try_into().unwrap();
            assert_ne!(alone.options().unwrap(), IncidentOptions::default(), "{key}");
            assert_eq!(IncidentSettings::default().or(alone.clone()), alone, "{key}");
        }
    }

    #[test]
    fn what_is_typed_goes_before_the_file() {
        let file: IncidentSettings = toml::from_str(WHOLE).unwrap();
        let typed =
            IncidentSettings { frames_after: Some(7), folder: Some("/x".into()), ..IncidentSettings::default() };
        let both = typed.or(file);
        assert_eq!((both.frames_before, both.frames_after), (Some(50), Some(7)));
        assert_eq!((both.folder, both.deep_log), (Some("/x".into()), true));
    }

    #[test]
    fn nonsense_is_one_clear_error() {
        for (text, word) in [
            ("frames_before = 0", "--incident-frames-before"),
            ("frames_after = 251", "expected 1 to 250"),
            ("space = \"10KiB\"", "--incident-space"),
            ("space = \"64MiB\"", "no more memory than room"),
            ("folder = \"\"", "--incident-folder"),
        ] {
            let error = toml::from_str::<IncidentSettings>(text).unwrap().options().unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
        for text in ["spaces = 1", "frames_after = -1", "space = \"much\"", "deep_log = 1"] {
            assert!(toml::from_str::<IncidentSettings>(text).is_err(), "{text}");
        }
    }
}
