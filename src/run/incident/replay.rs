//! A recorded incident through an engine of this machine, frame by frame.

use super::differ::{Now, Rules, Tolerance};
use super::recording::Recording;
use super::report::{FrameLine, OutputLine};
use super::ring;
use crate::bundle::golden::{EXACT_PX, EXACT_SCORE};
use crate::bundle::{Bundle, Manifest};
use crate::detections::{Detection, Detector};
use crate::engine::{Engine, Inference};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, Picture};
use crate::guard::Trust;
use crate::units::count;
use serde::Serialize;

/// What a replay has shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    /// The incident.
    pub incident: String,
    /// The engine of then.
    pub recorded: Engines,
    /// The engine of now.
    pub now: Engines,
    /// How far answers may be apart to count as the same.
    pub tolerance: Tolerance,
    /// Frames whose answers are the same.
    pub same: u64,
    /// Frames whose answers differ.
    pub differ: u64,
    /// Frames that cannot be run again: they have no picture.
    pub not_run: u64,
    /// Frame by frame.
    pub frames: Vec<Replayed>,
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Engines {
    /// Name of the bundle.
    pub bundle: String,
    /// Bundle id.
    pub sha256: String,
    /// Backend with version.
    pub backend: String,
}

/// How one frame came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answers agree.
    Same,
    /// They do not.
    Differs,
    /// There is no picture to run.
    NotRun,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replayed {
    /// The stream.
    pub stream: String,
    /// Capture number.
    pub frame: Option<u64>,
    /// What the guard said then.
    pub trust: Trust,
    /// Why.
    pub reasons: Vec<String>,
    /// How it came out.
    pub outcome: Outcome,
    /// Boxes after NMS, then and now.
    pub boxes: [u64; 2],
    /// Candidates before NMS, then and now.
    pub candidates: [u64; 2],
    /// Largest difference of an edge between boxes that are the same one, px.
    pub apart_px: f32,
    /// Largest difference of a score between them.
    pub apart_score: f32,
    /// What differs.
    pub differences: Vec<String>,
}

/// Asks for other tolerances than the usual ones.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AskedTolerance {
    /// Largest difference of an edge, px of the source picture.
    pub px: Option<f32>,
    /// Largest difference of a score.
    pub score: Option<f32>,
}

impl AskedTolerance {
    /// Exact for the backend of then; on another one what the bundle allows its known answers.
    fn for_engine(self, manifest: &Manifest, same_backend: bool) -> Tolerance {
        let golden = &manifest.golden;
        let (px, score, share) = match same_backend {
            true => (EXACT_PX, EXACT_SCORE, 0.0),
            false => (
                golden.tolerance_px.max(EXACT_PX),
                golden.tolerance_score.max(EXACT_SCORE),
                golden.tolerated_share.max(0.0),
            ),
        };
        Tolerance { px: self.px.unwrap_or(px), score: self.score.unwrap_or(score), share }
    }
}

/// Runs the frames of `recording` through `engine`, which was loaded from `bundle` with the recorded score floor.
///
/// # Errors
/// [`ErrorKind::Refused`] when the bundle's classes or outputs are others than those recorded; [`ErrorKind::Source`] for a
/// picture that is damaged. An engine that fails on a frame is a difference.
pub fn replay(
    recording: &Recording,
    bundle: &Bundle,
    engine: &mut dyn Engine,
    asked: AskedTolerance,
    each: &mut dyn FnMut(&Replayed),
) -> Result<Replay> {
    let (report, manifest) = (recording.report(), recording.manifest());
    let found = bundle.manifest();
    if found.classes != manifest.classes || found.layout.needs_nms() != manifest.layout.needs_nms() {
        return Err(Error::refused(format!(
            "found a bundle with the classes {}, expected {} as recorded",
            found.classes.join(", "),
            manifest.classes.join(", ")
        ))
        .at(bundle.path().display())
        .hint("only a bundle with the same classes can be compared with this incident"));
    }
    let backend = engine.info().backend.clone();
    let tolerance = asked.for_engine(manifest, backend == report.engine.backend);
    let of_class =
        |class: &String| manifest.thresholds.score_by_class.get(class).copied().unwrap_or(manifest.thresholds.score);
    let thresholds: Vec<f32> = manifest.classes.iter().map(of_class).collect();
    let rules = Rules {
        tolerance,
        fixed_anchors: manifest.layout.needs_nms() && found.layout == manifest.layout,
        score_floor: report.engine.score_floor,
        thresholds: &thresholds,
        classes: &manifest.classes,
    };
    let mut player =
        Player { engine, detector: Detector::new(&manifest.thresholds, &manifest.classes)?, boxes: vec![] };
    let mut replay = Replay {
        incident: report.id.clone(),
        recorded: Engines {
            bundle: report.engine.bundle.clone(),
            sha256: report.engine.sha256.clone(),
            backend: report.engine.backend.clone(),
        },
        now: Engines { bundle: found.name.clone(), sha256: bundle.id().to_owned(), backend },
        tolerance,
        same: 0,
        differ: 0,
        not_run: 0,
        frames: Vec::with_capacity(recording.frames().len()),
    };
    for line in recording.frames() {
        let replayed = match recording.picture(line)? {
            None => not_run(line),
            Some(picture) => compared(line, &player.run(line, picture)?, &rules),
        };
        match replayed.outcome {
            Outcome::Same => replay.same += 1,
            Outcome::Differs => replay.differ += 1,
            Outcome::NotRun => replay.not_run += 1,
        }
        each(&replayed);
        replay.frames.push(replayed);
    }
    Ok(replay)
}

struct Player<'a> {
    engine: &'a mut dyn Engine,
    detector: Detector,
    boxes: Vec<Detection>,
}

impl Player<'_> {
    fn run(&mut self, line: &FrameLine, picture: Picture) -> Result<Now> {
        let frame = Frame::new(line.stream.as_str(), line.frame.unwrap_or(0), picture);
        let mut answers = Vec::with_capacity(1);
        let asked = self.engine.infer(&[&frame], &mut answers);
        let answer = asked.and_then(|()| answers.pop().ok_or_else(|| Error::unexpected("the engine gave no answer")));
        match answer {
            Ok(inference) => Ok(self.now(inference)),
            // The device of this machine is at fault, not the recording.
            Err(error) if matches!(error.kind(), ErrorKind::Device) => Err(error),
            Err(error) => Ok(Now { error: Some(error.message().to_owned()), ..Now::default() }),
        }
    }

    fn now(&mut self, inference: Inference) -> Now {
        let layout = self.engine.info().layout.clone();
        self.detector.detect(&inference.candidates, &inference.letterbox, &layout, &mut self.boxes);
        let now = Now {
            error: None,
            output: Some(OutputLine::from(&inference.stats)),
            candidates: ring::candidates(&inference.candidates.boxes, &inference.letterbox),
            candidates_in_all: count(inference.candidates.boxes.len()) + inference.candidates.overflow,
            detections: ring::detections(&self.boxes),
        };
        self.engine.recycle(inference);
        now
    }
}

fn compared(line: &FrameLine, now: &Now, rules: &Rules<'_>) -> Replayed {
    let found = rules.compare(line, now);
    Replayed {
        outcome: if found.differences.is_empty() { Outcome::Same } else { Outcome::Differs },
        boxes: [count(line.detections.len()), count(now.detections.len())],
        candidates: [line.candidates_in_all, now.candidates_in_all],
        apart_px: found.apart_px,
        apart_score: found.apart_score,
        differences: found.differences,
        ..not_run(line)
    }
}

fn not_run(line: &FrameLine) -> Replayed {
    Replayed {
        stream: line.stream.clone(),
        frame: line.frame,
        trust: line.trust,
        reasons: line.reasons.clone(),
        outcome: Outcome::NotRun,
        boxes: [count(line.detections.len()), 0],
        candidates: [line.candidates_in_all, 0],
        apart_px: 0.0,
        apart_score: 0.0,
        differences: Vec::new(),
    }
}

/// The first characters of a bundle id.
pub fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
