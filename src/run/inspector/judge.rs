//! What is seen in one answer, and what is decided by it: thresholds, what is reported, and the recipe's rule.

use crate::decision::{Decision, Rule};
use crate::detections::{Detection, Detector, Thresholds};
use crate::engine::{Inference, Layout};
use crate::error::Result;
use crate::guard::{self, Trust};
use crate::run::product::Judging;
use std::time::Duration;

/// Boxes and decisions of one engine's answers for one product.
pub(super) struct Judge {
    thresholds: Thresholds,
    detector: Detector,
    /// Boxes after `--conf` and `--iou`, when these ask for other ones than the manifest.
    reporting: Option<Detector>,
    rule: Option<Rule>,
    boxes: Vec<Detection>,
}

impl Judge {
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for thresholds that do not fit the model's `classes`.
    pub(super) fn new(judging: Judging, classes: &[String]) -> Result<Self> {
        let reporting = judging.reported.as_ref().map(|thresholds| Detector::new(thresholds, classes)).transpose()?;
        let detector = Detector::new(&judging.thresholds, classes)?;
        Ok(Judge {
            thresholds: judging.thresholds,
            detector,
            reporting,
            rule: judging.rule,
            boxes: Vec::with_capacity(300),
        })
    }

    /// The time after its arrival within which a frame must be answered to count as timely.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.rule.as_ref().and_then(Rule::deadline)
    }

    /// There is no answer, and nothing is seen.
    pub(super) fn sees_nothing(&mut self) {
        self.boxes.clear();
    }

    /// Finds the boxes of one answer.
    pub(super) fn look_at(&mut self, inference: &Inference, layout: &Layout) {
        self.boxes.clear();
        self.detector.detect(&inference.candidates, &inference.letterbox, layout, &mut self.boxes);
    }

    /// The boxes of the last answer at the manifest's thresholds.
    pub(super) fn boxes(&self) -> &[Detection] {
        &self.boxes
    }

    /// What the guard looks at in the last answer.
    pub(super) fn facts<'a>(
        &'a self,
        inference: &'a Inference,
        layout: &Layout,
        echo_differs: bool,
    ) -> guard::Answer<'a> {
        guard::Answer { echo_differs, ..guard::Answer::of(inference, layout, &self.boxes, &self.thresholds) }
    }

    /// What is reported of the last answer: the judged boxes, or those at the thresholds that flags ask for.
    pub(super) fn reported(&mut self, inference: &Inference, layout: &Layout) -> Vec<Detection> {
        match &mut self.reporting {
            None => self.boxes.clone(),
            Some(detector) => {
                let mut boxes = Vec::new();
                detector.detect(&inference.candidates, &inference.letterbox, layout, &mut boxes);
                boxes
            }
        }
    }

    /// What the rule says of the last answer; `None` without a rule.
    pub(super) fn decide(&self, trust: Trust, is_timely: bool) -> Option<Decision> {
        let seen = (trust != Trust::Fault).then_some(self.boxes.as_slice());
        self.rule.as_ref().map(|rule| rule.decide(trust, seen, is_timely))
    }
}
