//! `edge.toml`: many streams. Unknown keys are errors; `edge-run config example` prints a tested file.

use super::incident::IncidentSettings;
use super::service::ServiceSettings;
use crate::camera::CameraRequest;
use crate::error::{Error, Result};
use crate::run::depot::Delivery;
use crate::run::product::Product;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// The bundle; without it, the only one in the current folder, `engines/` or `/etc/edge-trt/`.
    pub engine: Option<PathBuf>,
    /// The streams, at least one.
    #[serde(rename = "stream")]
    pub streams: Vec<StreamConfig>,
    /// Where results go.
    pub output: OutputConfig,
    /// The pages and `/metrics`.
    pub http: HttpConfig,
    /// The CPU engine.
    pub cpu: CpuConfig,
    /// How frames of several streams share a run of the engine.
    pub batch: BatchConfig,
    /// The GPUs.
    pub gpu: GpuConfig,
    /// What is reported, where it differs from what is judged.
    pub report: ReportConfig,
    /// How the run looks after itself.
    pub service: ServiceSettings,
    /// What is kept of the frames around a fault.
    pub incident: IncidentSettings,
    /// What the line can be changed over to, instead of one bundle.
    #[serde(rename = "product")]
    pub products: Vec<Product>,
}

/// `[gpu]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuConfig {
    /// Ordinals in the order of use: the first serves, warm engines stand by on the others; empty: the first GPU alone.
    pub devices: Vec<u32>,
    /// How a thread waits for the GPU: `block` or `spin`.
    pub wait: Option<String>,
    /// GPU memory that the engine may take, as in `512MiB`; without it, the bundle's budget.
    pub budget: Option<String>,
    /// Room for the pixels of one picture on the GPU, as in `24MiB`.
    pub picture: Option<String>,
    /// Batches in flight at once, 1 to 8.
    pub lanes: Option<u32>,
    /// Folder with TensorRT's libraries.
    pub tensorrt_dir: Option<PathBuf>,
}

/// `[report]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// Boxes are reported from this score on, 0..1; what is judged does not change.
    pub conf: Option<f32>,
    /// Overlap above which boxes of one class are one object, for the report, 0..1.
    pub iou: Option<f32>,
}

/// One `[[stream]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// Unique name; appears in results, metrics and pages.
    pub name: String,
    /// The bundle that answers it; without it, the file's `engine`.
    #[serde(default)]
    pub engine: Option<PathBuf>,
    /// As after `--source` or `--camera`: `/dev/video0`, a folder, `replay:…`, `sim:…`, `http://…`.
    pub source: String,
    /// `newest` (default for cameras) or `every` (default for files).
    #[serde(default)]
    pub delivery: Option<Delivery>,
    /// Whether the start waits for this source (default) or fails at once when it is not there.
    #[serde(default = "yes")]
    pub wait: bool,
    /// Whether only frames triggered by `POST /trigger` are parts; otherwise every frame gets a decision.
    #[serde(default)]
    pub triggered: bool,
    /// Mode and controls asked of a camera.
    #[serde(default)]
    pub camera: CameraRequest,
}

fn yes() -> bool {
    true
}

/// `[output]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputConfig {
    /// JSON lines; `-` is standard output.
    pub file: Option<PathBuf>,
    /// Folder for annotated pictures.
    pub save: Option<PathBuf>,
}

/// `[http]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Address and port, or `none`.
    pub listen: String,
    /// File that holds the token asked for beyond loopback and for every `POST`.
    pub token_file: Option<PathBuf>,
    /// Serves pages and metrics beyond loopback without a token and refuses every `POST`.
    pub read_only: bool,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig { listen: "127.0.0.1:8080".into(), token_file: None, read_only: false }
    }
}

/// `[batch]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// How long a frame waits for others, milliseconds; without it, half of what a run of the engine takes, at most 10 ms and
    /// a tenth of the decision's deadline.
    pub wait_ms: Option<f64>,
}

/// `[cpu]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CpuConfig {
    /// `auto`, `rten` or `onnxruntime`.
    pub backend: Option<String>,
    /// Threads of the network; without it, the physical cores.
    pub threads: Option<u32>,
}

impl RunConfig {
    /// An example that parses, with every key and its unit.
    pub const EXAMPLE: &str = include_str!("edge.example.toml");

    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] with line and column of an unknown key or a wrong value.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::usage("the configuration cannot be read")
                .because(error)
                .at(path.display())
                .hint("`edge-run config example > edge.toml` writes one to start from")
        })?;
        Self::parse(&text).map_err(|error| error.at(path.display()))
    }

    /// Parses and checks a text.
    ///
    /// # Errors
    /// As [`RunConfig::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let config: RunConfig = toml::from_str(text).map_err(|error| {
            Error::usage(format!("the configuration is not valid\n{}", error.to_string().trim_end()))
                .hint("`edge-run config example` prints every key")
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        if self.streams.is_empty() {
            return Err(Error::usage("found no `[[stream]]`, expected at least one")
                .hint("`edge-run config example` prints one"));
        }
        if self.engine.is_some() && !self.products.is_empty() {
            return Err(Error::usage("found `engine` beside `[[product]]`, expected one of them")
                .hint("every product names its own bundle"));
        }
        check_unique("product", self.products.iter().map(|product| product.id.as_str()))?;
        for product in &self.products {
            check_unique("baseline", std::iter::once(product.baseline()))?;
            product.check()?;
        }
        check_names(self.streams.iter().map(|stream| stream.name.as_str()))
    }
}

/// Refuses stream names that are empty, too long, repeated or hard to use as a label or file name.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] naming the stream.
pub fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    check_unique("stream", names).map_err(|error| match error.message().starts_with("found two") {
        true => error.hint("give each its own: `--source left=/dev/video0 --source right=/dev/video1`"),
        false => error,
    })
}

fn check_unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        let usable = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !usable {
            return Err(Error::usage(format!(
                "found {what} name `{name}`, expected 1 to 64 letters, digits, `-`, `_` or `.`"
            )));
        }
        if !seen.insert(name) {
            return Err(Error::usage(format!("found two {what}s named `{name}`, expected unique names")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_parses() {
        let config = RunConfig::parse(RunConfig::EXAMPLE).unwrap();
        assert_eq!(config.streams.len(), 2);
        // Written out, the keys of [service] are at their defaults.
        let options = |settings: &ServiceSettings| format!("{:?}", settings.options().unwrap());
        let usual = ServiceSettings { state: config.service.state.clone(), watch: true, ..ServiceSettings::default() };
        assert_eq!(options(&config.service), options(&usual));
        let keys = <ServiceSettings as clap::Args>::augment_args(clap::Command::new("keys"));
        for key in keys.get_arguments().map(|flag| flag.get_id().to_string()) {
            assert!(RunConfig::EXAMPLE.contains(&format!("{key} = ")), "{key}");
        }
        // And so are those of [incident].
        let incident = IncidentSettings { folder: config.incident.folder.clone(), ..IncidentSettings::default() };
        assert_eq!(config.incident.options().unwrap(), incident.options().unwrap());
        let (_, section) = RunConfig::EXAMPLE.split_once("\n[incident]").unwrap();
        let section = section.split("\n[").next().unwrap();
        for key in ["deep_log", "folder", "frames_before", "frames_after", "space", "memory"] {
            assert!(section.contains(&format!("{key} = ")), "{key}");
        }
    }

    #[test]
    fn unknown_keys_and_double_names_are_errors() {
        let text = "[[stream]]\nname = \"a\"\nsource = \"x\"\nsurprise = 1\n";
        assert!(RunConfig::parse(text).unwrap_err().to_string().contains("surprise"));
        let text = "[[stream]]\nname = \"a\"\nsource = \"x\"\n[[stream]]\nname = \"a\"\nsource = \"y\"\n";
        assert!(RunConfig::parse(text).unwrap_err().to_string().contains("two streams named `a`"));
        let text = "[[stream]]\nname = \"a b\"\nsource = \"x\"\n";
        assert!(RunConfig::parse(text).is_err());
        let stream = "[[stream]]\nname = \"a\"\nsource = \"x\"\n";
        let product = "[[product]]\nid = \"p\"\nbundle = \"p.edge\"\n";
        assert_eq!(RunConfig::parse(&format!("{stream}{product}")).unwrap().products[0].baseline(), "p");
        for (text, says) in [
            (format!("engine = \"a.edge\"\n{stream}{product}"), "beside `[[product]]`"),
            (format!("{stream}{product}{product}"), "two products named `p`"),
            (format!("{stream}{product}baseline = \"a/b\"\n"), "baseline name `a/b`"),
            (format!("{stream}{product}thresholds.score = 1.5\n"), "score 1.5, expected 0 to 1"),
            (format!("{stream}{product}surprise = 1\n"), "surprise"),
        ] {
            let error = RunConfig::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(RunConfig::parse("").unwrap_err().message().contains("no `[[stream]]`"));
    }
}
