//! `[service]` of `edge.toml`: how a run looks after itself. One struct serves keys and flags: `proof_every = "2s"` is
//! `--proof-every 2s`; what is typed goes before the file.

use crate::error::{Error, Result};
use crate::guard::GuardMode;
use crate::run::ServiceOptions;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A time as typed: `500ms`, `90s`, `10m`, `8h`, `2d`; a number alone is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let scale_s = match unit {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(Error::usage(format!("found unit `{unit}`, expected ms, s, m, h or d"))),
        };
        let wrong = || Error::usage(format!("found `{text}`, expected a time such as 90s or 8h"));
        let number: f64 = number.parse().map_err(|_| wrong())?;
        Duration::try_from_secs_f64(number * scale_s).map(Span).map_err(|_| wrong())
    }
}

impl TryFrom<String> for Span {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        if ms.is_multiple_of(1000) { write!(f, "{}s", ms / 1000) } else { write!(f, "{ms}ms") }
    }
}

fn span(text: &str) -> Result<Span, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

fn mode(text: &str) -> Result<GuardMode, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

/// `64MiB`, or a number of bytes.
pub(super) fn text_or_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Typed {
        Number(u64),
        Text(String),
    }
    match Typed::deserialize(from)? {
        Typed::Number(count) => Ok(Some(Bytes(count))),
        Typed::Text(text) => bytes(&text).map(Some).map_err(serde::de::Error::custom),
    }
}

/// How a run looks after itself; what is not given stays at its default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceSettings {
    /// Folder for what outlives the process: unproven results, baselines, known answers, the last good bundle
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Run only bundles that are signed with this public Ed25519 key (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<PathBuf>,
    /// What soft checks do once there is a reference; hard checks act always [default: act]
    #[arg(long, value_name = "observe|act", value_parser = mode)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardMode>,
    /// Take a new bundle when its file changes, after it has proved itself beside the old one
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub watch: bool,
    /// Least time between two self-tests with a known answer [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_every: Option<Span>,
    /// Longest time between two self-tests, whatever they cost [default: 40s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_at_most: Option<Span>,
    /// Largest share of the engine's time for self-tests, percent [default: 1]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_share: Option<f64>,
    /// Run every Nth frame twice and compare; 0: never [default: 500]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo_every: Option<u64>,
    /// How long a call of the engine may take [default: ten times the slowest at the start, at least 2s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_limit: Option<Span>,
    /// How long a call beyond its limit is waited for before the process ends [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Span>,
    /// A camera read that stands still for longer gets a new thread beside it [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub camera_stuck_after: Option<Span>,
    /// Memory alarm from this share in use on, percent [default: 85]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_alarm: Option<f64>,
    /// The alarm ends below this share, percent [default: 80]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clear: Option<f64>,
    /// Device memory that must be free before another engine is loaded beside the running one, percent [default: 20]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_margin: Option<f64>,
    /// Growth of this process within `memory_growth_time` that is reported [default: 32MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub memory_growth: Option<Bytes>,
    /// Time over which growth is judged [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_time: Option<Span>,
    /// Growth is not looked for before this time [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_warm_up: Option<Span>,
    /// What the models of all engines on the CPU may take together [default: four fifths of the memory that is left]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub memory_budget: Option<Bytes>,
    /// Where two engines do not fit, stand still while a new bundle is loaded in place of the running one
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reload_gap: bool,
    /// Frames that both engines answer before a new bundle takes over, where its recipe says nothing [default: 30]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow_frames: Option<u64>,
    /// Least agreement of their boxes, percent [default: 80]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow_agreement: Option<f64>,
    /// The old engine stays ready this long after a new one has taken over [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probation: Option<Span>,
}

macro_rules! first_of {
    ($typed:ident, $file:ident, $($field:ident),+) => {
        ServiceSettings {
            watch: $typed.watch || $file.watch,
            reload_gap: $typed.reload_gap || $file.reload_gap,
            $($field: $typed.$field.or($file.$field),)+
        }
    };
}

impl ServiceSettings {
    /// What is typed, and for what is not typed the file.
    #[must_use]
    pub fn or(self, file: ServiceSettings) -> ServiceSettings {
        first_of!(
            self,
            file,
            state,
            trust,
            guard,
            proof_every,
            proof_at_most,
            proof_share,
            echo_every,
            call_limit,
            patience,
            camera_stuck_after,
            memory_alarm,
            memory_clear,
            memory_margin,
            memory_growth,
            memory_growth_time,
            memory_warm_up,
            memory_budget,
            shadow_frames,
            shadow_agreement,
            probation
        )
    }

    /// The options of a run, checked. `trust` is left to the caller, who reads the key.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a share that is no percentage, an alarm below its own end, or a time of zero.
    pub fn options(&self) -> Result<ServiceOptions> {
        let mut options = ServiceOptions { state: self.state.clone(), ..ServiceOptions::default() };
        set(&mut options.guard, self.guard);
        options.reload.watch = self.watch;
        if let Some(every) = time("proof-every", self.proof_every)? {
            options.proofs.every = every;
            options.proofs.at_most = options.proofs.at_most.max(every);
        }
        set(&mut options.proofs.at_most, time("proof-at-most", self.proof_at_most)?);
        set(&mut options.proofs.share, share("proof-share", self.proof_share)?);
        set(&mut options.echo_every, self.echo_every);
        options.call_limit = time("call-limit", self.call_limit)?;
        set(&mut options.patience, time("patience", self.patience)?);
        set(&mut options.camera_stuck_after, time("camera-stuck-after", self.camera_stuck_after)?);
        let memory = &mut options.memory;
        set(&mut memory.alarm_share, share("memory-alarm", self.memory_alarm)?);
        set(&mut memory.clear_share, share("memory-clear", self.memory_clear)?);
        set(&mut memory.margin_share, share("memory-margin", self.memory_margin)?);
        set(&mut memory.least_growth, self.memory_growth);
        set(&mut memory.window, time("memory-growth-time", self.memory_growth_time)?);
        set(&mut memory.warm_up, self.memory_warm_up.map(|span| span.0));
        options.cpu_budget = self.memory_budget;
        options.reload.gap = self.reload_gap;
        set(&mut options.reload.shadow_frames, self.shadow_frames);
        set(&mut options.reload.agreement, share("shadow-agreement", self.shadow_agreement)?);
        set(&mut options.reload.probation, self.probation.map(|span| span.0));
        self.check(&options)?;
        Ok(options)
    }

    fn check(&self, options: &ServiceOptions) -> Result<()> {
        let (alarm, clear) = (options.memory.alarm_share, options.memory.clear_share);
        if clear > alarm {
            return Err(Error::usage(format!(
                "found a memory alarm at {} % that ends at {} %, expected an end below it",
                alarm * 100.0,
                clear * 100.0
            ))
            .hint("set both `--memory-alarm` and `--memory-clear`"));
        }
        if options.proofs.at_most < options.proofs.every {
            return Err(Error::usage(format!(
                "found at most {} between self-tests, expected no less than the least, {}",
                Span(options.proofs.at_most),
                Span(options.proofs.every)
            ))
            .hint("set both `--proof-every` and `--proof-at-most`"));
        }
        Ok(())
    }
}

pub(super) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// A time above zero.
fn time(name: &str, value: Option<Span>) -> Result<Option<Duration>> {
    match value {
        Some(Span(Duration::ZERO)) => {
            Err(Error::usage("found no time at all, expected one above zero").at(format!("--{name}")))
        }
        value => Ok(value.map(|span| span.0)),
    }
}

/// Percent as a share.
fn share(name: &str, value: Option<f64>) -> Result<Option<f64>> {
    match value {
        Some(percent) if !(percent > 0.0 && percent <= 100.0) => {
            Err(Error::usage(format!("found {percent}, expected a percentage above 0 and up to 100"))
                .at(format!("--{name}")))
        }
        value => Ok(value.map(|percent| percent / 100.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        service: ServiceSettings,
    }

    /// Every key with a value that is not its default, as `edge.toml` has it.
    const WHOLE: &str = r#"
state = "/var/lib/edge"
trust = "key.pub"
guard = "observe"
watch = true
proof_every = "500ms"
proof_at_most = "90s"
proof_share = 2.5
echo_every = 100
call_limit = "3s"
patience = "4s"
camera_stuck_after = "5s"
memory_alarm = 90.0
memory_clear = 70.0
memory_margin = 10.0
memory_growth = "64MiB"
memory_growth_time = "2h"
memory_warm_up = "60s"
memory_budget = "1GiB"
reload_gap = true
shadow_frames = 7
shadow_agreement = 95.0
probation = "10s"
"#;

    #[test]
    fn keys_and_flags_are_the_same_and_mean_the_same() {
        let file: ServiceSettings = toml::from_str(WHOLE).unwrap();
        let table: toml::Table = toml::from_str(WHOLE).unwrap();
        let flags: Vec<String> = Flags::command().get_arguments().map(|flag| flag.get_id().to_string()).collect();
        assert_eq!(table.keys().cloned().collect::<std::collections::BTreeSet<_>>(), flags.into_iter().collect());
        let mut typed = vec!["edge-run".to_owned()];
        for (key, value) in &table {
            typed.push(format!("--{}", key.replace('_', "-")));
            match value {
                toml::Value::Boolean(_) => {}
                toml::Value::String(text) => typed.push(text.clone()),
                other => typed.push(other.to_string()),
            }
        }
        let typed = Flags::try_parse_from(typed).unwrap().service;
        assert_eq!(typed, file);
        let shown = |settings: &ServiceSettings| format!("{:?}", settings.options().unwrap());
        assert_eq!(shown(&file), shown(&typed));
        // A key that is read and then forgotten would change nothing. `trust` is read by the caller.
        for (key, value) in table.iter().filter(|(key, _)| *key != "trust") {
            let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
            let alone: ServiceSettings = alone.try_into().unwrap();
            assert_ne!(shown(&alone), shown(&ServiceSettings::default()), "{key}");
        }
        let options = file.options().unwrap();
        let memory = &options.memory;
        assert_eq!((memory.alarm_share, memory.clear_share, memory.margin_share), (0.9, 0.7, 0.1));
        assert_eq!((options.reload.shadow_frames, options.reload.agreement), (7, 0.95));
    }

    #[test]
    fn what_is_typed_goes_before_the_file() {
        let file: ServiceSettings = toml::from_str(WHOLE).unwrap();
        assert_eq!(ServiceSettings::default().or(file.clone()), file);
        let typed = ServiceSettings { echo_every: Some(9), guard: Some(GuardMode::Act), ..ServiceSettings::default() };
        let both = typed.or(file.clone());
        assert_eq!((both.echo_every, both.guard, both.watch), (Some(9), Some(GuardMode::Act), true));
        assert_eq!(both.memory_alarm, file.memory_alarm);
    }

    #[test]
    fn nonsense_is_one_clear_error() {
        for (text, word) in [
            ("memory_alarm = 0.0", "--memory-alarm"),
            ("memory_alarm = 101.0", "--memory-alarm"),
            ("memory_alarm = 50.0", "ends at 80 %"),
            ("proof_every = \"0s\"", "--proof-every"),
            ("proof_at_most = \"1s\"", "no less than the least, 2s"),
            ("proof_share = -1.0", "--proof-share"),
        ] {
            let error = toml::from_str::<ServiceSettings>(text).unwrap().options().unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
        for text in ["proof_every = \"2 weeks\"", "guard = \"off\"", "memory_alarn = 1", "echo_every = -1"] {
            assert!(toml::from_str::<ServiceSettings>(text).is_err(), "{text}");
        }
        assert_eq!("90s".parse::<Span>().unwrap().to_string(), "90s");
        assert_eq!("1.5".parse::<Span>().unwrap().to_string(), "1500ms");
    }
}
