//! What begins and ends an incident. Called once a frame by the loop over captures, and by the service between frames.

mod service;
mod state;
pub(super) mod words;

use super::report::{EngineFacts, Report, SCHEMA, time_text};
use super::ring::{Lane, Shot};
use super::writer::{Note, Writer};
use super::{ASKED, IncidentOptions, MOST_ASKED, shelf};
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
use state::{Lasting, Log, Open, State};
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

/// Records frames and writes incidents down; shared by the inspector, the service and the HTTP side. [`Recorder::of_engine`]
/// is the same one as one of several engines uses it.
pub struct Recorder {
    shared: Arc<Shared>,
    /// The engine whose alarms and steps come in here.
    engine: usize,
}

struct Shared {
    state: Mutex<State>,
    /// Whether frames are recorded: there is a folder for incidents.
    records: AtomicBool,
    board: Arc<Board>,
    telemetry: Arc<Telemetry>,
}

impl Recorder {
    /// A recorder for these streams, each answered by the engine whose number stands at its place in `engine_of`. With a
    /// folder for incidents (of its own, or in the state folder) it has a thread that writes; without one only the page hears
    /// of incidents.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the folder cannot be made.
    pub fn start(
        options: IncidentOptions,
        state: Option<&Path>,
        (streams, engine_of): (&[StreamName], &[usize]),
        board: &Arc<Board>,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Arc<Self>> {
        let folder = options.folder_in(state);
        if options.deep_log && folder.is_none() {
            return Err(Error::usage("`--deep-log` needs a folder to write to, found none").hint(
                "name one that outlives the run: `--state DIR`, or `--incident-folder DIR` for incidents alone",
            ));
        }
        let writer = match folder {
            Some(folder) => {
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
        let slots = if writer.is_some() { options.frames_before } else { 0 };
        let engines = engine_of.iter().max().map_or(1, |most| most + 1);
        let state = State {
            options,
            lanes: streams.iter().map(|name| Lane::new(Arc::clone(name), share, slots)).collect(),
            engine_of: engine_of.to_vec(),
            engines: (0..engines).map(|_| Log::default()).collect(),
            pending: Vec::with_capacity(MOST_PENDING),
            spare: Vec::new(),
            lasting: Vec::new(),
            ids: 0,
            spent: Duration::ZERO,
            recorded: 0,
            writer,
        };
        let shared = Shared {
            records: AtomicBool::new(state.writer.is_some()),
            state: Mutex::new(state),
            board: Arc::clone(board),
            telemetry: Arc::clone(telemetry),
        };
        Ok(Arc::new(Recorder { shared: Arc::new(shared), engine: 0 }))
    }

    /// The same recorder for the engine with this number: alarms, steps and events are those of that engine.
    pub fn of_engine(&self, engine: usize) -> Arc<Self> {
        Arc::new(Recorder { shared: Arc::clone(&self.shared), engine })
    }

    /// The line for people about where incidents go.
    pub fn line(&self) -> String {
        let state = self.lock();
        if state.writer.is_some() {
            let IncidentOptions { space, memory, frames_before, frames_after, .. } = &state.options;
            let place = state.options.folder.as_ref();
            let place = place.map_or_else(|| "the state folder".to_owned(), |folder| folder.display().to_string());
            return format!(
                "incidents: {frames_before} frames before a fault and {frames_after} from it on, kept in {place}, at most \
                 {space}; up to {memory} of pictures in memory"
            );
        }
        "incidents: not written down, because there is no state folder (`--state DIR`)".to_owned()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log<'a>(&self, state: &'a mut State) -> Option<&'a mut Log> {
        state.engines.get_mut(self.engine)
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
        let Some(log) = self.log(&mut state) else { return };
        if log.facts.as_ref().is_some_and(|(before, _)| *before != facts) {
            let text = format!("{} {} on {}, device {device}", facts.bundle, facts.sha256, facts.backend);
            log.event("engine", &text);
        }
        log.facts = Some((facts, bundle.manifest_bytes().into()));
    }

    /// The engine has answered `frame`, or has not: called before the answer's buffers are used again.
    pub fn answered(
        &self,
        frame: &Frame,
        stats: &PictureStats,
        answer: Result<&Inference, &str>,
        detections: &[Detection],
    ) {
        if !self.shared.records.load(Ordering::Relaxed) {
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

    /// A row goes out. `told`: its frame was at the engine when that was repaired, so what the engine did to it is known.
    pub fn row(&self, row: &Row, told: bool) {
        let since = Instant::now();
        let mut state = self.lock();
        let state = &mut *state;
        let Some(lane) = state.lanes.iter().position(|lane| lane.name == row.stream) else { return };
        if state.writer.is_none() {
            self.look(state, lane, (row, told), None);
            return;
        }
        let shot = state.shot_of(row, lane);
        self.look(state, lane, (row, told), Some(&shot));
        let spare = state.lanes[lane].swap(shot);
        if state.spare.len() < MOST_PENDING {
            state.spare.push(spare);
        }
        state.spent += since.elapsed();
        state.recorded += 1;
    }

    /// What this row begins, carries on or ends.
    fn look(&self, state: &mut State, lane: usize, (row, told): (&Row, bool), shot: Option<&Shot>) {
        let engine = state.engine_of.get(lane).copied().unwrap_or(0);
        // A frame that is set aside because the line makes another product is no incident.
        let fault = row.trust == Trust::Fault && row.reasons != [Reason::Changeover];
        let reason = first_reason(row);
        // Part of the incident that was repaired while this frame was in flight: no news of the stream.
        let known = fault && told && reason.side() == Side::Engine;
        let begins = fault && !known && state.lanes[lane].well;
        if !known {
            state.lanes[lane].well = !fault;
        }
        if !fault {
            self.good_frame(state, lane);
        }
        let log = &state.engines[engine];
        let again = log.last.as_ref().is_some_and(|(last, at)| *last == reason.name() && at.elapsed() < APART);
        let is_new = begins && !again;
        let gives_way = |open: &Open| open.since.elapsed() > OPEN_FOR || (is_new && open.over);
        if log.open.as_ref().is_some_and(gives_way) {
            self.close(state, engine, true);
        }
        let open = state.engines[engine].open.is_some();
        if !open && is_new {
            let number = row.number.map_or_else(String::new, |number| format!(", frame {number}"));
            let what = format!("stream {}{number}: {}", row.stream, reason.name());
            let frames = state.options.frames_after;
            self.open(state, engine, reason.name(), &what, (Some(lane), reason.side() == Side::Engine), frames);
        } else if !open && state.options.deep_log {
            let what = "every frame is recorded (`--deep-log`)";
            self.open(state, engine, REQUESTED, what, (Some(lane), true), ASKED);
        }
        self.record(state, (engine, lane), begins, shot);
    }

    /// Hands this frame to the incident that is open, and closes it with its last one.
    fn record(&self, state: &mut State, (engine, lane): (usize, usize), begins: bool, shot: Option<&Shot>) {
        let (writer, lanes, after) = (&state.writer, &state.lanes, state.options.frames_after);
        let Some(open) = &mut state.engines[engine].open else { return };
        let id = Arc::clone(&open.id);
        let put = |shot: &Shot| writer.iter().for_each(|writer| writer.put(&id, shot));
        // A stream that goes wrong while another one's incident is open becomes part of it.
        if begins && open.left[lane].is_none() {
            open.left[lane] = Some(after);
            open.report.streams.push(lanes[lane].name.to_string());
            lanes[lane].frames().for_each(put);
        }
        if let Some(left @ 1..) = &mut open.left[lane] {
            *left -= 1;
            shot.into_iter().for_each(put);
        }
        if open.left.iter().all(|left| left.unwrap_or(0) == 0) {
            self.close(state, engine, true);
        }
    }

    /// Opens an incident and hands over the frames before it: of the stream it was seen on, or of all of the engine.
    fn open(
        &self,
        state: &mut State,
        engine: usize,
        reason: &str,
        what: &str,
        (seen_on, all): (Option<usize>, bool),
        frames: u32,
    ) {
        let asked = reason == REQUESTED;
        let (at, now) = (SystemTime::now(), Instant::now());
        state.ids += 1;
        let id = id_of(at, reason, state.ids);
        let State { lanes, engine_of, engines, writer, .. } = &mut *state;
        let log = &mut engines[engine];
        let own = |lane: usize| engine_of.get(lane) == Some(&engine) && (all || seen_on == Some(lane));
        let own_lanes = || lanes.iter().enumerate().filter(|(lane, _)| own(*lane)).map(|(_, lane)| lane);
        let report = Report {
            schema: SCHEMA,
            id: id.clone(),
            seen_at: time_text(at),
            reason: reason.to_owned(),
            what: what.to_owned(),
            streams: own_lanes().map(|lane| lane.name.to_string()).collect(),
            steps: Vec::new(),
            recovered_after_ms: None,
            ended: None,
            complete: false,
            frames: 0,
            left_out: 0,
            edge_run: env!("CARGO_PKG_VERSION").to_owned(),
            engine: log.facts(),
            events: log.events.drain(..).collect(),
        };
        let id: Arc<str> = id.into();
        if let Some(writer) = writer {
            let manifest = log.facts.as_ref().map(|(_, manifest)| Arc::clone(manifest));
            writer.tell(Note::Open(Box::new(report.clone()), manifest));
            if !asked {
                own_lanes().flat_map(Lane::frames).for_each(|shot| writer.put(&id, shot));
            }
        }
        self.shared.telemetry.count(Metric::Incidents, Labels::reason(reason));
        if !asked {
            log.last = Some((reason.to_owned(), now));
            self.shared.board.note_incident(note_of(&report, false));
        }
        let left = (0..lanes.len()).map(|lane| own(lane).then_some(frames)).collect();
        log.open = Some(Open { id, report, since: now, left, ends_with: seen_on, over: asked });
    }

    fn close(&self, state: &mut State, engine: usize, complete: bool) {
        let log = &mut state.engines[engine];
        let Some(mut open) = log.open.take() else { return };
        open.report.complete = complete && open.left.iter().all(|left| left.unwrap_or(0) == 0);
        open.report.events.extend(log.events.drain(..));
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
        let open = state.engines.iter_mut().filter_map(|log| log.open.as_mut());
        for open in open.filter(|open| !open.over && open.ends_with == Some(lane)) {
            open.over = true;
            open.report.recovered_after_ms = Some(milliseconds(open.since.elapsed()));
            self.shared.board.note_incident(note_of(&open.report, false));
        }
        for mut over in state.lasting.extract_if(.., |lasting| lasting.lane == lane) {
            over.report.recovered_after_ms = Some(milliseconds(over.since.elapsed()));
            self.shared.board.note_incident(note_of(&over.report, false));
            if let Some(writer) = &state.writer {
                writer.tell(Note::Over { id: over.report.id, after_ms: milliseconds(over.since.elapsed()) });
            }
        }
    }

    /// Something happened between frames.
    pub fn event(&self, kind: &str, text: &str) {
        if let Some(log) = self.log(&mut self.lock()) {
            log.event(kind, text);
        }
    }

    /// Records the next `frames` frames of every stream (at most [`MOST_ASKED`]), one log for each engine. Whether that was
    /// possible: not without a folder, and not for an engine while an incident of it is being recorded.
    pub fn ask(&self, frames: u32) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        if state.writer.is_none() {
            return false;
        }
        let frames = frames.clamp(1, MOST_ASKED);
        let free: Vec<usize> = (0..state.engines.len()).filter(|&at| state.engines[at].open.is_none()).collect();
        for &engine in &free {
            let what = format!("{frames} frames were asked for (`POST /deep-log`)");
            self.open(state, engine, REQUESTED, &what, (None, true), frames);
        }
        !free.is_empty()
    }

    /// Time spent recording and frames recorded so far.
    pub fn cost(&self) -> (Duration, u64) {
        let state = self.lock();
        (state.spent, state.recorded)
    }
}

#[cfg(test)]
impl Recorder {
    pub(super) fn held_bytes(&self) -> u64 {
        self.lock().lanes.iter().map(Lane::held_bytes).sum()
    }
}
