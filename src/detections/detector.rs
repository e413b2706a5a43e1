//! Candidates → detections: thresholds, NMS, pixels of the source picture.

use super::{Detection, Thresholds};
use crate::engine::{Candidate, Candidates, Layout, Letterbox};
use crate::error::{Error, Result};
use crate::units::{BoxPx, SizePx, float, index};

/// Makes detections of candidates. Its buffers are reused: after the first pictures nothing is allocated.
///
/// Time is bounded by `candidates_before_nms` × `boxes` comparisons: a candidate is compared with kept boxes only, and the
/// search ends when `boxes` are kept.
#[derive(Debug, Clone)]
pub struct Detector {
    thresholds: Thresholds,
    /// Least score by class id.
    least_scores: Vec<f32>,
    /// As typed in decimal: 0.7 is not the nearest `f32`.
    iou: f64,
    kept: Vec<Kept>,
    /// Per class, the last kept box; the others hang on it.
    last_of_class: Vec<Option<usize>>,
}

/// A kept box in source pixels, and the one kept before it in its class.
#[derive(Debug, Clone, Copy)]
struct Kept {
    edges: [f64; 4],
    area_px2: f64,
    before: Option<usize>,
}

impl Detector {
    /// A detector for these thresholds and class names (index = class id).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a threshold outside 0..1 or a score for a class that the model does not have.
    pub fn new(thresholds: &Thresholds, classes: &[String]) -> Result<Detector> {
        let within = |field: &str, value: f32| {
            if (0.0..=1.0).contains(&value) {
                return Ok(());
            }
            Err(Error::usage(format!("found {value}, expected a number from 0 to 1"))
                .at(format_args!("thresholds, field `{field}`")))
        };
        within("score", thresholds.score)?;
        within("iou", thresholds.iou)?;
        let mut least_scores = vec![thresholds.score; classes.len()];
        for (name, &score) in &thresholds.score_by_class {
            within(&format!("score_by_class.{name}"), score)?;
            let Some(class_id) = classes.iter().position(|class| class == name) else {
                return Err(Error::usage(format!("found class `{name}`, expected one of {}", classes.join(", ")))
                    .at("thresholds, field `score_by_class`")
                    .hint("class names come from the model; `edge-build inspect` prints them"));
            };
            least_scores[class_id] = score;
        }
        let iou = thresholds.iou.to_string().parse().unwrap_or(f64::from(thresholds.iou));
        let last_of_class = vec![None; if thresholds.over_all_classes { 1 } else { classes.len() }];
        Ok(Detector { thresholds: thresholds.clone(), least_scores, iou, kept: Vec::new(), last_of_class })
    }

    /// The thresholds in use.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Overwrites `detections` with the objects among `candidates`, highest score first, in pixels of the source picture.
    ///
    /// `candidates` must be sorted by score, as engines give them. Boxes of layouts without NMS are only filtered and cut.
    pub fn detect(
        &mut self,
        candidates: &Candidates,
        letterbox: &Letterbox,
        layout: &Layout,
        detections: &mut Vec<Detection>,
    ) {
        detections.clear();
        self.kept.clear();
        self.last_of_class.fill(None);
        let most = index(self.thresholds.boxes);
        let mut left_before_nms = index(self.thresholds.candidates_before_nms);
        for candidate in &candidates.boxes {
            if detections.len() >= most || left_before_nms == 0 {
                break;
            }
            if !self.wants(candidate) {
                continue;
            }
            left_before_nms -= 1;
            let unclipped = letterbox.to_source(candidate.edges);
            if layout.needs_nms() && !self.keeps(candidate.class_id, unclipped) {
                continue;
            }
            detections.push(Detection {
                class_id: candidate.class_id,
                score: candidate.score,
                edges: clip(unclipped, letterbox.source),
                unclipped,
            });
        }
    }

    /// Written so that NaN in any place is refused.
    fn wants(&self, candidate: &Candidate) -> bool {
        let least = self.least_scores.get(index(candidate.class_id));
        least.is_some_and(|&least| candidate.score >= least) && candidate.edges.is_finite()
    }

    /// Keeps the box unless a kept one of its group overlaps it too much.
    fn keeps(&mut self, class_id: u32, edges: BoxPx) -> bool {
        let group = if self.thresholds.over_all_classes { 0 } else { index(class_id) };
        let new = Kept::new(edges, self.last_of_class[group]);
        let mut next = new.before;
        while let Some(at) = next {
            let kept = &self.kept[at];
            if kept.overlap(&new) > self.iou {
                return false;
            }
            next = kept.before;
        }
        self.last_of_class[group] = Some(self.kept.len());
        self.kept.push(new);
        true
    }
}

impl Kept {
    fn new(edges: BoxPx, before: Option<usize>) -> Kept {
        let edges = <[f32; 4]>::from(edges).map(f64::from);
        let [left, top, right, bottom] = edges;
        Kept { edges, area_px2: (right - left) * (bottom - top), before }
    }

    /// Intersection over union; two empty boxes do not overlap.
    #[inline]
    fn overlap(&self, other: &Kept) -> f64 {
        let width = self.edges[2].min(other.edges[2]) - self.edges[0].max(other.edges[0]);
        let height = self.edges[3].min(other.edges[3]) - self.edges[1].max(other.edges[1]);
        if width <= 0.0 || height <= 0.0 {
            return 0.0;
        }
        let intersection = width * height;
        intersection / (self.area_px2 + other.area_px2 - intersection + 1e-9)
    }
}

/// The part of a box inside the picture.
fn clip(edges: BoxPx, picture: SizePx) -> BoxPx {
    let (width, height) = (float(picture.width_px), float(picture.height_px));
    BoxPx::new(
        edges.left_px.clamp(0.0, width),
        edges.top_px.clamp(0.0, height),
        edges.right_px.clamp(0.0, width),
        edges.bottom_px.clamp(0.0, height),
    )
}
