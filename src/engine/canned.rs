//! An engine that answers from a list: for tests, the fault harness and runs of millions of frames. It looks at no pixel.

use super::{
    Candidate, Candidates, ElementType, Engine, EngineInfo, EngineTimings, Inference, InputSpec, Layout, Letterbox,
    MemoryFigures, OutputStats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, FrameTag};
use crate::units::{BoxPx, SizePx, count, count32, float};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the engine answers for one frame. Edges are in pixels of the network's input.
#[derive(Debug, Clone, Default)]
pub struct CannedAnswer {
    /// The boxes; those below the floor are left out, as a real engine does.
    pub candidates: Vec<Candidate>,
    /// Output statistics; `None` gives those of a healthy output with these boxes.
    pub stats: Option<OutputStats>,
    /// Time the call takes, by sleeping.
    pub delay: Duration,
    /// The call fails with this kind and message, for this and all frames of the call.
    pub error: Option<(ErrorKind, String)>,
    /// The answer claims to be for this frame, as a mixed-up buffer would.
    pub claimed_tag: Option<FrameTag>,
}

impl CannedAnswer {
    /// Boxes and nothing else.
    pub fn boxes(candidates: Vec<Candidate>) -> Self {
        CannedAnswer { candidates, ..Self::default() }
    }

    /// A call that fails.
    pub fn failing(kind: ErrorKind, message: impl Into<String>) -> Self {
        CannedAnswer { error: Some((kind, message.into())), ..Self::default() }
    }
}

/// What a script may do about one frame; it overwrites `answer`, whose buffers are reused.
pub type Script = Box<dyn FnMut(u64, &Frame, &mut CannedAnswer) + Send>;

/// An engine with fixed or scripted answers.
pub struct CannedEngine {
    info: EngineInfo,
    script: Script,
    calls: u64,
    answer: CannedAnswer,
    spare: Vec<Vec<Candidate>>,
    /// What a run takes, whatever is in it.
    run: Duration,
    lanes: Vec<Option<Flight>>,
    /// When the runs begun so far are over: like a device, it computes one at a time.
    device_free: Option<Instant>,
}

/// A run in a lane.
struct Flight {
    over: Instant,
    answers: Result<Vec<Inference>>,
}

impl std::fmt::Debug for CannedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CannedEngine").field("info", &self.info).field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl CannedEngine {
    /// Answers by a script, which is given the number of the frame since the start (from 0) and the frame.
    pub fn scripted(classes: &[&str], input: SizePx, script: Script) -> Self {
        CannedEngine {
            info: info(classes, input),
            script,
            calls: 0,
            answer: CannedAnswer::default(),
            spare: Vec::new(),
            run: Duration::ZERO,
            lanes: vec![None],
            device_free: None,
        }
    }

    /// The same boxes for every frame.
    pub fn fixed(classes: &[&str], input: SizePx, candidates: Vec<Candidate>) -> Self {
        Self::scripted(classes, input, Box::new(move |_, _, answer| answer.candidates.clone_from(&candidates)))
    }

    /// The answers in turn; the last one is repeated.
    pub fn listed(classes: &[&str], input: SizePx, answers: Vec<CannedAnswer>) -> Self {
        let script = move |call: u64, _: &Frame, answer: &mut CannedAnswer| {
            let last = answers.len().saturating_sub(1);
            let at = usize::try_from(call).unwrap_or(last).min(last);
            *answer = answers.get(at).cloned().unwrap_or_default();
        };
        Self::scripted(classes, input, Box::new(script))
    }

    /// Answers by frame: the first pair whose stream and number fit, else no boxes.
    pub fn by_tag(classes: &[&str], input: SizePx, answers: Vec<(FrameTag, CannedAnswer)>) -> Self {
        let script = move |_: u64, frame: &Frame, answer: &mut CannedAnswer| {
            let found = answers.iter().find(|(tag, _)| *tag.stream == *frame.stream && tag.number == frame.number);
            *answer = found.map(|(_, answer)| answer.clone()).unwrap_or_default();
        };
        Self::scripted(classes, input, Box::new(script))
    }

    /// Encodes each frame's identity in its one box; [`identity_box`] gives the box to compare with.
    pub fn identifying(classes: &[&str], input: SizePx) -> Self {
        let script = |_: u64, frame: &Frame, answer: &mut CannedAnswer| {
            answer.candidates.clear();
            answer.candidates.push(identity_box(&frame.stream, frame.number));
        };
        Self::scripted(classes, input, Box::new(script))
    }

    /// Another batch size than 1.
    #[must_use]
    pub fn with_batch(mut self, batch: u32) -> Self {
        self.info.input.batch = batch;
        self
    }

    /// More lanes than one: runs that can be in flight at once. The runs themselves follow each other, as on a device.
    #[must_use]
    pub fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = (0..lanes.max(1)).map(|_| None).collect();
        self
    }

    /// What a run takes, however many frames are in it; delays of single frames are added.
    #[must_use]
    pub fn with_run_time(mut self, run: Duration) -> Self {
        self.run = run;
        self
    }

    /// Another layout than the raw one.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.info.layout = layout;
        self
    }

    /// Frames answered so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Appends the answers of one run; also what it takes.
    fn answer_all(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> (Result<()>, Duration) {
        let mut took = self.run;
        let before = answers.len();
        for frame in frames {
            match self.answer_one(frame, &mut took) {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    answers.truncate(before);
                    return (Err(error), took);
                }
            }
        }
        (Ok(()), took)
    }

    fn answer_one(&mut self, frame: &Frame, took: &mut Duration) -> Result<Inference> {
        let call = self.calls;
        self.calls += 1;
        self.answer.candidates.clear();
        self.answer.stats = None;
        self.answer.delay = Duration::ZERO;
        self.answer.error = None;
        self.answer.claimed_tag = None;
        (self.script)(call, frame, &mut self.answer);
        *took += self.answer.delay;
        if let Some((kind, message)) = &self.answer.error {
            return Err(Error::new(*kind, message.clone()));
        }
        let mut boxes = self.spare.pop().unwrap_or_default();
        boxes.clear();
        let floor = self.info.score_floor;
        boxes.extend(self.answer.candidates.iter().filter(|candidate| candidate.score >= floor));
        boxes.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.anchor.cmp(&b.anchor)));
        let stats = self.answer.stats.unwrap_or_else(|| healthy(&boxes, &self.info.layout));
        Ok(Inference {
            tag: self.answer.claimed_tag.clone().unwrap_or_else(|| frame.tag()),
            letterbox: Letterbox::fit(frame.picture.size, self.info.input.size),
            candidates: Candidates { boxes, overflow: 0 },
            stats,
            timings: EngineTimings::default(),
        })
    }
}

impl Engine for CannedEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        super::check_batch(&self.info, frames)?;
        let (said, took) = self.answer_all(frames, answers);
        if !took.is_zero() {
            std::thread::sleep(took);
        }
        said
    }

    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn begin(&mut self, lane: usize, frames: &[&Frame]) -> Result<()> {
        super::check_batch(&self.info, frames)?;
        let mut answers = Vec::with_capacity(frames.len());
        let answers = match self.answer_all(frames, &mut answers) {
            (Err(error), _) if error.kind() == ErrorKind::Refused => return Err(error),
            (said, took) => (said.map(|()| answers), took),
        };
        let (answers, took) = answers;
        let now = Instant::now();
        let over = self.device_free.map_or(now, |free| free.max(now)) + took;
        self.device_free = Some(over);
        match self.lanes.get_mut(lane) {
            Some(place @ None) => {
                *place = Some(Flight { over, answers });
                Ok(())
            }
            _ => Err(Error::unexpected(format!("found lane {lane} in flight or missing, expected a free one"))),
        }
    }

    fn finish(&mut self, lane: usize, answers: &mut Vec<Inference>) -> Result<()> {
        let Some(flight) = self.lanes.get_mut(lane).and_then(Option::take) else {
            return Err(Error::unexpected(format!("found nothing in lane {lane}, expected a run")));
        };
        std::thread::sleep(flight.over.saturating_duration_since(Instant::now()));
        answers.extend(flight.answers?);
        Ok(())
    }

    fn memory(&self) -> MemoryFigures {
        MemoryFigures::default()
    }

    fn recycle(&mut self, spent: Inference) {
        if self.spare.len() < super::SPARE_ANSWERS {
            self.spare.push(spent.candidates.boxes);
        }
    }

    fn set_score_floor(&mut self, score_floor: f32) {
        self.info.score_floor = score_floor;
    }
}

/// The box by which [`CannedEngine::identifying`] marks a frame: number and stream are in its edges.
pub fn identity_box(stream: &str, number: u64) -> Candidate {
    let mut hasher = DefaultHasher::new();
    (stream, number).hash(&mut hasher);
    let hash = hasher.finish();
    // 4 × 12 bits: whole numbers that f32 holds exactly.
    let part = |shift: u32| float(u32::try_from((hash >> shift) & 0xfff).unwrap_or(0));
    let edges = BoxPx::new(part(0), part(12), 4096.0 + part(24), 4096.0 + part(36));
    Candidate { anchor: 0, class_id: 0, score: 0.9, edges }
}

fn info(classes: &[&str], input: SizePx) -> EngineInfo {
    let classes: Arc<[String]> = classes.iter().map(|&name| name.to_owned()).collect();
    EngineInfo {
        backend: "canned".to_owned(),
        input: InputSpec { name: "images".to_owned(), batch: 1, channels: 3, size: input, element: ElementType::F32 },
        layout: Layout::Raw { output: "output0".to_owned(), classes: count32(classes.len()), anchors: 8400 },
        classes,
        score_floor: 0.0,
        threads: 0,
    }
}

fn healthy(boxes: &[Candidate], layout: &Layout) -> OutputStats {
    let sum: f32 = boxes.iter().map(|candidate| candidate.score).sum();
    OutputStats {
        values: u64::from(layout.capacity()) * u64::from(layout.classes() + 4),
        maximum_score: boxes.first().map_or(0.0, |candidate| candidate.score),
        mean_score: sum / float(layout.capacity().max(1)),
        boxes_before_nms: count(boxes.len()),
        ..OutputStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Picture;

    fn frame(stream: &str, number: u64) -> Frame {
        Frame::new(stream, number, Picture::rgb(SizePx::new(2, 2), vec![0; 12]))
    }

    #[test]
    fn identities_differ_and_survive() {
        let mut engine = CannedEngine::identifying(&["a"], SizePx::new(64, 64)).with_batch(2);
        let frames = [frame("left", 7), frame("right", 7)];
        let mut answers = Vec::new();
        engine.infer(&[&frames[0], &frames[1]], &mut answers).unwrap();
        assert_eq!(answers[0].candidates.boxes, [identity_box("left", 7)]);
        assert_eq!(answers[1].candidates.boxes, [identity_box("right", 7)]);
        assert_ne!(answers[0].candidates, answers[1].candidates);
        assert_eq!(answers[1].tag, frames[1].tag());
    }

    #[test]
    fn list_runs_through_and_errors_leave_no_half_answer() {
        let answers = vec![CannedAnswer::default(), CannedAnswer::failing(ErrorKind::Device, "device lost")];
        let mut engine = CannedEngine::listed(&["a"], SizePx::new(64, 64), answers).with_batch(2);
        let frame = frame("cam", 0);
        let mut answers = Vec::new();
        let error = engine.infer(&[&frame, &frame], &mut answers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(answers.is_empty());
        assert!(engine.infer(&[&frame, &frame, &frame], &mut answers).is_err());
    }

    #[test]
    fn floor_holds_back_low_scores() {
        let mut engine = CannedEngine::fixed(&["a"], SizePx::new(64, 64), vec![identity_box("x", 1)]);
        let mut answers = Vec::new();
        engine.set_score_floor(0.95);
        engine.infer(&[&frame("x", 1)], &mut answers).unwrap();
        assert!(answers[0].candidates.boxes.is_empty());
    }
}
