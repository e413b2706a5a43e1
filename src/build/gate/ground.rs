//! What candidates are held against: pictures, what is true of them, what the model as exported answers.

use super::labels::Truth;
use super::{Judged, coco, labels, limits, operating};
use crate::build::precision::usable::Usable;
use crate::bundle::gate::{ClassFigures, Figures, GateResult, JudgedPlan, Operating};
use crate::config::precision::GateLimits;
use crate::detections::{Detection, Thresholds};
use crate::error::Result;
use crate::units::{count, count32, index, length};
use std::path::Path;

/// Everything that does not change from candidate to candidate.
#[derive(Debug, Clone)]
pub(in crate::build) struct Ground {
    classes: Vec<String>,
    thresholds: Thresholds,
    limits: GateLimits,
    pictures: Usable,
    truth: Option<Vec<Vec<Truth>>>,
    /// Answers of the model as exported.
    pub(super) original: Vec<Vec<Detection>>,
    /// What gave them.
    pub(super) backend: String,
}

impl Ground {
    /// Reads the labels; the original has not answered yet.
    pub(super) fn new(
        classes: &[String],
        thresholds: &Thresholds,
        limits: GateLimits,
        pictures: Usable,
        labels: Option<&Path>,
    ) -> Result<Ground> {
        let truth = labels.map(|folder| labels::read(folder, &pictures, classes)).transpose()?;
        let (classes, thresholds) = (classes.to_vec(), thresholds.clone());
        Ok(Ground { classes, thresholds, limits, pictures, truth, original: Vec::new(), backend: String::new() })
    }

    /// The pictures.
    pub(in crate::build) fn pictures(&self) -> &Usable {
        &self.pictures
    }

    /// The recipe's thresholds.
    pub(super) fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Answers of the original above the thresholds, picture by picture.
    pub(in crate::build) fn original_at_thresholds(&self) -> Vec<Vec<Detection>> {
        self.at_thresholds(&self.original)
    }

    /// The original held against itself: only its own figures say something.
    pub(in crate::build) fn judge_original(&self) -> GateResult {
        self.compare(&self.original, "graph", None).result
    }

    /// Holds `candidate` against the original.
    pub(super) fn compare(&self, candidate: &[Vec<Detection>], judged: &str, plan: Option<JudgedPlan>) -> Judged {
        let (before, after) = (self.at_thresholds(&self.original), self.at_thresholds(candidate));
        let truth = match &self.truth {
            Some(truth) => truth.clone(),
            None => before.iter().map(|answers| answers.iter().map(as_truth).collect()).collect(),
        };
        let original = self.figures(&truth, &self.original, &before);
        let figures = self.figures(&truth, candidate, &after);
        let operating::Compared { shift, pictures: by_picture, scores } =
            operating::shift(&before, &after, count32(self.classes.len()));
        let mut worst: Vec<usize> = (0..by_picture.len()).collect();
        worst.sort_by(|&one, &other| {
            let (one, other) = (by_picture[one], by_picture[other]);
            other.unmatched.cmp(&one.unmatched).then(other.worst_px.total_cmp(&one.worst_px))
        });
        let checks = limits::judge(&original, &figures, &self.limits);
        let result = GateResult {
            judged: judged.to_owned(),
            backend: self.backend.clone(),
            plan,
            pictures: count(self.pictures.len()),
            pictures_sha256: self.pictures.set_hash(),
            truth: if self.truth.is_some() { "labels" } else { "answers of the original" }.to_owned(),
            original,
            candidate: figures,
            shift: Some(shift),
            checks,
        };
        Judged { result, worst, scores, candidate: after }
    }

    /// Figures of `answers` against the labels; `None` where there are none.
    pub(super) fn by_labels(&self, answers: &[Vec<Detection>]) -> Option<Figures> {
        Some(self.figures(self.truth.as_ref()?, answers, &self.at_thresholds(answers)))
    }

    /// True boxes of each class; empty without labels.
    pub(super) fn labels_by_class(&self) -> Vec<u64> {
        let all = || self.truth.iter().flatten().flatten();
        let of = |class_id: u32| count(all().filter(|truth| truth.class_id == class_id).count());
        (0_u32..).zip(&self.classes).map(|(class_id, _)| of(class_id)).collect()
    }

    fn figures(&self, truth: &[Vec<Truth>], all: &[Vec<Detection>], at_thresholds: &[Vec<Detection>]) -> Figures {
        let labelled = self.truth.is_some();
        let mut classes = Vec::new();
        let mut total = Operating::default();
        for (class, class_id) in self.classes.iter().zip(0_u32..) {
            let average = if labelled { coco::average(truth, all, class_id) } else { None };
            let operating = operating::counts(truth, at_thresholds, class_id);
            total.labels += operating.labels;
            total.found += operating.found;
            total.false_boxes += operating.false_boxes;
            classes.push(ClassFigures {
                class: class.clone(),
                ap50: average.map(|average| average.at_50),
                ap50_95: average.map(|average| average.at_50_95),
                operating,
                best_score: if labelled { operating::best_score(truth, all, class_id) } else { None },
            });
        }
        let mean = |value: fn(&ClassFigures) -> Option<f64>| {
            let values: Vec<f64> = classes.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / length(values.len()))
        };
        Figures {
            map50: mean(|class| class.ap50).or(labelled.then_some(0.0)),
            map50_95: mean(|class| class.ap50_95).or(labelled.then_some(0.0)),
            operating: total,
            classes,
        }
    }

    fn at_thresholds(&self, answers: &[Vec<Detection>]) -> Vec<Vec<Detection>> {
        let least = |class_id: u32| {
            let class = self.classes.get(index(class_id));
            class.and_then(|class| self.thresholds.score_by_class.get(class)).copied().unwrap_or(self.thresholds.score)
        };
        let picture = |answers: &Vec<Detection>| {
            answers.iter().filter(|answer| answer.score >= least(answer.class_id)).cloned().collect()
        };
        answers.iter().map(picture).collect()
    }
}

fn as_truth(found: &Detection) -> Truth {
    Truth { class_id: found.class_id, edges_px: coco::edges_px(found) }
}
