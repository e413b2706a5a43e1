//! Proofs in service: the golden frames kept in memory, compared one at a time with the answers of a running engine.
//!
//! Two levels. *Coarse*: against the answers of the build, within the tolerances of the manifest, which cover other
//! machines and other precisions. *Exact*: against the answers of this very engine on this machine, kept after its first
//! good proof; an engine that drifts by half a pixel is seen, whatever the build allows.

use super::compare::Comparison;
use super::proof::{RecordOptions, answer_of, hard_fault};
use super::{Answer, frame};
use crate::bundle::Bundle;
use crate::bundle::manifest::{Golden, Manifest};
use crate::detections::Detector;
use crate::engine::{Inference, Layout};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::units::count;
use std::sync::Arc;

/// Largest corner difference between two answers of one engine on one machine, px of the source picture.
pub const EXACT_PX: f32 = 0.5;
/// Largest score difference between two answers of one engine on one machine.
pub const EXACT_SCORE: f32 = 0.005;

/// What the comparison of one golden frame has shown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Agreement {
    /// Largest corner difference, px of the source picture.
    pub corner_px: f32,
    /// Largest score difference.
    pub score: f32,
    /// Whether it was compared with this machine's own answers; else with those of the build.
    pub exact: bool,
}

impl Agreement {
    /// The larger differences of both; compared as `other` was.
    #[must_use]
    pub fn or_worse(self, other: Agreement) -> Agreement {
        Agreement {
            corner_px: self.corner_px.max(other.corner_px),
            score: self.score.max(other.score),
            exact: other.exact,
        }
    }
}

/// The golden frames of one bundle in memory; clones share the pictures.
#[derive(Debug, Clone)]
pub struct Prover {
    frames: Vec<Known>,
    manifest: Arc<Manifest>,
    thresholds: Vec<f32>,
    exact: Golden,
    detector: Detector,
    score_floor: f32,
}

#[derive(Debug, Clone)]
struct Known {
    name: String,
    frame: Arc<Frame>,
    build: Answer,
    here: Option<Answer>,
}

impl Prover {
    /// The golden frames of `bundle`, decoded.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when a picture or the answers cannot be read.
    pub fn new(bundle: &Bundle) -> Result<Self> {
        let manifest = Arc::new(bundle.manifest().clone());
        let set = bundle.golden()?;
        let frames = set.frames.into_iter().enumerate().map(|(number, golden)| Known {
            name: golden.name,
            frame: Arc::new(frame(count(number), golden.picture)),
            build: golden.answer,
            here: None,
        });
        let of_class = |class: &String| {
            manifest.thresholds.score_by_class.get(class).copied().unwrap_or(manifest.thresholds.score)
        };
        let golden = &manifest.golden;
        let exact = Golden {
            tolerance_px: golden.tolerance_px.min(EXACT_PX),
            tolerance_score: golden.tolerance_score.min(EXACT_SCORE),
            tolerated_share: 0.0,
            ..golden.clone()
        };
        Ok(Prover {
            frames: frames.collect(),
            thresholds: manifest.classes.iter().map(of_class).collect(),
            exact,
            detector: Detector::new(&manifest.thresholds, &manifest.classes)?,
            score_floor: (golden.score_floor - golden.tolerance_score).max(0.0),
            manifest,
        })
    }

    /// Takes over the answers that `other` keeps as this machine's own, when it is for the same golden frames: an engine
    /// that is loaded again is held to the answers of the first one.
    pub fn inherit(&mut self, other: &Prover) {
        for (known, before) in self.frames.iter_mut().zip(&other.frames) {
            if known.name == before.name && known.build == before.build {
                known.here.clone_from(&before.here);
            }
        }
    }

    /// In the message of an error that comes from the comparison with this machine's own answers.
    pub const OWN_ANSWER: &str = "this machine's own first answer";

    /// This machine's own answers by the name of their picture, to be kept; `None` while one of them is not known.
    pub fn own_answers(&self) -> Option<Vec<(String, Answer)>> {
        self.frames.iter().map(|known| Some((known.name.clone(), known.here.clone()?))).collect()
    }

    /// Binds this prover to answers that were kept; `false`, and nothing changed, when they are not for its pictures.
    pub fn adopt(&mut self, answers: Vec<(String, Answer)>) -> bool {
        let fit = answers.len() == self.frames.len()
            && answers.iter().zip(&self.frames).all(|((name, _), known)| *name == known.name);
        if fit {
            for (known, (_, answer)) in self.frames.iter_mut().zip(answers) {
                known.here = Some(answer);
            }
        }
        fit
    }

    /// Number of golden frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none; a bundle always has one.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Golden frame `index`, to be run through the engine with [`Prover::score_floor`].
    pub fn frame(&self, index: usize) -> Option<Arc<Frame>> {
        self.frames.get(index).map(|known| Arc::clone(&known.frame))
    }

    /// The floor that golden frames are run with.
    pub fn score_floor(&self) -> f32 {
        self.score_floor.min(self.manifest.thresholds.lowest_score())
    }

    /// Compares the engine's answer for golden frame `index`: with the build's, then with this machine's where it is known.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] with the frame, what was found and what was expected.
    pub fn compare(&mut self, index: usize, found: &Inference, layout: &Layout) -> Result<Agreement> {
        let (agreement, _) = self.compare_answer(index, found, layout)?;
        Ok(agreement)
    }

    /// As [`Prover::compare`], and keeps the answer as this machine's own when none is kept yet.
    ///
    /// # Errors
    /// As [`Prover::compare`].
    pub fn compare_and_learn(&mut self, index: usize, found: &Inference, layout: &Layout) -> Result<Agreement> {
        let (agreement, answer) = self.compare_answer(index, found, layout)?;
        if let Some(known) = self.frames.get_mut(index)
            && known.here.is_none()
        {
            known.here = Some(answer);
        }
        Ok(agreement)
    }

    fn compare_answer(&mut self, index: usize, found: &Inference, layout: &Layout) -> Result<(Agreement, Answer)> {
        let Some(known) = self.frames.get(index) else {
            return Err(Error::unexpected(format!("found golden frame {index}, expected less than {}", self.len())));
        };
        let named =
            |error: Error| Error::new(error.kind(), format!("known answer of `{}`: {}", known.name, error.message()));
        if found.tag != known.frame.tag() {
            return Err(named(Error::refused(format!(
                "found the answer of frame {} of stream {}",
                found.tag.number, found.tag.stream
            ))));
        }
        if let Some(fault) = hard_fault(&found.stats, layout) {
            return Err(named(Error::refused(format!("the network's output is faulty: {fault}"))));
        }
        let options = RecordOptions {
            thresholds: &self.manifest.thresholds,
            classes: &self.manifest.classes,
            score_floor: self.score_floor,
        };
        let answer = answer_of(found, layout, &mut self.detector, &options);
        let comparison = |golden| Comparison {
            golden,
            thresholds: &self.thresholds,
            fixed_anchors: layout.needs_nms(),
            classes: &self.manifest.classes,
        };
        let coarse = comparison(&self.manifest.golden).compare(&known.build, &answer).map_err(named)?;
        let Some(here) = &known.here else {
            return Ok((Agreement { corner_px: coarse.corner_px, score: coarse.score, exact: false }, answer));
        };
        let exact = comparison(&self.exact)
            .compare(here, &answer)
            .map_err(|error| Error::new(error.kind(), format!("{} ({})", named(error).message(), Self::OWN_ANSWER)))?;
        Ok((Agreement { corner_px: exact.corner_px, score: exact.score, exact: true }, answer))
    }
}

/// Whether two runs of one engine over one frame agree: same boxes within [`EXACT_PX`] and [`EXACT_SCORE`]. Boxes so near
/// the floor that they may come and go are left out.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] with the first difference.
pub fn compare_echo(first: &Inference, second: &Inference, score_floor: f32, layout: &Layout) -> Result<()> {
    if first.tag != second.tag {
        return Err(Error::refused("the second answer is for another frame"));
    }
    if let Some(fault) = hard_fault(&second.stats, layout) {
        return Err(Error::refused(format!("the second output is faulty: {fault}")));
    }
    for (these, those) in [(first, second), (second, first)] {
        for this in these.candidates.boxes.iter().filter(|this| this.score >= score_floor + EXACT_SCORE) {
            let twin = those.candidates.boxes.iter().find(|that| {
                if layout.needs_nms() {
                    that.anchor == this.anchor
                } else {
                    that.class_id == this.class_id && that.edges.iou(&this.edges) > 0.5
                }
            });
            let Some(twin) = twin else {
                return Err(Error::refused(format!("a box of score {:.4} is in one answer alone", this.score)));
            };
            let (one, other): ([f32; 4], [f32; 4]) = (this.edges.into(), twin.edges.into());
            let apart_px = one.iter().zip(other).fold(0.0_f32, |most, (left, right)| most.max((left - right).abs()));
            let apart = (this.score - twin.score).abs();
            if this.class_id != twin.class_id || apart_px > EXACT_PX || apart > EXACT_SCORE {
                return Err(Error::refused(format!(
                    "a box differs by {apart_px:.2} px and {apart:.4} between two runs"
                )));
            }
        }
    }
    Ok(())
}
