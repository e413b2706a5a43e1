//! Another mix of classes than on good frames: one class is taken for another, or is not seen any more.

use super::{About, Advice, Check, NOT_LEARNT, NOT_LIVE, SetUp, Setup};
use crate::error::Result;
use crate::guard::{Observation, Reason, Reference, Severity, Side};
use crate::units::{float64, index};

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::ClassMix,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "the shares of the classes over the last frames with the anchor's and with the rolling baseline's",
    limits: &["class_mix_share", "class_mix_frames", "class_mix_boxes"],
    off_when: "no mix is known or learnt yet, the model has one class, or the source is not live",
    english: Advice {
        seen: "The mix of objects is very different from usual.",
        what_to_do: "If the product has changed, accept a new baseline; if not, have the parts checked by hand.",
    },
    chinese: Advice {
        seen: "各类目标的比例与平时差别很大。",
        what_to_do: "若产品已更换，请接受新基线；否则请人工检查零件。",
    },
};

#[derive(Debug)]
struct ClassMix {
    anchor: Vec<f64>,
    rolling: Option<Vec<f64>>,
    limit: f64,
    least_boxes: f64,
    fade: f64,
    wanted: f64,
    frames: u64,
    present: Vec<f64>,
}

/// Counts as shares, one a class; `None` without boxes.
fn shares(counts: &[u64], classes: usize) -> Option<Vec<f64>> {
    let total = float64(counts.iter().sum());
    let share = |class| counts.get(class).map_or(0.0, |count| float64(*count) / total);
    (total > 0.0).then(|| (0..classes).map(share).collect())
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    let classes = setup.classes.len();
    if classes < 2 {
        return SetUp::off("the model has one class only");
    }
    if !setup.traits.live {
        return SetUp::off(NOT_LIVE);
    }
    let Some(reference) = setup.distributions else { return SetUp::off(NOT_LEARNT) };
    let Some(anchor) = shares(&reference.class_boxes, classes) else {
        return SetUp::off("the reference has no counts by class");
    };
    let limits = setup.limits;
    SetUp::on(ClassMix {
        anchor,
        rolling: setup.rolling.and_then(|rolling| shares(&rolling.class_boxes, classes)),
        limit: limits.class_mix_share,
        least_boxes: limits.class_mix_boxes,
        fade: 1.0 - 1.0 / limits.class_mix_frames.max(1.0),
        wanted: limits.class_mix_frames,
        frames: 0,
        present: vec![0.0; classes],
    })
}

impl Check for ClassMix {
    fn reason(&self) -> Reason {
        Reason::ClassMix
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let Some(answer) = seen.answer else { return false };
        self.frames = self.frames.saturating_add(1);
        self.present.iter_mut().for_each(|boxes| *boxes *= self.fade);
        for found in answer.detections {
            if let Some(boxes) = self.present.get_mut(index(found.class_id)) {
                *boxes += 1.0;
            }
        }
        let boxes: f64 = self.present.iter().sum();
        if float64(self.frames) < self.wanted || boxes < self.least_boxes.max(1.0) {
            return false;
        }
        // Half of the summed differences: the share of boxes that would have to change their class.
        let apart = |baseline: &Vec<f64>| {
            let differences = self.present.iter().zip(baseline).map(|(now, then)| (now / boxes - then).abs());
            differences.sum::<f64>() / 2.0 >= self.limit
        };
        apart(&self.anchor) || self.rolling.as_ref().is_some_and(apart)
    }

    fn roll(&mut self, rolling: &Reference) {
        self.rolling = shares(&rolling.class_boxes, self.anchor.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{Scene, Stream, boxes, live};

    /// Sees frames of which every `each`th box is of the second class.
    fn mixed(stream: &mut Stream, frames: u64, each: usize) -> Option<u64> {
        let mut number = 0;
        (0..frames).find(|_| {
            number += 1;
            let mut seen = boxes(4, 0.8);
            for (at, found) in seen.iter_mut().enumerate() {
                found.class_id = u32::from((4 * number + at).is_multiple_of(each));
            }
            let verdict = stream.see_boxes(&seen);
            verdict.reasons.contains(&Reason::ClassMix)
        })
    }

    fn quick() -> Scene {
        let mut scene = Scene::with_reference();
        scene.spec.limits.class_mix_frames = 200.0;
        scene
    }

    #[test]
    fn one_class_taken_for_another_is_suspect() {
        let mut stream = quick().stream(live());
        assert_eq!(mixed(&mut stream, 400, 100), None);
        let seen = mixed(&mut stream, 600, 1).unwrap();
        assert!((100..400).contains(&seen), "{seen}");
    }

    #[test]
    fn a_lot_of_defects_is_not() {
        let mut stream = quick().stream(live());
        assert_eq!(mixed(&mut stream, 1000, 2), None, "half of the boxes for a long time");
        let mut stream = quick().stream(live());
        mixed(&mut stream, 400, 100);
        assert_eq!(mixed(&mut stream, 100, 1), None, "all of them for a short time");
    }

    #[test]
    fn shares_fill_up_missing_classes() {
        assert_eq!(shares(&[3, 1], 3), Some(vec![0.75, 0.25, 0.0]));
        assert_eq!(shares(&[0, 0], 2), None);
    }
}
