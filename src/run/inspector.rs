//! The work for one capture: answer, detect, judge, decide. One row a capture, whatever happens.
//!
//! Captures go to the engine in batches, several of which may be in flight; [`Inspector::collect`] gives them back in order,
//! each with the answer of its own slot, and [`Inspector::finish`] makes the row of one.

use crate::bundle::Bundle;
use crate::bundle::golden::compare_echo;
use crate::decision::{Decision, Rule};
use crate::detections::{Detection, Detector, Thresholds};
use crate::engine::Inference;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, FrameTag, StreamName};
use crate::guard::ladder::Cause;
use crate::guard::picture::PictureStats;
use crate::guard::{self, Guard, Observation, Reason, Seen, Severity, Side, StreamTraits, Trust, Verdict};
use crate::run::baselines::Baselines;
use crate::run::clerk::Clerk;
use crate::run::depot::{Batch, Closed, Sight, Work};
use crate::run::host::{Answered, Host, Ringer, Trouble};
use crate::run::incident::Recorder;
use crate::run::present::Present;
use crate::run::product::Judging;
use crate::sinks::http::Board;
use crate::sinks::row::{EngineStamp, Row};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{count, length, milliseconds};
use std::collections::VecDeque;
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

/// Which boxes are reported when flags ask for other thresholds than the manifest's.
pub struct Reporting {
    /// Thresholds after `--conf` and `--iou`.
    pub detector: Detector,
}

/// Something about the engine that the run must act on.
#[derive(Debug)]
pub struct Alarm {
    /// What climbs the ladder; `None` for a suspicion, which only asks for a proof.
    pub cause: Option<Cause>,
    /// What was seen, for people.
    pub what: String,
    /// The frame it was seen on, for the first step.
    pub frame: Option<Arc<Frame>>,
    /// A call has not come back yet.
    pub stuck: bool,
}

/// A capture that the engine is done with, to be made a row of.
#[derive(Debug)]
pub struct Answer {
    /// Index of the stream.
    pub lane: usize,
    /// The capture.
    pub work: Box<Work>,
    said: Option<Result<Inference, Trouble>>,
    /// What it shows is known already: it raises no alarm.
    told: bool,
    /// The engine that it was handed to.
    stamp: Arc<EngineStamp>,
}

/// A batch at the engine. Captures without a picture travel along, so that each stream is answered in order.
struct Flight {
    /// `None` when no capture has a picture.
    ticket: Option<u64>,
    captures: Batch,
    /// Why the engine did not take it.
    refused: Option<Trouble>,
    /// The engine that it was handed to: rows name it, also when another one answers by then.
    stamp: Arc<EngineStamp>,
}

/// Answers captures in batches.
pub struct Inspector {
    host: Host,
    flights: VecDeque<Flight>,
    /// Answers of engines that were replaced.
    left: VecDeque<Answered>,
    /// Batches with a lower ticket were in flight when the engine was last repaired.
    told_until: u64,
    ringer: Option<Ringer>,
    call_limit: Duration,
    board: Arc<Board>,
    echo_every: u64,
    until_echo: u64,
    thresholds: Thresholds,
    judged: Detector,
    reporting: Option<Reporting>,
    rule: Option<Rule>,
    streams: Vec<StreamPlace>,
    clerk: Arc<Clerk>,
    stamp: Arc<EngineStamp>,
    present: Arc<Present>,
    telemetry: Arc<Telemetry>,
    recorder: Arc<Recorder>,
    baselines: Arc<Baselines>,
    boxes: Vec<Detection>,
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
    /// [`ErrorKind::Usage`] for thresholds that do not fit the model.
    pub fn new(parts: Parts) -> Result<Self> {
        let (judged, reporting) = detectors(&parts.judging, &parts.host.info().classes)?;
        Ok(Inspector {
            host: parts.host,
            flights: VecDeque::new(),
            left: VecDeque::new(),
            told_until: 0,
            ringer: None,
            call_limit: parts.call_limit,
            board: parts.board,
            echo_every: parts.echo_every,
            until_echo: parts.echo_every,
            thresholds: parts.judging.thresholds,
            judged,
            reporting,
            rule: parts.judging.rule,
            streams: parts.streams,
            clerk: parts.clerk,
            stamp: parts.present.stamp(),
            present: parts.present,
            telemetry: parts.telemetry,
            recorder: parts.recorder,
            baselines: parts.baselines,
            boxes: Vec::with_capacity(300),
        })
    }

    /// The time after its arrival within which a frame must be answered to count as timely.
    fn deadline(&self) -> Option<Duration> {
        self.rule.as_ref().and_then(Rule::deadline)
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
        let of_deadline = self.deadline().map_or(MOST, |deadline| deadline / 10);
        (self.host.usual() / 2).min(MOST).min(of_deadline)
    }

    /// Batches that are at the engine.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Captures that are at the engine.
    pub fn captures_in_flight(&self) -> usize {
        self.flights.iter().map(|flight| flight.captures.len()).sum()
    }

    /// Hands a closed batch to the engine; does not wait.
    pub fn submit(&mut self, captures: Batch, closed: Closed) {
        let now = Instant::now();
        for (lane, work) in &captures {
            let waited = now.saturating_duration_since(work.arrived);
            let labels = Labels::stream(&self.streams[*lane].name);
            self.telemetry.histogram(Metric::FrameWait, labels).observe_ms(milliseconds(waited));
        }
        let frames: Vec<Arc<Frame>> = captures
            .iter()
            .filter_map(|(_, work)| match &work.picture {
                Sight::Frame(frame, _) => Some(Arc::clone(frame)),
                Sight::Unreadable(_) | Sight::SetAside(_) => None,
            })
            .collect();
        let mut flight = Flight { ticket: None, captures, refused: None, stamp: Arc::clone(&self.stamp) };
        if !frames.is_empty() {
            self.count_batch(frames.len(), closed);
            match self.host.submit(frames) {
                Ok(ticket) => flight.ticket = Some(ticket),
                Err(trouble) => flight.refused = Some(trouble),
            }
        }
        self.flights.push_back(flight);
    }

    fn count_batch(&self, frames: usize, closed: Closed) {
        let labels = Labels::engine(&self.stamp.bundle);
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
        let first = self.flights.front()?;
        let answered = match (first.ticket, &first.refused) {
            (Some(_), _) => Some(self.left.pop_front().or_else(|| self.host.collect(self.call_limit))?),
            (None, _) => None,
        };
        let flight = self.flights.pop_front()?;
        let told = flight.ticket.is_some_and(|ticket| ticket < self.told_until);
        let mut answers = match answered {
            Some(answered) if Some(answered.ticket) == flight.ticket => answered.answers.into_iter(),
            Some(answered) => {
                // Cannot happen; if it does, no answer goes to a frame that it may not belong to.
                log::error!("found the answers of batch {}, expected {:?}", answered.ticket, flight.ticket);
                Vec::new().into_iter()
            }
            None => Vec::new().into_iter(),
        };
        let mut refused = flight.refused;
        let of_slot = |(lane, work): (usize, Box<Work>)| {
            let said = match work.picture {
                Sight::Unreadable(_) | Sight::SetAside(_) => None,
                Sight::Frame(..) => Some(match refused.take() {
                    Some(trouble) => {
                        refused = Some(Trouble::GivenUp);
                        Err(trouble)
                    }
                    None => answers.next().unwrap_or_else(|| Err(Trouble::Failed(lost()))),
                }),
            };
            Answer { lane, work, said, told, stamp: Arc::clone(&flight.stamp) }
        };
        let answers: Vec<Answer> = flight.captures.into_iter().map(of_slot).collect();
        let failed = |answer: &Answer| matches!(answer.said, Some(Err(Trouble::Failed(_) | Trouble::Stuck(_))));
        if answers.iter().any(failed) {
            self.telemetry.count(Metric::EngineErrors, Labels::engine(&self.stamp.bundle));
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
        self.told_until = self.host.next_ticket();
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
        self.boxes.clear();
        let mut echo_differs = None;
        if let Some(inference) = &inference {
            let layout = &self.host.info().layout;
            self.judged.detect(&inference.candidates, &inference.letterbox, layout, &mut self.boxes);
            row.timings = inference.timings;
            row.boxes_before_nms = inference.stats.boxes_before_nms;
            echo_differs = self.echo(frame, inference);
        }
        let verdict = self.judge(lane, frame, stats, inference.as_ref(), echo_differs.is_some());
        let answer = inference.as_ref().ok_or_else(|| trouble.as_ref().map_or("", Trouble::what));
        self.recorder.answered(frame, stats, answer, &self.boxes);
        let alarm = Self::alarm(&verdict, frame, trouble, echo_differs);
        Self::take_verdict(row, verdict);
        if let Some(inference) = inference {
            if row.trust != Trust::Fault {
                row.detections = Some(self.reported(&inference));
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

    fn alarm(
        verdict: &Verdict,
        frame: &Arc<Frame>,
        trouble: Option<Trouble>,
        echo_differs: Option<String>,
    ) -> Option<Alarm> {
        let place = format!("stream {}, frame {}", frame.stream, frame.number);
        let alarm = |cause, what: String, stuck| {
            Some(Alarm { cause, what: format!("{place}: {what}"), frame: Some(Arc::clone(frame)), stuck })
        };
        match trouble {
            Some(Trouble::Stuck(limit)) => {
                return alarm(Some(Cause::Slow), format!("the engine has not answered within {limit:.1?}"), true);
            }
            Some(Trouble::Failed(error)) => {
                log::error!("{place}: {error}");
                return match error.kind() {
                    ErrorKind::Device => alarm(Some(Cause::DeviceLost), error.message().to_owned(), false),
                    // The picture does not match its own description: not the engine's fault.
                    ErrorKind::Refused => None,
                    _ => alarm(Some(Cause::Answer), error.message().to_owned(), false),
                };
            }
            Some(Trouble::GivenUp) => return None,
            None => {}
        }
        if let Some(what) = echo_differs {
            return alarm(Some(Cause::Proof), what, false);
        }
        let not_of_the_run = |reason: &Reason| !matches!(reason, Reason::Late | Reason::Changeover);
        let of_engine = |reason: &&Reason| reason.side() == Side::Engine && not_of_the_run(reason);
        let first =
            verdict.reasons.iter().filter(of_engine).min_by_key(|reason| reason.severity() != Severity::Hard)?;
        let cause = (first.severity() == Severity::Hard).then_some(Cause::Answer);
        alarm(cause, first.name().to_owned(), false)
    }

    fn judge(
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
            answer: inference.map(|inference| guard::Answer {
                echo_differs,
                ..guard::Answer::of(inference, layout, &self.boxes, &self.thresholds)
            }),
        };
        self.streams[lane].guard.judge(&seen)
    }

    /// What is reported: the judged boxes, or those at the thresholds that flags ask for.
    fn reported(&mut self, inference: &Inference) -> Vec<Detection> {
        match &mut self.reporting {
            None => self.boxes.clone(),
            Some(reporting) => {
                let mut boxes = Vec::new();
                let layout = &self.host.info().layout;
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

    /// The boxes of the last frame at the manifest's thresholds.
    pub(super) fn judged(&self) -> &[Detection] {
        &self.boxes
    }

    /// The engine, for recovery.
    pub(super) fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Puts another engine in place of the old one, which is given back. Streams, parts and counters stay.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for thresholds that do not fit the model; then nothing has changed.
    pub(super) fn install(&mut self, parts: Installed) -> Result<Host> {
        let detectors = detectors(&parts.judging, &parts.host.info().classes)?;
        self.take_judging(detectors, parts.judging, parts.guards);
        self.call_limit = parts.call_limit;
        let mut before = std::mem::replace(&mut self.host, parts.host);
        // Whatever is still in flight was meant for the engine before: its frames are faults, none is lost.
        before.give_up();
        while let Some(answered) = before.collect(Duration::MAX) {
            self.left.push_back(answered);
        }
        self.told_until = self.host.next_ticket();
        if let Some(ringer) = &self.ringer {
            self.host.rings(Arc::clone(ringer));
        }
        Ok(before)
    }

    /// Judges the same engine's answers in another way.
    ///
    /// # Errors
    /// As [`Inspector::install`].
    pub(super) fn judge_as(&mut self, judging: Judging, guards: Vec<Guard>) -> Result<()> {
        let detectors = detectors(&judging, &self.host.info().classes)?;
        self.take_judging(detectors, judging, guards);
        Ok(())
    }

    fn take_judging(&mut self, detectors: (Detector, Option<Reporting>), judging: Judging, guards: Vec<Guard>) {
        (self.judged, self.reporting) = detectors;
        self.thresholds = judging.thresholds;
        self.rule = judging.rule;
        for (place, guard) in self.streams.iter_mut().zip(guards) {
            place.guard = guard;
        }
        self.stamp = self.present.stamp();
    }

    /// A fresh guard for every stream, for another bundle or product, with what is usual for it.
    ///
    /// # Errors
    /// As [`Guard::new`].
    pub(super) fn guards_for(&self, judging: &Judging, bundle: &Bundle) -> Result<Vec<Guard>> {
        let guard = |(lane, place): (usize, &StreamPlace)| {
            let home = self.baselines.home(lane, &place.name, &judging.baseline, bundle.id());
            Guard::at(&judging.guard, &bundle.manifest().classes, place.traits, home)
        };
        self.streams.iter().enumerate().map(guard).collect()
    }

    /// Gives the engine up and waits at most `limit` until its memory is free. Calls fail until another one is installed.
    pub(super) fn give_up_engine(&mut self, limit: Duration) {
        self.host.abandon(limit);
    }
}

fn lost() -> Error {
    Error::unexpected("the engine gave no answer for this frame")
}

/// What changes with another engine.
pub(super) struct Installed {
    /// The engine, warm and proved.
    pub(super) host: Host,
    /// How long a call may take.
    pub(super) call_limit: Duration,
    /// Thresholds and rule.
    pub(super) judging: Judging,
    /// One guard a stream; empty keeps those that are there.
    pub(super) guards: Vec<Guard>,
}

fn detectors(judging: &Judging, classes: &[String]) -> Result<(Detector, Option<Reporting>)> {
    let reporting = match &judging.reported {
        Some(thresholds) => Some(Reporting { detector: Detector::new(thresholds, classes)? }),
        None => None,
    };
    Ok((Detector::new(&judging.thresholds, classes)?, reporting))
}
