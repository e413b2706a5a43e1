//! The engine thread's work for one capture: answer, detect, judge, decide. One row a capture, whatever happens.

use crate::decision::{Decision, Rule};
use crate::detections::{Detection, Detector, Thresholds};
use crate::engine::{Engine, Inference};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, FrameTag, StreamName};
use crate::guard::picture::PictureStats;
use crate::guard::{self, Guard, Observation, Seen, Trust, Verdict};
use crate::run::clerk::Clerk;
use crate::run::depot::{Sight, Work};
use crate::sinks::row::{EngineStamp, Row};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::milliseconds;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// What the inspector knows of a stream.
pub struct StreamPlace {
    /// Unique name.
    pub name: StreamName,
    /// Its guard.
    pub guard: Guard,
    /// Whether only triggered frames are parts; otherwise every frame gets a decision.
    pub triggered: bool,
}

/// Which boxes are reported when flags ask for other thresholds than the manifest's.
pub struct Reporting {
    /// Thresholds after `--conf` and `--iou`.
    pub detector: Detector,
}

/// Answers captures one by one.
pub struct Inspector {
    engine: Box<dyn Engine>,
    thresholds: Thresholds,
    judged: Detector,
    reporting: Option<Reporting>,
    rule: Option<Rule>,
    streams: Vec<StreamPlace>,
    clerk: Arc<Clerk>,
    stamp: Arc<EngineStamp>,
    proved_at: Option<SystemTime>,
    telemetry: Arc<Telemetry>,
    answers: Vec<Inference>,
    boxes: Vec<Detection>,
}

/// What an inspector is made of.
pub struct Parts {
    /// The engine, warm and proved.
    pub engine: Box<dyn Engine>,
    /// The manifest's thresholds.
    pub thresholds: Thresholds,
    /// What is reported instead, when flags ask for it.
    pub reported: Option<Thresholds>,
    /// The recipe's rule.
    pub rule: Option<Rule>,
    /// One entry a lane.
    pub streams: Vec<StreamPlace>,
    /// The parts.
    pub clerk: Arc<Clerk>,
    /// Which engine answers.
    pub stamp: Arc<EngineStamp>,
    /// When the known answers came out right.
    pub proved_at: Option<SystemTime>,
    /// Counters.
    pub telemetry: Arc<Telemetry>,
}

impl Inspector {
    /// An inspector over a proved engine.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for thresholds that do not fit the model.
    pub fn new(parts: Parts) -> Result<Self> {
        let classes = Arc::clone(&parts.engine.info().classes);
        let judged = Detector::new(&parts.thresholds, &classes)?;
        let reporting = match &parts.reported {
            Some(thresholds) => Some(Reporting { detector: Detector::new(thresholds, &classes)? }),
            None => None,
        };
        Ok(Inspector {
            engine: parts.engine,
            thresholds: parts.thresholds,
            judged,
            reporting,
            rule: parts.rule,
            streams: parts.streams,
            clerk: parts.clerk,
            stamp: parts.stamp,
            proved_at: parts.proved_at,
            telemetry: parts.telemetry,
            answers: Vec::with_capacity(1),
            boxes: Vec::with_capacity(300),
        })
    }

    /// The time after its arrival within which a frame must be answered to count as timely.
    fn deadline(&self) -> Option<Duration> {
        self.rule.as_ref().and_then(Rule::deadline)
    }

    /// Answers one capture of the stream with index `lane`.
    ///
    /// The second value is an error of the engine after which the run cannot go on.
    pub fn inspect(&mut self, lane: usize, work: Work) -> (Row, Option<Error>) {
        let mut row = self.blank(lane, &work);
        let mut fatal = None;
        match work.picture {
            Sight::Unreadable(ref why) => {
                log::warn!(
                    "stream {}: {} cannot be read: {why}",
                    row.stream,
                    row.source.as_deref().unwrap_or("a picture")
                );
                let tag = FrameTag { stream: Arc::clone(&row.stream), number: work.number };
                let seen = Observation { tag: &tag, arrived: work.arrived, picture: Seen::Unreadable, answer: None };
                let verdict = self.streams[lane].guard.judge(&seen);
                Self::take_verdict(&mut row, verdict);
            }
            Sight::Frame(ref frame, ref stats) => fatal = self.answer(lane, frame, stats, &mut row),
        }
        self.decide(lane, &work, &mut row);
        row.age_ms = milliseconds(work.arrived.elapsed());
        (row, fatal)
    }

    /// A row without an answer: for a part that found no room or whose deadline passed.
    pub fn blank(&self, lane: usize, work: &Work) -> Row {
        let frame = match &work.picture {
            Sight::Frame(frame, _) => Some(Arc::clone(frame)),
            Sight::Unreadable(_) => None,
        };
        Row {
            stream: Arc::clone(&self.streams[lane].name),
            number: Some(work.number),
            captured_at: work.captured_at,
            source: work.source.clone(),
            trust: Trust::Fault,
            reasons: Vec::new(),
            observed: Vec::new(),
            decision: None,
            part: None,
            proved_at: self.proved_at,
            detections: None,
            boxes_before_nms: 0,
            timings: Default::default(),
            age_ms: 0.0,
            memory: self.engine.memory(),
            engine: Arc::clone(&self.stamp),
            frame,
        }
    }

    fn take_verdict(row: &mut Row, verdict: Verdict) {
        row.trust = verdict.trust;
        row.reasons = verdict.reasons;
        row.observed = verdict.observed;
    }

    fn answer(&mut self, lane: usize, frame: &Arc<Frame>, stats: &PictureStats, row: &mut Row) -> Option<Error> {
        self.answers.clear();
        let mut fatal = None;
        let asked = self.engine.infer(&[frame], &mut self.answers);
        row.memory = self.engine.memory();
        let inference = match asked {
            Ok(()) => self.answers.pop(),
            Err(error) => {
                self.telemetry.count(Metric::EngineErrors, Labels::engine(&self.stamp.bundle));
                log::error!("stream {}, frame {}: {error}", row.stream, frame.number);
                if error.kind() == ErrorKind::Device {
                    fatal = Some(error);
                }
                None
            }
        };
        self.boxes.clear();
        if let Some(inference) = &inference {
            let layout = &self.engine.info().layout;
            self.judged.detect(&inference.candidates, &inference.letterbox, layout, &mut self.boxes);
            row.timings = inference.timings;
            row.boxes_before_nms = inference.stats.boxes_before_nms;
        }
        let verdict = self.judge(lane, frame, stats, inference.as_ref());
        Self::take_verdict(row, verdict);
        if let Some(inference) = inference.filter(|_| row.trust != Trust::Fault) {
            row.detections = Some(self.reported(&inference));
        }
        fatal
    }

    fn judge(&mut self, lane: usize, frame: &Frame, stats: &PictureStats, inference: Option<&Inference>) -> Verdict {
        let layout = &self.engine.info().layout;
        let tag = frame.tag();
        let seen = Observation {
            tag: &tag,
            arrived: frame.arrived,
            picture: Seen::Picture(stats),
            answer: inference.map(|inference| guard::Answer::of(inference, layout, &self.boxes, &self.thresholds)),
        };
        self.streams[lane].guard.judge(&seen)
    }

    /// What is reported: the judged boxes, or those at the thresholds that flags ask for.
    fn reported(&mut self, inference: &Inference) -> Vec<Detection> {
        match &mut self.reporting {
            None => self.boxes.clone(),
            Some(reporting) => {
                let mut boxes = Vec::new();
                let layout = &self.engine.info().layout;
                reporting.detector.detect(&inference.candidates, &inference.letterbox, layout, &mut boxes);
                boxes
            }
        }
    }

    fn decide(&self, lane: usize, work: &Work, row: &mut Row) {
        let now = Instant::now();
        let judged = (row.trust != Trust::Fault).then_some(self.boxes.as_slice());
        match &work.part {
            Some(tag) => {
                let on_time = tag.deadline.is_none_or(|deadline| now <= deadline);
                let wanted =
                    self.rule.as_ref().map_or(Decision::NotInspected, |rule| rule.decide(row.trust, judged, on_time));
                // A part that is closed already has its row: this one is an ordinary result without a decision.
                if let Some(decided) = self.clerk.answer(&tag.id, wanted, now) {
                    row.part = Some(decided.part);
                    row.decision = self.rule.is_some().then_some(decided.decision);
                }
            }
            None if !self.streams[lane].triggered => {
                let on_time = self.deadline().is_none_or(|deadline| now.duration_since(work.arrived) <= deadline);
                row.decision = self.rule.as_ref().map(|rule| rule.decide(row.trust, judged, on_time));
            }
            None => {}
        }
    }

    /// When the known answers came out right.
    pub fn proved_at(&self) -> Option<SystemTime> {
        self.proved_at
    }

    /// Which engine answers.
    pub fn stamp(&self) -> Arc<EngineStamp> {
        Arc::clone(&self.stamp)
    }

    /// Whether the recipe has a decision rule.
    pub fn has_rule(&self) -> bool {
        self.rule.is_some()
    }
}
