//! What begins and ends an incident. Called once a frame by the loop over captures, and by the service between frames.

mod service;
pub(super) mod words;

use super::report::{EngineFacts, EventLine, Report, SCHEMA, time_text};
use super::ring::{Lane, Shot};
use super::writer::{Note, Writer};
use super::{AFTER, ASKED, FOLDER, IncidentOptions, MOST_ASKED, shelf};
use crate::bundle::Bundle;
use crate::detections::Detection;
use crate::engine::Inference;
use crate::error::{Error, Result};
use crate::frame::{Frame, StreamName};
use crate::guard::picture::PictureStats;
use crate::guard::{Reason, Side, Trust};
use crate::sinks::http::Board;
use crate::sinks::row::{EngineStamp, Row};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{count, milliseconds};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use words::{first_reason, id_of, note_of};

/// Frames that may be between their answer and their row.
const MOST_PENDING: usize = 64;
/// Events kept from before an incident.
const EVENTS_BEFORE: usize = 32;
/// Most events of one incident.
const MOST_EVENTS: usize = 256;
/// An incident is closed after this time although frames are still to come.
const OPEN_FOR: Duration = Duration::from_secs(60);
/// Faults of one kind that come again sooner after the last one began are part of it, not an incident of their own.
const APART: Duration = Duration::from_secs(10);
/// The reason of a log that was asked for.
const REQUESTED: &str = "asked";

/// Records frames and writes incidents down; shared by the inspector, the service and the HTTP side.
pub struct Recorder {
    state: Mutex<State>,
    /// Whether frames are recorded: there is a state folder.
    records: AtomicBool,
    board: Arc<Board>,
    telemetry: Arc<Telemetry>,
}

struct State {
    options: IncidentOptions,
    lanes: Vec<Lane>,
    pending: Vec<Shot>,
    spare: Vec<Shot>,
    events: VecDeque<EventLine>,
    engine: Option<(EngineFacts, Arc<[u8]>)>,
    open: Option<Open>,
    /// Incidents that are closed and not over: they end with the first good frame of their lane.
    lasting: Vec<Lasting>,
    writer: Option<Writer>,
    ids: u64,
    last: Option<(String, Instant)>,
    spent: Duration,
    recorded: u64,
}

struct Open {
    report: Report,
    since: Instant,
    /// Frames still to be recorded, by lane; `None`: not part of it.
    left: Vec<Option<u32>>,
    /// The lane whose first good frame ends it; `None`: the service says when it is over.
    ends_with: Option<usize>,
    over: bool,
}

impl Open {
    /// Whether `row` is of a frame that was at the engine when that was repaired: part of this incident, not a new one.
    fn is_older_than_its_repair(&self, row: &Row, reason: Reason) -> bool {
        let repaired = self.report.recovered_after_ms.filter(|_| self.over && reason.side() == Side::Engine);
        repaired.is_some_and(|after_ms| row.age_ms >= milliseconds(self.since.elapsed()) - after_ms)
    }
}

struct Lasting {
    report: Report,
    since: Instant,
    lane: usize,
}

impl Recorder {
    /// A recorder for these streams. With a state folder it has a thread that writes; without one only the page hears of
    /// incidents.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the folder cannot be made.
    pub fn start(
        options: IncidentOptions,
        state: Option<&Path>,
        streams: &[StreamName],
        board: &Arc<Board>,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Arc<Self>> {
        if options.deep_log && state.is_none() {
            return Err(Error::usage("`--deep-log` needs a folder to write to, found none")
                .hint("name one that outlives the run: `--state DIR`"));
        }
        let writer = match state {
            Some(state) => {
                let folder = state.join(FOLDER);
                board.keep_incidents_in(&folder);
                let shelf = shelf::Shelf::open(&folder, options.space)?;
                shelf.reports().iter().rev().take(Board::INCIDENTS).rev().for_each(|report| {
                    board.note_incident(note_of(report, true));
                });
                Some(Writer::start(shelf, options.memory, Arc::clone(board), Arc::clone(telemetry))?)
            }
            None => None,
        };
        // A counter that appears with its first event is seen by no `increase()`: these stand at 0 from the start.
        let others = ["self_test", "slow", "device_lost", "answer", REQUESTED];
        Reason::all().map(Reason::name).chain(others).for_each(|reason| {
            telemetry.counter(Metric::Incidents, Labels::reason(reason));
        });
        let share = options.memory.0 / count(streams.len().max(1));
        Ok(Arc::new(Recorder {
            records: AtomicBool::new(writer.is_some()),
            state: Mutex::new(State {
                options,
                lanes: streams.iter().map(|name| Lane::new(Arc::clone(name), share, writer.is_some())).collect(),
                pending: Vec::with_capacity(MOST_PENDING),
                spare: Vec::new(),
                events: VecDeque::with_capacity(EVENTS_BEFORE),
                engine: None,
                open: None,
                lasting: Vec::new(),
                writer,
                ids: 0,
                last: None,
                spent: Duration::ZERO,
                recorded: 0,
            }),
            board: Arc::clone(board),
            telemetry: Arc::clone(telemetry),
        }))
    }

    /// The line for people about where incidents go.
    pub fn line(&self) -> String {
        let state = self.lock();
        if state.writer.is_some() {
            let (space, memory) = (state.options.space, state.options.memory);
            return format!(
                "incidents: kept in the state folder, at most {space}; up to {memory} of pictures in memory"
            );
        }
        "incidents: not written down, because there is no state folder (`--state DIR`)".to_owned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which engine answers from now on.
    pub(crate) fn engine_is(&self, bundle: &Bundle, stamp: &EngineStamp, score_floor: f32, device: usize) {
        let mut state = self.lock();
        let facts = EngineFacts {
            bundle: stamp.bundle.clone(),
            sha256: stamp.sha256.clone(),
            path: bundle.path().display().to_string(),
            backend: stamp.backend.clone(),
            device: count(device),
            score_floor,
        };
        if state.engine.as_ref().is_some_and(|(before, _)| *before != facts) {
            let text = format!("{} {} on {}, device {device}", facts.bundle, facts.sha256, facts.backend);
            state.event("engine", &text);
        }
        state.engine = Some((facts, bundle.manifest_bytes().into()));
    }

    /// The engine has answered `frame`, or has not: called before the answer's buffers are used again.
    pub fn answered(
        &self,
        frame: &Frame,
        stats: &PictureStats,
        answer: Result<&Inference, &str>,
        detections: &[Detection],
    ) {
        if !self.records.load(Ordering::Relaxed) {
            return;
        }
        let since = Instant::now();
        let mut state = self.lock();
        if state.pending.len() >= MOST_PENDING {
            let oldest = state.pending.remove(0);
            state.spare.push(oldest);
        }
        let mut shot = state.spare.pop().unwrap_or_else(Shot::new);
        shot.take_answer(frame, stats, answer, detections);
        state.pending.push(shot);
        state.spent += since.elapsed();
    }

    /// A row goes out.
    pub fn row(&self, row: &Row) {
        let since = Instant::now();
        let mut state = self.lock();
        let state = &mut *state;
        let Some(lane) = state.lanes.iter().position(|lane| lane.name == row.stream) else { return };
        if state.writer.is_none() {
            self.look(state, lane, row, None);
            return;
        }
        let shot = state.shot_of(row);
        self.look(state, lane, row, Some(&shot));
        let spare = state.lanes[lane].swap(shot);
        if state.spare.len() < MOST_PENDING {
            state.spare.push(spare);
        }
        state.spent += since.elapsed();
        state.recorded += 1;
    }

    /// What this row begins, carries on or ends.
    fn look(&self, state: &mut State, lane: usize, row: &Row, shot: Option<&Shot>) {
        // A frame that is set aside because the line makes another product is no incident.
        let fault = row.trust == Trust::Fault && row.reasons != [Reason::Changeover];
        let begins = fault && state.lanes[lane].well;
        state.lanes[lane].well = !fault;
        if !fault {
            self.good_frame(state, lane);
        }
        let reason = first_reason(row);
        let again = state.last.as_ref().is_some_and(|(last, at)| *last == reason.name() && at.elapsed() < APART);
        let late = state.open.as_ref().is_some_and(|open| open.is_older_than_its_repair(row, reason));
        let is_new = begins && !again && !late;
        let gives_way = |open: &Open| open.since.elapsed() > OPEN_FOR || (is_new && open.over);
        if state.open.as_ref().is_some_and(gives_way) {
            self.close(state, true);
        }
        if state.open.is_none() && is_new {
            let number = row.number.map_or_else(String::new, |number| format!(", frame {number}"));
            let what = format!("stream {}{number}: {}", row.stream, reason.name());
            self.open(state, reason.name(), &what, (lane, reason.side() == Side::Engine), AFTER);
        } else if state.open.is_none() && state.options.deep_log {
            self.open(state, REQUESTED, "every frame is recorded (`--deep-log`)", (lane, true), ASKED);
        }
        self.record(state, lane, begins, shot);
    }

    /// Hands this frame to the incident that is open, and closes it with its last one.
    fn record(&self, state: &mut State, lane: usize, begins: bool, shot: Option<&Shot>) {
        let (writer, lanes) = (&state.writer, &state.lanes);
        let Some(open) = &mut state.open else { return };
        let put = |shot: &Shot| writer.iter().for_each(|writer| writer.put(shot));
        // A stream that goes wrong while another one's incident is open becomes part of it.
        if begins && open.left[lane].is_none() {
            open.left[lane] = Some(AFTER);
            open.report.streams.push(lanes[lane].name.to_string());
            lanes[lane].frames().for_each(put);
        }
        if let Some(left @ 1..) = &mut open.left[lane] {
            *left -= 1;
            shot.into_iter().for_each(put);
        }
        if open.left.iter().all(|left| left.unwrap_or(0) == 0) {
            self.close(state, true);
        }
    }

    /// Opens an incident and hands over the frames before it: of the stream it was seen on, or of all.
    fn open(&self, state: &mut State, reason: &str, what: &str, (seen_on, all): (usize, bool), frames: u32) {
        let asked = reason == REQUESTED;
        let (at, now) = (SystemTime::now(), Instant::now());
        state.ids += 1;
        let id = id_of(at, reason, state.ids);
        let lanes = || state.lanes.iter().enumerate().filter(|(at, _)| all || seen_on == *at);
        let report = Report {
            schema: SCHEMA,
            id,
            seen_at: time_text(at),
            reason: reason.to_owned(),
            what: what.to_owned(),
            streams: lanes().map(|(_, lane)| lane.name.to_string()).collect(),
            steps: Vec::new(),
            recovered_after_ms: None,
            ended: None,
            complete: false,
            frames: 0,
            left_out: 0,
            edge_run: env!("CARGO_PKG_VERSION").to_owned(),
            engine: state.engine.as_ref().map(|(facts, _)| facts.clone()).unwrap_or(EngineFacts {
                bundle: String::new(),
                sha256: String::new(),
                path: String::new(),
                backend: String::new(),
                device: 0,
                score_floor: 0.0,
            }),
            events: state.events.drain(..).collect(),
        };
        if let Some(writer) = &state.writer {
            let manifest = state.engine.as_ref().map(|(_, manifest)| Arc::clone(manifest));
            writer.tell(Note::Open(Box::new(report.clone()), manifest));
            if !asked {
                lanes().flat_map(|(_, lane)| lane.frames()).for_each(|shot| writer.put(shot));
            }
        }
        self.telemetry.count(Metric::Incidents, Labels::reason(reason));
        if !asked {
            state.last = Some((reason.to_owned(), now));
            self.board.note_incident(note_of(&report, false));
        }
        let left = (0..state.lanes.len()).map(|at| (all || seen_on == at).then_some(frames)).collect();
        state.open = Some(Open { report, since: now, left, ends_with: Some(seen_on), over: asked });
    }

    fn close(&self, state: &mut State, complete: bool) {
        let Some(mut open) = state.open.take() else { return };
        open.report.complete = complete && open.left.iter().all(|left| left.unwrap_or(0) == 0);
        open.report.events.extend(state.events.drain(..));
        open.report.events.truncate(MOST_EVENTS);
        if let Some(writer) = &state.writer {
            writer.tell(Note::Close(Box::new(open.report.clone())));
        }
        if let Some(lane) = open.ends_with.filter(|_| !open.over && open.report.ended.is_none()) {
            state.lasting.push(Lasting { report: open.report, since: open.since, lane });
        }
    }

    /// A frame of `lane` is no fault: incidents of its pictures are over.
    fn good_frame(&self, state: &mut State, lane: usize) {
        if let Some(open) = state.open.as_mut().filter(|open| !open.over && open.ends_with == Some(lane)) {
            open.over = true;
            open.report.recovered_after_ms = Some(milliseconds(open.since.elapsed()));
            self.board.note_incident(note_of(&open.report, false));
        }
        for mut over in state.lasting.extract_if(.., |lasting| lasting.lane == lane) {
            over.report.recovered_after_ms = Some(milliseconds(over.since.elapsed()));
            self.board.note_incident(note_of(&over.report, false));
            if let Some(writer) = &state.writer {
                writer.tell(Note::Over { id: over.report.id, after_ms: milliseconds(over.since.elapsed()) });
            }
        }
    }

    /// Something happened between frames.
    pub fn event(&self, kind: &str, text: &str) {
        self.lock().event(kind, text);
    }

    /// Records the next `frames` frames of every stream (at most [`MOST_ASKED`]). Whether that was possible: not without a
    /// state folder, and not while an incident is being recorded.
    pub fn ask(&self, frames: u32) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        if state.writer.is_none() || state.open.is_some() {
            return false;
        }
        let frames = frames.clamp(1, MOST_ASKED);
        self.open(state, REQUESTED, &format!("{frames} frames were asked for (`POST /deep-log`)"), (0, true), frames);
        true
    }

    /// Time spent recording and frames recorded so far.
    pub fn cost(&self) -> (Duration, u64) {
        let state = self.lock();
        (state.spent, state.recorded)
    }
}

impl State {
    fn event(&mut self, kind: &str, text: &str) {
        let line = EventLine { at: time_text(SystemTime::now()), kind: kind.to_owned(), text: text.to_owned() };
        let most = if self.open.is_some() { MOST_EVENTS } else { EVENTS_BEFORE };
        while self.events.len() >= most {
            self.events.pop_front();
        }
        self.events.push_back(line);
    }

    /// The slot with the answer for this row, or an empty one.
    fn shot_of(&mut self, row: &Row) -> Shot {
        let own = |shot: &Shot| {
            shot.tag.as_ref().is_some_and(|tag| tag.stream == row.stream && Some(tag.number) == row.number)
        };
        let mut shot = match self.pending.iter().position(own) {
            Some(at) => self.pending.swap_remove(at),
            None => {
                let mut spare = self.spare.pop().unwrap_or_else(Shot::new);
                spare.clear();
                spare
            }
        };
        let device = self.engine.as_ref().map_or(0, |(facts, _)| facts.device);
        shot.take_row(row, usize::try_from(device).unwrap_or(0));
        shot
    }
}

#[cfg(test)]
impl Recorder {
    pub(super) fn held_bytes(&self) -> u64 {
        self.lock().lanes.iter().map(Lane::held_bytes).sum()
    }
}
