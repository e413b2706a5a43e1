//! From candidates to detections: class-wise NMS and the way back to pixels of the source picture.

mod detector;

pub use detector::Detector;

use crate::units::BoxPx;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is reported and judged: score, overlap and counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Least score, 0..1.
    pub score: f32,
    /// Least score of single classes by name; overrides `score`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub score_by_class: BTreeMap<String, f32>,
    /// Boxes of one class that overlap more than this (intersection over union) are one object.
    pub iou: f32,
    /// Whether boxes of different classes suppress each other.
    pub over_all_classes: bool,
    /// Most candidates that enter NMS; the highest scores are kept.
    pub candidates_before_nms: u32,
    /// Most boxes after NMS.
    pub boxes: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            score: 0.25,
            score_by_class: BTreeMap::new(),
            iou: 0.7,
            over_all_classes: false,
            candidates_before_nms: 8400,
            boxes: 300,
        }
    }
}

impl Thresholds {
    /// The lowest score that any class asks for: the floor an engine needs for these thresholds.
    pub fn lowest_score(&self) -> f32 {
        self.score_by_class.values().fold(self.score, |lowest, &score| lowest.min(score))
    }
}

/// One object in one picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Index into the model's class names.
    pub class_id: u32,
    /// Score, 0..1.
    pub score: f32,
    /// Edges in pixels of the source picture, clipped to it.
    #[serde(rename = "box")]
    pub edges: BoxPx,
    /// Edges before clipping, for the check of boxes outside the picture.
    #[serde(skip)]
    pub unclipped: BoxPx,
}

#[cfg(test)]
mod tests;
