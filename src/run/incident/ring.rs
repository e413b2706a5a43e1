//! The last frames of each stream, and the last events between frames, in slots that are there from the start.

use super::picture;
use super::report::{self, BoxLine, FrameLine, Measured, OutputLine};
use crate::bundle::golden::{Answer, KnownBox};
use crate::decision::Decision;
use crate::detections::Detection;
use crate::engine::{Candidate, EngineTimings, Inference, Letterbox, MemoryFigures, OutputStats};
use crate::frame::{Frame, FrameTag, StreamName};
use crate::guard::picture::PictureStats;
use crate::guard::{Reason, Trust};
use crate::sinks::row::{EngineStamp, Row};
use crate::units::count;
use std::sync::Arc;
use std::time::SystemTime;

/// Boxes a slot has room for from the start.
const ROOM: usize = 300;

/// Everything known of one frame.
#[derive(Debug, Clone)]
pub(super) struct Shot {
    pub(super) tag: Option<FrameTag>,
    pub(super) frame: Option<Arc<Frame>>,
    stream: StreamName,
    number: Option<u64>,
    at: SystemTime,
    captured_at: Option<SystemTime>,
    source: Option<Arc<str>>,
    part: Option<Arc<str>>,
    measured: Option<Measured>,
    trust: Trust,
    reasons: Vec<Reason>,
    observed: Vec<Reason>,
    decision: Option<Decision>,
    proved_at: Option<SystemTime>,
    error: Option<String>,
    answered: Option<FrameTag>,
    output: Option<(OutputStats, Letterbox)>,
    candidates: Vec<Candidate>,
    candidates_in_all: u64,
    detections: Vec<Detection>,
    timings: EngineTimings,
    age_ms: f64,
    memory: MemoryFigures,
    engine: Option<Arc<EngineStamp>>,
    device: usize,
}

impl Shot {
    /// An empty slot.
    pub(super) fn new() -> Self {
        Shot {
            tag: None,
            frame: None,
            stream: "".into(),
            number: None,
            at: SystemTime::UNIX_EPOCH,
            captured_at: None,
            source: None,
            part: None,
            measured: None,
            trust: Trust::Trusted,
            reasons: Vec::with_capacity(4),
            observed: Vec::with_capacity(4),
            decision: None,
            proved_at: None,
            error: None,
            answered: None,
            output: None,
            candidates: Vec::with_capacity(ROOM),
            candidates_in_all: 0,
            detections: Vec::with_capacity(ROOM),
            timings: EngineTimings::default(),
            age_ms: 0.0,
            memory: MemoryFigures::default(),
            engine: None,
            device: 0,
        }
    }

    /// Forgets the frame and its answer; the room for boxes stays.
    pub(super) fn clear(&mut self) {
        self.tag = None;
        self.frame = None;
        self.measured = None;
        self.error = None;
        self.answered = None;
        self.output = None;
        self.candidates.clear();
        self.candidates_in_all = 0;
        self.detections.clear();
    }

    /// Takes what the engine said of `frame`.
    pub(super) fn take_answer(
        &mut self,
        frame: &Frame,
        stats: &PictureStats,
        answer: Result<&Inference, &str>,
        detections: &[Detection],
    ) {
        self.clear();
        self.tag = Some(frame.tag());
        self.measured = stats.whole.then_some(Measured {
            brightness: stats.brightness,
            contrast: stats.contrast,
            sharpness: stats.sharpness,
            saturated_share: stats.saturated_share,
        });
        match answer {
            Err(error) => self.error = Some(error.to_owned()),
            Ok(inference) => {
                self.answered = Some(inference.tag.clone());
                self.output = Some((inference.stats, inference.letterbox));
                let boxes = &inference.candidates.boxes;
                self.candidates.extend(boxes.iter().take(report::MOST_CANDIDATES));
                self.candidates_in_all = count(boxes.len()) + inference.candidates.overflow;
                self.detections.extend_from_slice(detections);
            }
        }
    }

    /// Takes the row that went out.
    pub(super) fn take_row(&mut self, row: &Row, device: usize) {
        self.stream = Arc::clone(&row.stream);
        self.number = row.number;
        self.at = SystemTime::now();
        self.captured_at = row.captured_at;
        self.source.clone_from(&row.source);
        self.part.clone_from(&row.part);
        self.trust = row.trust;
        self.reasons.clone_from(&row.reasons);
        self.observed.clone_from(&row.observed);
        self.decision = row.decision;
        self.proved_at = row.proved_at;
        self.timings = row.timings;
        self.age_ms = row.age_ms;
        self.memory = row.memory;
        self.engine = Some(Arc::clone(&row.engine));
        self.frame.clone_from(&row.frame);
        self.device = device;
    }

    /// Bytes of the picture that this slot keeps alive.
    pub(super) fn picture_bytes(&self) -> u64 {
        self.frame.as_ref().map_or(0, |frame| count(frame.picture.pixels.as_slice().len()))
    }

    /// The line of `frames.jsonl`; its picture is named by `entry`.
    pub(super) fn line(&self, entry: Option<String>) -> FrameLine {
        let names = |reasons: &[Reason]| reasons.iter().map(|reason| reason.name().to_owned()).collect();
        let own = |answered: &FrameTag| self.tag.as_ref() == Some(answered);
        let answered_for = self.answered.as_ref().filter(|answered| !own(answered));
        FrameLine {
            stream: self.stream.to_string(),
            frame: self.number,
            at: report::time_text(self.at),
            captured_at: self.captured_at.map(report::time_text),
            source: self.source.as_deref().map(str::to_owned),
            part: self.part.as_deref().map(str::to_owned),
            picture: entry.zip(self.frame.as_ref()).map(|(entry, frame)| report::PictureEntry {
                entry,
                format: picture::format_name(frame.picture.format).to_owned(),
                size: frame.picture.size,
            }),
            measured: self.measured,
            trust: self.trust,
            reasons: names(&self.reasons),
            observed: names(&self.observed),
            decision: self.decision,
            proved_at: self.proved_at.map(report::time_text),
            error: self.error.clone(),
            answered_for: answered_for.map(|tag| format!("stream {}, frame {}", tag.stream, tag.number)),
            output: self.output.as_ref().map(|(stats, _)| OutputLine::from(stats)),
            candidates: self.output.map_or_else(Vec::new, |(_, letterbox)| candidates(&self.candidates, &letterbox)),
            candidates_in_all: self.candidates_in_all,
            detections: detections(&self.detections),
            timings_ms: self.timings,
            age_ms: self.age_ms,
            memory_bytes: self.memory,
            sha256: self.engine.as_ref().map_or_else(String::new, |engine| engine.sha256.clone()),
            device: count(self.device),
        }
    }
}

/// Candidates in px of the source picture, at most [`Answer::MOST_CANDIDATES`].
pub(super) fn candidates(candidates: &[Candidate], letterbox: &Letterbox) -> Vec<BoxLine> {
    let known = candidates.iter().take(Answer::MOST_CANDIDATES).map(|candidate| KnownBox {
        anchor: Some(candidate.anchor),
        class_id: candidate.class_id,
        score: candidate.score,
        edges: letterbox.to_source(candidate.edges),
    });
    report::boxes(&known.collect::<Vec<_>>())
}

/// Detections, not clipped.
pub(super) fn detections(detections: &[Detection]) -> Vec<BoxLine> {
    let known = detections.iter().map(|found| KnownBox {
        anchor: None,
        class_id: found.class_id,
        score: found.score,
        edges: found.unclipped,
    });
    report::boxes(&known.collect::<Vec<_>>())
}

/// The last frames of one stream.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: StreamName,
    slots: Vec<Shot>,
    /// The next slot to be overwritten: the oldest one.
    next: usize,
    held_bytes: u64,
    most_bytes: u64,
    /// The last row was no fault.
    pub(super) well: bool,
}

impl Lane {
    /// A ring for the last `slots` frames, whose pictures keep at most `most_bytes` alive; 0 when nothing is recorded.
    pub(super) fn new(name: StreamName, most_bytes: u64, slots: usize) -> Self {
        let slots = (0..slots).map(|_| Shot::new()).collect();
        Lane { name, slots, next: 0, held_bytes: 0, most_bytes, well: true }
    }

    /// Puts `shot` in and gives the oldest one back, cleared.
    pub(super) fn swap(&mut self, mut shot: Shot) -> Shot {
        let slots = self.slots.len();
        let Some(oldest) = self.slots.get_mut(self.next) else { return shot };
        self.held_bytes += shot.picture_bytes();
        std::mem::swap(&mut shot, oldest);
        self.next = (self.next + 1) % slots;
        self.held_bytes -= shot.picture_bytes();
        shot.clear();
        // What does not fit loses its oldest pictures; what is known of those frames stays.
        for at in 0..slots {
            if self.held_bytes <= self.most_bytes {
                break;
            }
            let slot = &mut self.slots[(self.next + at) % slots];
            self.held_bytes -= slot.picture_bytes();
            slot.frame = None;
        }
        shot
    }

    /// The frames, oldest first.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Shot> {
        let (newer, older) = self.slots.split_at(self.next);
        older.iter().chain(newer).filter(|shot| shot.engine.is_some())
    }

    /// Bytes of pictures kept alive.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}
