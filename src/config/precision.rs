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
