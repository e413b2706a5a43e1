//! `recipe.toml`: everything that makes one bundle, in a folder of `engines/`. Unknown keys are errors.

use super::precision::{Border, Calibrator, GateRules, Int8Rules, Precision};
use crate::bundle::manifest::ReloadRules;
use crate::decision::DecisionRule;
use crate::detections::Thresholds;
use crate::error::{Error, Result};
use crate::guard::GuardSpec;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// File name of a recipe in its folder.
pub const RECIPE_FILE: &str = "recipe.toml";
const MOST_RECIPE_BYTES: u64 = 1 << 20;

/// A recipe. Paths in it are relative to its folder; [`Recipe::read`] makes them whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The ONNX export.
    pub model: PathBuf,
    /// Name of the bundle; default: the recipe's folder.
    #[serde(default)]
    pub name: Option<String>,
    /// Platform name or file; default: this machine.
    #[serde(default)]
    pub target: Option<String>,
    /// Where shapes are not fixed by the model.
    #[serde(default)]
    pub shapes: Shapes,
    /// `as exported`, `fp16` or `int8`.
    #[serde(default)]
    pub precision: Precision,
    /// How ranges are cut off for `int8`.
    #[serde(default)]
    pub calibrator: Calibrator,
    /// Where `int8` goes, and what the rest computes in.
    #[serde(default)]
    pub int8: Int8Rules,
    /// Type of inputs and outputs of a converted graph.
    #[serde(default)]
    pub io: Border,
    /// What judges a converted graph.
    #[serde(default)]
    pub gate: GateRules,
    /// How the outputs are to be read, when shape and metadata leave two readings.
    #[serde(default)]
    pub layout: Option<String>,
    /// Tensors that become the outputs: the graph is cut behind them; default: as exported.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Class names, index = class id; only for models without names of their own.
    #[serde(default)]
    pub names: Vec<String>,
    /// What is reported and judged.
    #[serde(default)]
    pub thresholds: Thresholds,
    /// What every good picture shows, and checks that are switched off. The reference comes from `calibration`.
    #[serde(default)]
    pub guard: GuardRules,
    /// What the line does with a part.
    #[serde(default)]
    pub decision: Option<DecisionRule>,
    /// What the bundle must show beside a running one before it takes over.
    #[serde(default)]
    pub reload: Option<ReloadRules>,
    /// Folder with pictures of good parts.
    #[serde(default)]
    pub calibration: Option<PathBuf>,
    /// Folder with pictures for the known answers; default: some of `calibration`.
    #[serde(default)]
    pub golden: Option<PathBuf>,
}

/// `[shapes]`: what the model leaves open.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shapes {
    /// Network input, `640` or `WIDTHxHEIGHT` in pixels.
    pub imgsz: Option<ImageSize>,
    /// Pictures a run.
    pub batch: Option<u32>,
}

/// An image size as typed: a number for a square, or text `WIDTHxHEIGHT`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ImageSize {
    /// A square.
    Side(u32),
    /// `WIDTHxHEIGHT`.
    Text(String),
}

impl std::fmt::Display for ImageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImageSize::Side(side) => write!(f, "{side}"),
            ImageSize::Text(text) => f.write_str(text),
        }
    }
}

/// `[guard]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardRules {
    /// Class name → what every good picture shows of it.
    pub expect: std::collections::BTreeMap<String, crate::guard::Expectation>,
    /// Checks that are switched off.
    pub off: Vec<crate::guard::Reason>,
    /// Limits of the checks that differ from the defaults (`docs/guard.md` lists them).
    pub limits: crate::guard::Limits,
}

impl GuardRules {
    /// The manifest's guard section, still without a reference.
    pub fn spec(&self) -> GuardSpec {
        GuardSpec { reference: None, expect: self.expect.clone(), off: self.off.clone(), limits: self.limits.clone() }
    }
}

impl Recipe {
    /// A recipe for `model` alone, everything else at its default.
    pub fn for_model(model: &Path) -> Recipe {
        Recipe {
            model: model.to_owned(),
            name: None,
            target: None,
            shapes: Shapes::default(),
            precision: Precision::default(),
            calibrator: Calibrator::default(),
            int8: Int8Rules::default(),
            io: Border::default(),
            gate: GateRules::default(),
            layout: None,
            outputs: Vec::new(),
            names: Vec::new(),
            thresholds: Thresholds::default(),
            guard: GuardRules::default(),
            decision: None,
            reload: None,
            calibration: None,
            golden: None,
        }
    }

    /// Reads `path`, a `recipe.toml` or the folder that holds it, and makes its paths whole.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] with line and column for anything that cannot be understood.
    pub fn read(path: &Path) -> Result<Recipe> {
        let file = if path.is_dir() { path.join(RECIPE_FILE) } else { path.to_owned() };
        let missing = |error: std::io::Error| {
            Error::usage("the recipe cannot be read")
                .because(error)
                .at(file.display())
                .hint("give an ONNX file, a `recipe.toml`, or a folder that holds one")
        };
        let about = std::fs::metadata(&file).map_err(missing)?;
        if !about.is_file() || about.len() > MOST_RECIPE_BYTES {
            return Err(
                Error::usage(format!("found {} bytes, expected a small text file", about.len())).at(file.display())
            );
        }
        let text = std::fs::read_to_string(&file).map_err(missing)?;
        let mut recipe = Recipe::parse(&text).map_err(|error| error.at(file.display()))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        recipe.model = folder.join(&recipe.model);
        recipe.calibration = recipe.calibration.map(|path| folder.join(path));
        recipe.golden = recipe.golden.map(|path| folder.join(path));
        recipe.gate.pictures = recipe.gate.pictures.map(|path| folder.join(path));
        recipe.gate.labels = recipe.gate.labels.map(|path| folder.join(path));
        if let Some(target) = &recipe.target
            && target.ends_with(".toml")
        {
            recipe.target = Some(folder.join(target).to_string_lossy().into_owned());
        }
        if recipe.name.is_none() {
            let whole = std::fs::canonicalize(folder.join(".")).unwrap_or_else(|_| folder.to_owned());
            recipe.name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        Ok(recipe)
    }

    /// Parses the text of a recipe; paths stay as they are.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] with line and column.
    pub fn parse(text: &str) -> Result<Recipe> {
        toml::from_str(text).map_err(|error| Error::of_toml(text, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::precision::Rest;
    use crate::error::ErrorKind;
    use crate::guard::Reason;

    const WHOLE: &str = r#"
model = "pcb.onnx"
name = "line1"
target = "cpu"
precision = "int8"
calibrator = "entropy"
io = "fp16"
layout = "raw"
names = ["open", "short"]
calibration = "good"
golden = "known"

[shapes]
imgsz = "640x384"
batch = 1

[thresholds]
score = 0.3
iou = 0.6
score_by_class = { open = 0.4 }

[guard]
expect = { short = { at_least = 2, small_up_to_px = 12.0 } }
off = ["shifted", "blurred"]

[gate]
pictures = "val"
labels = "val-labels"
limits = { map50 = 0.01 }

[int8]
rest = "float"
keep = ["model.10", "/model.22/cv3.0/cv3.0.2/Conv"]
first = true
few_channels = 32
depthwise = false
attention = true
sums = true
head_inputs = true

[decision]
reject = { open = { score = 0.5, count = 1 } }
expect = { short = 4 }
deadline_ms = 80
suspect_pass = "flagged"

[reload]
shadow_frames = 200
"#;

    #[test]
    fn a_whole_recipe_is_read() {
        let recipe = Recipe::parse(WHOLE).unwrap();
        assert_eq!(recipe.shapes.imgsz, Some(ImageSize::Text("640x384".into())));
        assert_eq!(recipe.thresholds.score_by_class["open"], 0.4);
        assert_eq!(recipe.guard.off, [Reason::Shifted, Reason::Blurred]);
        assert_eq!(recipe.guard.spec().expect["short"].at_least, 2);
        assert_eq!((recipe.gate.limits.map50, recipe.gate.limits.recall), (0.01, 0.005));
        assert_eq!((recipe.int8.rest, recipe.int8.keep.len()), (Some(Rest::Float), 2));
        assert_eq!((recipe.int8.first, recipe.int8.few_channels), (Some(true), Some(32)));
        assert_eq!(recipe.reload, Some(ReloadRules { shadow_frames: 200, agreement: 0.8 }));
        assert_eq!(recipe.decision.unwrap().deadline_ms, Some(80.0));
        let square = Recipe::parse("model = 'm.onnx'\nshapes.imgsz = 320").unwrap();
        assert_eq!(square.shapes.imgsz, Some(ImageSize::Side(320)));
        assert_eq!(square.thresholds, Thresholds::default());
    }

    #[test]
    fn unknown_keys_are_errors_with_their_line() {
        for (text, line, word) in [
            ("model = 'm.onnx'\nmodle = 'x'", 2, "modle"),
            ("model = 'm.onnx'\n[thresholds]\nconf = 0.3", 3, "conf"),
            ("model = 'm.onnx'\n[guard]\noff = ['darkness']", 3, "darkness"),
            ("model = 'm.onnx'\nprecision = 'fp4'", 2, "fp4"),
            ("model = 'm.onnx'\n[int8]\nrest = 'bf16'", 3, "bf16"),
            ("model = 'm.onnx'\n[int8]\nskip = ['a']", 3, "skip"),
            ("name = 'x'", 1, "model"),
            ("model = 'm.onnx'\n[reload]\nframes = 3", 3, "frames"),
            ("model = 'm.onnx'\n[decision]\nsuspect_pass = 'maybe'", 3, "maybe"),
        ] {
            let error = Recipe::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            let text = error.to_string();
            assert!(text.contains(word) && text.starts_with(&format!("line {line}:")), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn reload_rules_out_of_range_are_refused() {
        assert!(ReloadRules::default().check().is_ok());
        for rules in [
            ReloadRules { agreement: 1.5, ..ReloadRules::default() },
            ReloadRules { agreement: f64::NAN, ..ReloadRules::default() },
            ReloadRules { shadow_frames: u64::MAX, ..ReloadRules::default() },
        ] {
            assert_eq!(rules.check().unwrap_err().kind(), ErrorKind::Usage);
        }
    }

    #[test]
    fn paths_are_relative_to_the_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let line = folder.path().join("line7");
        std::fs::create_dir(&line).unwrap();
        std::fs::write(line.join(RECIPE_FILE), "model = '../m.onnx'\ncalibration = 'good'").unwrap();
        for given in [line.clone(), line.join(RECIPE_FILE)] {
            let recipe = Recipe::read(&given).unwrap();
            assert_eq!(recipe.model, line.join("../m.onnx"));
            assert_eq!(recipe.calibration, Some(line.join("good")));
            assert_eq!(recipe.name.as_deref(), Some("line7"));
        }
        let error = Recipe::read(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("recipe.toml"));
    }
}
