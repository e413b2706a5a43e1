//! What a recipe says about precision and the accuracy gate.

use crate::engine::ElementType;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// Precision asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Precision {
    /// The graph keeps the precision it was exported in.
    #[default]
    #[serde(rename = "as exported")]
    AsExported,
    /// Half precision, except what must stay in float.
    #[serde(rename = "fp16")]
    Fp16,
    /// 8-bit convolutions by calibration, the rest in float.
    #[serde(rename = "int8")]
    Int8,
}

impl Precision {
    /// As recipes and manifests write it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::AsExported => "as exported",
            Precision::Fp16 => "fp16",
            Precision::Int8 => "int8",
        }
    }
}

/// Type of a converted graph's inputs and outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Border {
    /// 32-bit floats.
    #[default]
    Fp32,
    /// 16-bit floats: half the bytes to fill and to read.
    Fp16,
}

impl Border {
    /// As recipes and flags write it.
    pub fn name(self) -> &'static str {
        match self {
            Border::Fp32 => "fp32",
            Border::Fp16 => "fp16",
        }
    }

    /// The element type.
    pub fn element(self) -> ElementType {
        match self {
            Border::Fp32 => ElementType::F32,
            Border::Fp16 => ElementType::F16,
        }
    }
}

impl FromStr for Border {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Border::Fp32, Border::Fp16]
            .into_iter()
            .find(|border| border.name() == text)
            .ok_or_else(|| Error::usage(format!("found `{text}`, expected fp32 or fp16")))
    }
}

/// How the range of a tensor is cut off before it is stored in 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calibrator {
    /// The largest magnitude seen.
    Max,
    /// The cut that changes the distribution least (relative entropy).
    Entropy,
    /// The magnitude that 99.99 % of the values stay below.
    Percentile,
    /// The cut with the least mean squared error.
    #[default]
    Mse,
}

impl Calibrator {
    /// As recipes and flags write it.
    pub fn name(self) -> &'static str {
        match self {
            Calibrator::Max => "max",
            Calibrator::Entropy => "entropy",
            Calibrator::Percentile => "percentile",
            Calibrator::Mse => "mse",
        }
    }
}

impl FromStr for Calibrator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Calibrator::Max, Calibrator::Entropy, Calibrator::Percentile, Calibrator::Mse]
            .into_iter()
            .find(|calibrator| calibrator.name() == text)
            .ok_or_else(|| Error::usage(format!("found `{text}`, expected max, entropy, percentile or mse")))
    }
}

/// What the rest of an INT8 graph computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rest {
    /// 16-bit floats, except what must stay in float.
    Half,
    /// 32-bit floats.
    Float,
}

impl FromStr for Rest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "half" => Ok(Rest::Half),
            "float" => Ok(Rest::Float),
            _ => Err(Error::usage(format!("found `{text}`, expected half or float"))),
        }
    }
}

/// `[int8]`: where INT8 goes, and what the rest computes in. What is left out is as the target needs it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Int8Rules {
    /// What the rest computes in; default: half on a GPU, float on a CPU.
    pub rest: Option<Rest>,
    /// Convolutions that stay out of INT8, by name or part: `model.10` means all of that part.
    pub keep: Vec<String>,
    /// Whether the first convolution, which reads the picture, is in INT8 as well; default: on a GPU.
    pub first: Option<bool>,
    /// Convolutions with fewer channels than this, in and out, per group, stay out of INT8, 0: none does; default: 32 on a GPU.
    pub few_channels: Option<u32>,
    /// Whether depthwise convolutions are in INT8.
    pub depthwise: Option<bool>,
    /// Whether the convolutions of attentions are in INT8: queries, keys, values, positions, projection; default: on a CPU.
    pub attention: Option<bool>,
    /// Whether a residual sum adds tensors that are both stored in 8 bits; default: on a GPU.
    pub sums: Option<bool>,
    /// Whether the head's output convolutions, which are not in INT8, read tensors that are stored in 8 bits; default: on a
    /// GPU.
    pub head_inputs: Option<bool>,
}

impl Int8Rules {
    /// Whether they fit what else a recipe says.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for rules without `int8`, and for a rest in float between inputs and outputs in half.
    pub fn check(&self, precision: Precision, io: Border) -> Result<(), Error> {
        let place = "`--int8-…`, recipe table `[int8]`";
        if precision != Precision::Int8 && *self != Int8Rules::default() {
            return Err(Error::usage(format!("found rules for INT8 with the precision `{}`", precision.name()))
                .at(place)
                .hint("ask for INT8 with `--int8` or `precision = \"int8\"`, or leave them out"));
        }
        if self.rest == Some(Rest::Float) && io == Border::Fp16 {
            return Err(Error::usage("found the rest in float with inputs and outputs in fp16, expected fp32 there")
                .at(place)
                .hint("leave `--io` out, or let the rest compute in half"));
        }
        Ok(())
    }
}

/// `[gate]`: the pictures that judge a converted graph, and how much worse it may be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateRules {
    /// Folder with pictures apart from the calibration ones; default: half of `calibration`, by content.
    pub pictures: Option<PathBuf>,
    /// Folder with YOLO labels of those pictures, one text file a picture.
    pub labels: Option<PathBuf>,
    /// Limits that differ from the defaults.
    pub limits: GateLimits,
}

/// Limits over all classes together; single classes are held to them from [`GateLimits::labels_for_class`] labels on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateLimits {
    /// How far mean average precision at an overlap of 0.5 may fall.
    pub map50: f64,
    /// How far recall may fall; never tighter than two boxes.
    pub recall: f64,
    /// Share by which false boxes may become more; never tighter than 2√n boxes.
    pub false_boxes: f64,
    /// Labels from which a class is judged on its own.
    pub labels_for_class: u64,
}

impl Default for GateLimits {
    fn default() -> Self {
        GateLimits { map50: 0.005, recall: 0.005, false_boxes: 0.05, labels_for_class: 400 }
    }
}
