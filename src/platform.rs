//! Platform files: what is known of the machines that bundles are built for.
//!
//! The files of `platforms/` are compiled in. Every figure in them carries its source; what is not known is left out and
//! said so. `--target` takes a name or the path of a file of the same form.

use crate::error::{Error, Result};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The compiled-in files, in the order in which they are listed.
const FILES: [(&str, &str); 11] = [
    ("cpu", include_str!("../platforms/cpu.toml")),
    ("t4", include_str!("../platforms/t4.toml")),
    ("orin-nano-4gb", include_str!("../platforms/orin-nano-4gb.toml")),
    ("orin-nano-8gb", include_str!("../platforms/orin-nano-8gb.toml")),
    ("orin-nx", include_str!("../platforms/orin-nx.toml")),
    ("agx-orin", include_str!("../platforms/agx-orin.toml")),
    ("xavier-nx", include_str!("../platforms/xavier-nx.toml")),
    ("l4", include_str!("../platforms/l4.toml")),
    ("a2", include_str!("../platforms/a2.toml")),
    ("rtx-pc", include_str!("../platforms/rtx-pc.toml")),
    ("h200", include_str!("../platforms/h200.toml")),
];
const MOST_FILE_BYTES: u64 = 1 << 20;

/// One machine that bundles are built for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// Short name, as after `--target`.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Whether there is a GPU, and whose memory it uses.
    pub kind: PlatformKind,
    /// CPU architectures it comes with, as in `x86_64`, `aarch64`.
    pub architectures: Vec<String>,
    /// Compute capability of the GPU.
    #[serde(default)]
    pub compute_capability: Option<Sourced<String>>,
    /// Memory of the GPU, or of the whole board where CPU and GPU share it.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Rules for the memory plan.
    #[serde(default)]
    pub plan: PlanRules,
    /// TensorRT families that serve it.
    #[serde(default, rename = "flavour")]
    pub flavours: Vec<Flavour>,
    /// What it lacks, for people and for checks, as in `bf16`, `dla`.
    #[serde(default)]
    pub lacks: Vec<Sourced<String>>,
    /// What it has beyond the usual.
    #[serde(default)]
    pub has: Vec<Sourced<String>>,
    /// What is not known yet, in words.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// Whether there is a GPU, and whose memory it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformKind {
    /// No GPU.
    Cpu,
    /// A GPU with its own memory.
    Discrete,
    /// CPU and GPU share the memory (Jetson).
    Unified,
}

/// A value with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: String,
}

/// Memory of a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Bytes, with unit.
    #[serde(with = "bytes_text")]
    pub total: Bytes,
    /// `nominal` (data sheet) or `reported` (by the driver on such a machine).
    pub figure: MemoryFigure,
    /// Where it comes from.
    pub source: String,
}

/// How trustworthy a memory size is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryFigure {
    /// From a data sheet; what the driver reports is less.
    Nominal,
    /// As a driver reported it.
    Reported,
}

/// Rules for the memory plan, percent of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanRules {
    /// Kept free by the plan.
    pub margin_percent: u32,
    /// Use above this raises the memory alarm.
    pub alarm_percent: u32,
}

impl Default for PlanRules {
    fn default() -> Self {
        PlanRules { margin_percent: 20, alarm_percent: 85 }
    }
}

/// A TensorRT family on a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flavour {
    /// `trt8`, `trt10`, `trt11` or `rtx`.
    pub name: String,
    /// Versions, for people.
    pub versions: String,
    /// System that brings it, as in `JetPack 6`.
    pub system: String,
    /// Whether this project has loaded a plan there: what was run, or `unproved`.
    pub proof: String,
    /// Where the versions come from.
    pub source: String,
}

impl Platform {
    /// All compiled-in platforms.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when a compiled-in file is broken (a test holds that none is).
    pub fn all() -> Result<Vec<Platform>> {
        FILES.iter().map(|(name, text)| Platform::parse(text).map_err(|error| broken(name, error))).collect()
    }

    /// The platform after `--target`: a compiled-in name, a compute capability like `8.6`, or the path of a platform file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an unknown name (with those that are known) or a file that cannot be understood.
    pub fn find(name_or_path: &str) -> Result<Platform> {
        if let Some((name, text)) = FILES.iter().find(|(name, _)| *name == name_or_path) {
            return Platform::parse(text).map_err(|error| broken(name, error));
        }
        if let Some(platform) = Platform::of_capability(name_or_path) {
            return Ok(platform);
        }
        let path = Path::new(name_or_path);
        if name_or_path.ends_with(".toml") || name_or_path.contains('/') {
            let unreadable = |error: std::io::Error| {
                Error::usage("the platform file cannot be read").because(error).at(path.display())
            };
            let about = std::fs::metadata(path).map_err(unreadable)?;
            if !about.is_file() || about.len() > MOST_FILE_BYTES {
                return Err(Error::usage("found something else than a small text file, expected a platform file")
                    .at(path.display()));
            }
            let text = std::fs::read_to_string(path).map_err(unreadable)?;
            return Platform::parse(&text).map_err(|error| error.at(path.display()));
        }
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        Err(Error::usage(format!("found target `{name_or_path}`, expected one of {}", names.join(", ")))
            .hint("`edge-build targets` lists them; a compute capability like `8.6` or the path of a platform file (`*.toml`) will do too"))
    }

    /// Any discrete GPU of a compute capability like `8.6`; its memory is not known.
    fn of_capability(text: &str) -> Option<Platform> {
        let (major, minor) = text.split_once('.')?;
        let (major, minor) = (major.parse::<u8>().ok()?, minor.parse::<u8>().ok()?);
        let source = "the command line";
        let family = |name: &str| Flavour {
            name: name.to_owned(),
            versions: "any".to_owned(),
            system: "any".to_owned(),
            proof: "unproved".to_owned(),
            source: source.to_owned(),
        };
        (major < 100 && minor < 10).then(|| Platform {
            name: format!("{major}.{minor}"),
            title: format!("GPU of compute capability {major}.{minor}"),
            kind: PlatformKind::Discrete,
            architectures: vec!["x86_64".to_owned(), "aarch64".to_owned()],
            compute_capability: Some(Sourced { value: format!("{major}.{minor}"), source: source.to_owned() }),
            memory: None,
            plan: PlanRules::default(),
            flavours: ["trt8", "trt10", "trt11", "rtx"].map(family).to_vec(),
            lacks: vec![],
            has: vec![],
            unknown: vec!["everything but the compute capability".to_owned()],
        })
    }

    /// Parses a platform file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] with the line.
    pub fn parse(text: &str) -> Result<Platform> {
        let platform: Platform = toml::from_str(text).map_err(|error| Error::of_toml(text, &error))?;
        if platform.plan.margin_percent >= 100 || platform.plan.alarm_percent > 100 {
            return Err(Error::usage("found a margin or alarm above 100 percent"));
        }
        if (platform.kind == PlatformKind::Cpu) != platform.flavours.is_empty() {
            return Err(Error::usage("found no `[[flavour]]` for a GPU, or one without a GPU"));
        }
        Ok(platform)
    }

    /// The memory that a plan may use: the total without the margin.
    pub fn budget(&self) -> Option<Bytes> {
        let memory = self.memory.as_ref()?;
        Some(Bytes(memory.total.0 / 100 * u64::from(100 - self.plan.margin_percent)))
    }
}

fn broken(name: &str, error: Error) -> Error {
    Error::unexpected(format!("the compiled-in platform `{name}` is broken")).because(error)
}

mod bytes_text {
    use crate::units::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: crate::Error| serde::de::Error::custom(error.message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_in_files_are_whole_and_carry_their_sources() {
        let platforms = Platform::all().unwrap();
        assert_eq!(platforms.len(), FILES.len());
        for (platform, (name, _)) in platforms.iter().zip(FILES) {
            assert_eq!(platform.name, name);
            assert_eq!(Platform::find(name).unwrap(), *platform);
            let sources = platform
                .compute_capability
                .iter()
                .chain(&platform.lacks)
                .chain(&platform.has)
                .map(|sourced| &sourced.source)
                .chain(platform.flavours.iter().flat_map(|flavour| [&flavour.source, &flavour.proof]))
                .chain(platform.memory.iter().map(|memory| &memory.source));
            assert!(sources.into_iter().all(|source| source.len() >= 8), "{name}: a figure without a source");
            assert_eq!(platform.kind == PlatformKind::Cpu, platform.compute_capability.is_none(), "{name}");
        }
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let text = Platform::find("t5").unwrap_err().to_string();
        assert!(
            text.contains("`t5`") && text.contains("orin-nano-8gb") && text.contains("edge-build targets"),
            "{text}"
        );
    }

    #[test]
    fn a_file_of_ones_own_is_taken_and_unknown_keys_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let whole = "name = 'mine'\ntitle = 'Mine'\nkind = 'cpu'\narchitectures = ['x86_64']\n";
        std::fs::write(&path, whole).unwrap();
        assert_eq!(Platform::find(path.to_str().unwrap()).unwrap().title, "Mine");
        std::fs::write(&path, format!("{whole}colour = 'red'\n")).unwrap();
        let text = Platform::find(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(text.contains("line 5") && text.contains("colour") && text.contains("mine.toml"), "{text}");
        assert!(Platform::find("/no/such/file.toml").is_err());
    }

    #[test]
    fn the_budget_leaves_the_margin_free() {
        let platform = Platform::find("orin-nano-8gb").unwrap();
        let total = platform.memory.as_ref().unwrap().total;
        assert!(platform.budget().unwrap().0 <= total.0 / 10 * 8);
        assert_eq!(Platform::find("cpu").unwrap().budget(), None);
    }
}
