//! The work for one capture: answer, detect, judge, decide. One row a capture, whatever happens.
//!
//! Captures go to the engine in batches, several of which may be in flight; [`Inspector::collect`] gives them back in order,
//! each with the answer of its own slot, and [`Inspector::finish`] makes the row of one. Which answer is whose is known to
//! `flights`, what is seen in it and decided by it to `judge`, what the run must act on to `alarm`.

mod alarm;
mod flights;
mod judge;
mod replace;

pub use alarm::Alarm;
pub use flights::Answer;
use flights::{Flights, lost};
use judge::Judge;
pub(super) use replace::Installed;

use crate::bundle::golden::compare_echo;
use crate::decision::Decision;
use crate::detections::Detection;
use crate::engine::Inference;
use crate::error::Result;
use crate::frame::{Frame, FrameTag, StreamName};
use crate::guard::picture::PictureStats;
use crate::guard::{Guard, Observation, Seen, StreamTraits, Trust, Verdict};
use crate::run::baselines::Baselines;
use crate::run::clerk::Clerk;
use crate::run::depot::{Batch, Closed, Sight, Work};
use crate::run::host::{Host, Ringer, Trouble};
use crate::run::incident::Recorder;
use crate::run::present::Present;
use crate::run::product::Judging;
use crate::sinks::http::Board;
use crate::sinks::row::{EngineStamp, Row};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{count, length, milliseconds};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the inspector knows of a stream.
pub struct StreamPlace {
    /// Unique name.
    pub name: StreamName,
    /// Its guard.
    pub guard: Guard,
    /// What kind of stream the guard judges.
    pub traits: StreamTraits,
    /// Whether only triggered frames are parts; otherwise every frame gets a decision.
    pub triggered: bool,
}

/// Answers captures in batches.
pub struct Inspector {
    host: Host,
    flights: Flights,
    ringer: Option<Ringer>,
    call_limit: Duration,
    board: Arc<Board>,
    echo_every: u64,
    until_echo: u64,
    judge: Judge,
    streams: Vec<StreamPlace>,
    clerk: Arc<Clerk>,
    stamp: Arc<EngineStamp>,
    present: Arc<Present>,
    telemetry: Arc<Telemetry>,
    recorder: Arc<Recorder>,
    baselines: Arc<Baselines>,
}

/// What an inspector is made of.
pub struct Parts {
    /// The engine, warm and proved.
    pub host: Host,
    /// How long a call may take.
    pub call_limit: Duration,
    /// Every how many frames one is run twice; 0: never.
    pub echo_every: u64,
    /// What pages and health checks see.
    pub board: Arc<Board>,
    /// Thresholds and rule.
    pub judging: Judging,
    /// One entry a lane.
    pub streams: Vec<StreamPlace>,
    /// The parts.
    pub clerk: Arc<Clerk>,
    /// Which engine answers, and when it was proved.
    pub present: Arc<Present>,
    /// Counters.
    pub telemetry: Arc<Telemetry>,
    /// The deep log.
    pub recorder: Arc<Recorder>,
    /// What is usual on each stream.
    pub baselines: Arc<Baselines>,
}

impl Inspector {
    /// An inspector over a proved engine.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for thresholds that do not fit the model.
    pub fn new(parts: Parts) -> Result<Self> {
        let judge = Judge::new(parts.judging, &parts.host.info().classes)?;
        Ok(Inspector {
            host: parts.host,
            flights: Flights::default(),
            ringer: None,
            call_limit: parts.call_limit,
            board: parts.board,
            echo_every: parts.echo_every,
            until_echo: parts.echo_every,
            judge,
            streams: parts.streams,
            clerk: parts.clerk,
            stamp: parts.present.stamp(),
            present: parts.present,
            telemetry: parts.telemetry,
            recorder: parts.recorder,
            baselines: parts.baselines,
        })
    }

    /// Answers one capture of the stream with index `lane` and waits for the engine.
    ///
    /// The second value is what the run must act on before the next frame.
    pub fn inspect(&mut self, lane: usize, work: Work) -> (Row, Option<Alarm>) {
        let work = Box::new(work);
        let said = match &work.picture {
            Sight::Frame(frame, _) => Some(self.call(&Arc::clone(frame), None)),
            Sight::Unreadable(_) | Sight::SetAside(_) => None,
        };
        let stamp = Arc::clone(&self.stamp);
        self.finish(Answer { lane, work, said, told: false, stamp })
    }

    /// Calls `ringer` from the engine's thread after every answer of this engine and of those that replace it.
    pub fn rings(&mut self, ringer: Ringer) {
        self.host.rings(Arc::clone(&ringer));
        self.ringer = Some(ringer);
    }

    /// Most captures of the next batch; 0 when the engine has no room.
    pub fn room(&self) -> usize {
        if self.host.has_room() { self.host.batch() } else { 0 }
    }

    /// Most captures of a batch.
    pub fn batch(&self) -> usize {
        self.host.batch()
    }

    /// How long a capture waits for others, when nobody has said otherwise: half of what the engine takes, so that it is
    /// never the wait that makes an answer late, and at most a tenth of the decision's deadline.
    pub fn usual_wait(&self) -> Duration {
        const MOST: Duration = Duration::from_millis(10);
        let of_deadline = self.judge.deadline().map_or(MOST, |deadline| deadline / 10);
        (self.host.usual() / 2).min(MOST).min(of_deadline)
    }

    /// Batches that are at the engine.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Captures that are at the engine.
    pub fn captures_in_flight(&self) -> usize {
        self.flights.captures()
    }

    /// Hands a closed batch to the engine; does not wait.
    pub fn submit(&mut self, captures: Batch, closed: Closed) {
        let now = Instant::now();
        for (lane, work) in &captures {
            let waited = now.saturating_duration_since(work.arrived);
            let labels = Labels::stream(&self.streams[*lane].name);
            self.telemetry.histogram(Metric::FrameWait, labels).observe_ms(milliseconds(waited));
        }
        let pictures = self.flights.submit(&mut self.host, captures, &self.stamp);
        if pictures > 0 {
            self.count_batch(pictures, closed);
        }
    }

    fn count_batch(&self, frames: usize, closed: Closed) {
        let labels = Labels::engine(self.stamp.label());
        self.telemetry.count(Metric::Batches, labels.because(closed.name()));
        self.telemetry.counter(Metric::BatchFrames, labels).add(count(frames));
        let fill = self.telemetry.gauge(Metric::BatchFill, labels);
        let now = length(frames) / length(self.host.batch());
        let before = fill.value();
        fill.set(if before > 0.0 { 0.9 * before + 0.1 * now } else { now });
    }

    /// The captures of the first batch, when the engine is done with it; never waits. A batch beyond the time limit is
    /// stuck.
    pub fn collect(&mut self) -> Option<Vec<Answer>> {
        let answers = self.flights.collect(&mut self.host, self.call_limit)?;
        let failed = |answer: &Answer| matches!(answer.said, Some(Err(Trouble::Failed(_) | Trouble::Stuck(_))));
        if answers.iter().any(failed) {
            self.telemetry.count(Metric::EngineErrors, Labels::engine(self.stamp.label()));
        }
        Some(answers)
    }

    /// When [`Inspector::collect`] must be asked again at the latest, to find a stuck batch.
    pub fn due_in(&self) -> Option<Duration> {
        self.host.due_in(self.call_limit)
    }

    /// The answers in flight are not wanted: each of their frames is a fault. For a fault that a proof has shown.
    pub(super) fn give_up_flights(&mut self) {
        self.host.give_up();
    }

    /// The engine is repaired: what was in flight meanwhile raises no further alarm.
    pub(super) fn repaired(&mut self) {
        self.flights.repaired();
    }

    /// Makes the row of one capture.
    ///
    /// The second value is what the run must act on before the next batch.
    pub fn finish(&mut self, answer: Answer) -> (Row, Option<Alarm>) {
        let Answer { lane, work, said, told, stamp } = answer;
        let mut row = self.blank(lane, &work);
        row.engine = stamp;
        let mut alarm = None;
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
            Sight::SetAside(reason) => row.reasons = vec![reason],
            Sight::Frame(ref frame, ref stats) => {
                let said = said.unwrap_or_else(|| Err(Trouble::Failed(lost())));
                alarm = self.answer(lane, frame, stats, said, &mut row);
            }
        }
        self.decide(lane, &work, &mut row);
        row.age_ms = milliseconds(work.arrived.elapsed());
        (row, alarm.filter(|_| !told))
    }

    /// A row without an answer: for a part that found no room or whose deadline passed.
    pub fn blank(&self, lane: usize, work: &Work) -> Row {
        let frame = match &work.picture {
            Sight::Frame(frame, _) => Some(Arc::clone(frame)),
            Sight::Unreadable(_) | Sight::SetAside(_) => None,
        };
        Row {
            stream: Arc::clone(&self.streams[lane].name),
            number: Some(work.number),
            captured_at: work.captured_at,
            source: work.source.clone(),
            trust: Trust::Fault,
            reasons: Vec::new(),
            observed: Vec::new(),
            standing: self.streams[lane].guard.standing(),
            decision: None,
            part: None,
            proved_at: self.present.proved_at(),
            detections: None,
            boxes_before_nms: 0,
            timings: Default::default(),
            age_ms: 0.0,
            memory: self.host.memory(),
            engine: Arc::clone(&self.stamp),
            frame,
        }
    }

    fn take_verdict(row: &mut Row, verdict: Verdict) {
        row.trust = verdict.trust;
        row.reasons = verdict.reasons;
        row.observed = verdict.observed;
        row.standing = verdict.standing;
    }

    fn answer(
        &mut self,
        lane: usize,
        frame: &Arc<Frame>,
        stats: &PictureStats,
        said: Result<Inference, Trouble>,
        row: &mut Row,
    ) -> Option<Alarm> {
        let (inference, trouble) = match said {
            Ok(inference) => (Some(inference), None),
            Err(trouble) => (None, Some(trouble)),
        };
        row.memory = self.host.memory();
        self.judge.sees_nothing();
        let mut echo_differs = None;
        if let Some(inference) = &inference {
            self.judge.look_at(inference, &self.host.info().layout);
            row.timings = inference.timings;
            row.boxes_before_nms = inference.stats.boxes_before_nms;
            echo_differs = self.echo(frame, inference);
        }
        let verdict = self.ask_guard(lane, frame, stats, inference.as_ref(), echo_differs.is_some());
        let answer = inference.as_ref().ok_or_else(|| trouble.as_ref().map_or("", Trouble::what));
        self.recorder.answered(frame, stats, answer, self.judge.boxes());
        let alarm = Alarm::of(&verdict, frame, trouble, echo_differs);
        Self::take_verdict(row, verdict);
        if let Some(inference) = inference {
            if row.trust != Trust::Fault {
                row.detections = Some(self.judge.reported(&inference, &self.host.info().layout));
            }
            self.host.recycle(inference);
        }
        alarm
    }

    /// Runs one frame through the engine within the time limit.
    pub(super) fn call(&mut self, frame: &Arc<Frame>, score_floor: Option<f32>) -> Result<Inference, Trouble> {
        let board = &self.board;
        self.host.call(Arc::clone(frame), score_floor, self.call_limit, &|| board.heartbeat())
    }

    /// Every so many frames, runs the frame again; what differs, when something does.
    fn echo(&mut self, frame: &Arc<Frame>, first: &Inference) -> Option<String> {
        if self.echo_every == 0 {
            return None;
        }
        self.until_echo -= 1;
        if self.until_echo > 0 {
            return None;
        }
        self.until_echo = self.echo_every;
        let second = match self.call(frame, None) {
            Ok(second) => second,
            Err(Trouble::Failed(error)) => return Some(format!("the second run failed: {}", error.message())),
            Err(Trouble::Stuck(limit)) => return Some(format!("the second run took longer than {limit:.1?}")),
            Err(Trouble::GivenUp) => return None,
        };
        let info = self.host.info();
        let differs = compare_echo(first, &second, info.score_floor, &info.layout).err();
        self.host.recycle(second);
        differs.map(|error| error.message().to_owned())
    }

    fn ask_guard(
        &mut self,
        lane: usize,
        frame: &Frame,
        stats: &PictureStats,
        inference: Option<&Inference>,
        echo_differs: bool,
    ) -> Verdict {
        let layout = &self.host.info().layout;
        let tag = frame.tag();
        let seen = Observation {
            tag: &tag,
            arrived: frame.arrived,
            picture: Seen::Picture(stats),
            answer: inference.map(|inference| self.judge.facts(inference, layout, echo_differs)),
        };
        self.streams[lane].guard.judge(&seen)
    }

    fn decide(&self, lane: usize, work: &Work, row: &mut Row) {
        let now = Instant::now();
        match &work.part {
            Some(tag) => {
                let on_time = tag.deadline.is_none_or(|deadline| now <= deadline);
                let wanted = self.judge.decide(row.trust, on_time);
                // A part that is closed already has its row: this one is an ordinary result without a decision.
                if let Some(decided) = self.clerk.answer(&tag.id, wanted.unwrap_or(Decision::NotInspected), now) {
                    row.part = Some(decided.part);
                    row.decision = wanted.map(|_| decided.decision);
                }
            }
            None if !self.streams[lane].triggered => {
                let deadline = self.judge.deadline();
                let on_time = deadline.is_none_or(|deadline| now.duration_since(work.arrived) <= deadline);
                row.decision = self.judge.decide(row.trust, on_time);
            }
            None => {}
        }
    }

    /// The boxes of the last frame at the manifest's thresholds.
    pub(super) fn judged(&self) -> &[Detection] {
        self.judge.boxes()
    }

    /// The engine, for recovery.
    pub(super) fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Gives the engine up and waits at most `limit` until its memory is free. Calls fail until another one is installed.
    pub(super) fn give_up_engine(&mut self, limit: Duration) {
        self.host.abandon(limit);
    }
}
