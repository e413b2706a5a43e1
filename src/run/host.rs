//! The engine's own thread: every batch has a time limit, and a call that never comes back takes nothing else with it.
//!
//! The thread owns the engine from load to drop. It is never joined without a limit: an engine that is stuck inside a driver
//! is left behind, and the process ends without it. Batches are answered in the order in which they were submitted; as many
//! may be in flight as the engine has lanes.

mod worker;

use crate::engine::{Engine, EngineInfo, Inference, MemoryFigures};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use crate::units::index;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::{Ask, Bell, Said, Worker};

pub use worker::Ringer;

/// Loads an engine; called on the engine's own thread.
pub type Loader = Box<dyn FnOnce() -> Result<Box<dyn Engine>> + Send>;

/// Why a frame has no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The engine says so itself.
    Failed(Error),
    /// The call took longer than its limit. It may still come back: see [`Host::comes_back`].
    Stuck(Duration),
    /// The engine was given up, or its answers are not wanted any more, before this one came. Told of elsewhere.
    GivenUp,
}

impl Trouble {
    /// For people.
    pub fn what(&self) -> &str {
        match self {
            Trouble::Failed(error) => error.message(),
            Trouble::Stuck(_) => "the engine has not answered in time",
            Trouble::GivenUp => "the engine was given up before it answered",
        }
    }
}

/// The answers of one batch.
#[derive(Debug)]
pub struct Answered {
    /// What [`Host::submit`] gave for the batch.
    pub ticket: u64,
    /// One for each frame, in order.
    pub answers: Vec<Result<Inference, Trouble>>,
}

/// A running engine.
pub struct Host {
    asks: Option<SyncSender<Ask>>,
    says: Receiver<Said>,
    thread: Option<JoinHandle<()>>,
    bell: Arc<Bell>,
    info: EngineInfo,
    lanes: usize,
    memory: MemoryFigures,
    spent: Vec<Inference>,
    /// Tickets given so far, and answers that came so far: a ticket each.
    sent: u64,
    said: u64,
    /// Batches whose answers are wanted, with the number of their frames.
    out: VecDeque<(u64, usize)>,
    done: VecDeque<Answered>,
    /// When the engine began with the first batch in `out`.
    head_since: Instant,
    usual: Duration,
    stuck: bool,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("info", &self.info).field("stuck", &self.stuck).finish_non_exhaustive()
    }
}

/// How often a wait looks up.
const LOOK_UP: Duration = Duration::from_millis(100);
/// Most batches in flight, whatever the engine offers.
const MOST_LANES: usize = 8;
/// Answers whose buffers are kept for the next batch.
const MOST_SPENT: usize = 64;

/// What the engine's thread says when the engine is loaded.
type Loaded = (EngineInfo, MemoryFigures, usize);

impl Host {
    /// Loads an engine on a thread of its own. `tick` is called while this waits, several times a second.
    ///
    /// # Errors
    /// Of `loader`; [`ErrorKind::Unexpected`] when there is no thread to be had or the loader panics;
    /// [`ErrorKind::Device`] when loading takes longer than `limit`.
    pub fn start(loader: Loader, limit: Duration, tick: &dyn Fn()) -> Result<Host> {
        let (started, starts) = sync_channel::<Result<Loaded>>(1);
        // One place more than batches in flight, for a known answer that is asked for beside them.
        let (asks, asked) = sync_channel::<Ask>(MOST_LANES + 1);
        let (say, says) = sync_channel::<Said>(MOST_LANES + 1);
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        let work = move || match loader() {
            Ok(engine) => {
                let lanes = engine.lanes().clamp(1, MOST_LANES);
                if started.send(Ok((engine.info().clone(), engine.memory(), lanes))).is_ok() {
                    Worker::new(engine, say, rung).serve(&asked);
                }
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(work)
            .map_err(|error| Error::unexpected("the engine's thread cannot be started").because(error))?;
        let since = Instant::now();
        loop {
            match starts.recv_timeout(LOOK_UP) {
                Ok(Ok(loaded)) => return Ok(Host::of(loaded, asks, says, thread, bell)),
                Ok(Err(error)) => {
                    let _ended = thread.join();
                    return Err(error);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::unexpected("the engine's thread ended while it loaded the engine"));
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() > limit => {
                    return Err(Error::new(
                        ErrorKind::Device,
                        format!("the engine is not loaded after {:.0} s", limit.as_secs_f64()),
                    ));
                }
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
    }

    fn of(
        (info, memory, lanes): Loaded,
        asks: SyncSender<Ask>,
        says: Receiver<Said>,
        thread: JoinHandle<()>,
        bell: Arc<Bell>,
    ) -> Host {
        Host {
            asks: Some(asks),
            says,
            thread: Some(thread),
            bell,
            info,
            lanes,
            memory,
            spent: Vec::new(),
            sent: 0,
            said: 0,
            out: VecDeque::new(),
            done: VecDeque::new(),
            head_since: Instant::now(),
            usual: Duration::ZERO,
            stuck: false,
        }
    }

    /// What the engine is.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Most frames of one batch.
    pub fn batch(&self) -> usize {
        index(self.info.input.batch).max(1)
    }

    /// Batches that may be in flight at once.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Batches that were submitted and have not been collected.
    pub fn in_flight(&self) -> usize {
        self.out.len() + self.done.len()
    }

    /// Whether another batch may be submitted now.
    pub fn has_room(&self) -> bool {
        !self.stuck && self.out.len() < self.lanes
    }

    /// The ticket of the next batch.
    pub fn next_ticket(&self) -> u64 {
        self.sent
    }

    /// The engine's memory counters after its last call.
    pub fn memory(&self) -> MemoryFigures {
        self.memory
    }

    /// What a batch takes, as measured of late; zero before the first one.
    pub fn usual(&self) -> Duration {
        self.usual
    }

    /// Calls `ringer` after every answer, from the engine's thread.
    pub fn rings(&self, ringer: Ringer) {
        self.bell.rings(ringer);
    }

    /// Hands a batch of at most [`Host::batch`] frames to the engine and does not wait. Gives the ticket that its answers
    /// carry.
    ///
    /// # Errors
    /// [`Trouble`]. After [`Trouble::Stuck`] every further batch is stuck at once until [`Host::comes_back`] says true.
    pub fn submit(&mut self, frames: Vec<Arc<Frame>>) -> Result<u64, Trouble> {
        let count = frames.len();
        let ticket = self.ask(frames, None)?;
        self.out.push_back((ticket, count));
        Ok(ticket)
    }

    fn ask(&mut self, frames: Vec<Arc<Frame>>, score_floor: Option<f32>) -> Result<u64, Trouble> {
        if self.stuck {
            return Err(Trouble::Stuck(Duration::ZERO));
        }
        let ticket = self.sent;
        let ask = Ask { ticket, frames, score_floor, spent: std::mem::take(&mut self.spent) };
        if self.asks.as_ref().is_none_or(|asks| asks.send(ask).is_err()) {
            return Err(Trouble::Failed(ended()));
        }
        if self.sent == self.said {
            self.head_since = Instant::now();
        }
        self.sent += 1;
        Ok(ticket)
    }

    /// The answers of the first batch that has not been collected, when they are there. Never waits. A batch that takes
    /// longer than `limit` is stuck, and those behind it are given up with it.
    pub fn collect(&mut self, limit: Duration) -> Option<Answered> {
        loop {
            match self.says.try_recv() {
                Ok(said) => drop(self.take(said)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.ended();
                    break;
                }
            }
        }
        if self.done.is_empty() && !self.out.is_empty() && self.head_since.elapsed() > limit {
            self.is_stuck(limit);
        }
        self.done.pop_front()
    }

    /// When [`Host::collect`] should look for a stuck batch at the latest.
    pub fn due_in(&self, limit: Duration) -> Option<Duration> {
        (!self.out.is_empty()).then(|| limit.saturating_sub(self.head_since.elapsed()))
    }

    /// Files an answer that came: the frames' own answers when it is the one with this ticket that nobody collects.
    fn take(&mut self, said: Said) -> Option<Vec<Result<Inference>>> {
        self.said += 1;
        self.memory = said.memory;
        self.head_since = Instant::now();
        self.usual = if self.usual.is_zero() { said.took } else { (self.usual * 7 + said.took) / 8 };
        if self.out.front().is_some_and(|(ticket, _)| *ticket == said.ticket) {
            self.out.pop_front();
            let answers = said.answers.into_iter().map(|answer| answer.map_err(Trouble::Failed)).collect();
            self.done.push_back(Answered { ticket: said.ticket, answers });
            None
        } else {
            Some(said.answers)
        }
    }

    /// The first batch is stuck; those behind it are given up.
    fn is_stuck(&mut self, limit: Duration) {
        self.stuck = true;
        let mut first = true;
        for (ticket, count) in std::mem::take(&mut self.out) {
            let trouble = || if first { Trouble::Stuck(limit) } else { Trouble::GivenUp };
            let answers = (0..count).map(|_| Err(trouble())).collect();
            self.done.push_back(Answered { ticket, answers });
            first = false;
        }
    }

    /// Nothing that is in flight is wanted any more: [`Host::collect`] gives [`Trouble::GivenUp`] for every frame of it, also
    /// where an answer has come already.
    pub fn give_up(&mut self) {
        for answered in &mut self.done {
            answered.answers.iter_mut().for_each(|answer| *answer = Err(Trouble::GivenUp));
        }
        self.forget_out();
    }

    fn forget_out(&mut self) {
        for (ticket, count) in std::mem::take(&mut self.out) {
            let answers = (0..count).map(|_| Err(Trouble::GivenUp)).collect();
            self.done.push_back(Answered { ticket, answers });
        }
    }

    /// The thread has ended by itself: whatever was out has failed.
    fn ended(&mut self) {
        self.asks = None;
        self.stuck = false;
        self.said = self.sent;
        for (ticket, count) in std::mem::take(&mut self.out) {
            let answers = (0..count).map(|_| Err(Trouble::Failed(ended()))).collect();
            self.done.push_back(Answered { ticket, answers });
        }
    }

    /// Runs one frame, with another score floor than usual when one is given, and waits for its answer. Batches in flight
    /// are answered before it, to be collected later.
    ///
    /// # Errors
    /// [`Trouble`]. After [`Trouble::Stuck`] every further call is stuck at once until [`Host::comes_back`] says true.
    pub fn call(
        &mut self,
        frame: Arc<Frame>,
        score_floor: Option<f32>,
        limit: Duration,
        tick: &dyn Fn(),
    ) -> Result<Inference, Trouble> {
        let mut answers = self.call_all(vec![frame], score_floor, limit, tick)?;
        answers.pop().unwrap_or_else(|| Err(Trouble::Failed(Error::unexpected("the engine gave no answer"))))
    }

    /// As [`Host::call`] for a batch.
    ///
    /// # Errors
    /// As [`Host::call`].
    pub fn call_all(
        &mut self,
        frames: Vec<Arc<Frame>>,
        score_floor: Option<f32>,
        limit: Duration,
        tick: &dyn Fn(),
    ) -> Result<Vec<Result<Inference, Trouble>>, Trouble> {
        let ticket = self.ask(frames, score_floor)?;
        loop {
            let left = limit.saturating_sub(self.head_since.elapsed());
            match self.says.recv_timeout(left.min(LOOK_UP)) {
                Ok(said) => {
                    let own = said.ticket == ticket;
                    if let Some(answers) = self.take(said).filter(|_| own) {
                        return Ok(answers.into_iter().map(|answer| answer.map_err(Trouble::Failed)).collect());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.ended();
                    return Err(Trouble::Failed(ended()));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    self.stuck = true;
                    self.forget_out();
                    return Err(Trouble::Stuck(limit));
                }
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
    }

    /// After a stuck call: waits at most `limit` for everything that is owed and drops it. Whether the engine is free again.
    pub fn comes_back(&mut self, limit: Duration, tick: &dyn Fn()) -> bool {
        let since = Instant::now();
        while self.stuck && self.said < self.sent {
            let left = limit.saturating_sub(since.elapsed());
            match self.says.recv_timeout(left.min(LOOK_UP)) {
                Ok(said) => drop(self.take(said)),
                Err(RecvTimeoutError::Disconnected) => self.ended(),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return false,
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
        self.stuck = false;
        true
    }

    /// Gives an answer back: its buffers travel with the next batch.
    pub fn recycle(&mut self, spent: Inference) {
        if self.spent.len() < MOST_SPENT {
            self.spent.push(spent);
        }
    }

    /// Ends the engine and waits at most `limit` until it is gone with its memory. Whether it is.
    pub fn close(mut self, limit: Duration) -> bool {
        self.end(limit)
    }

    /// As [`Host::close`], and leaves a host behind whose calls fail. What was in flight is to be collected as given up.
    pub fn abandon(&mut self, limit: Duration) -> bool {
        let limit = if self.stuck { Duration::ZERO } else { limit };
        self.stuck = false;
        self.give_up();
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> bool {
        self.asks = None;
        let Some(thread) = self.thread.take() else { return true };
        let since = Instant::now();
        while !thread.is_finished() {
            // Its last answers must find room.
            while let Ok(said) = self.says.try_recv() {
                drop(said);
            }
            if since.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ended = thread.join();
        true
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let limit = if self.stuck { Duration::ZERO } else { Duration::from_secs(5) };
        self.end(limit);
    }
}

fn ended() -> Error {
    Error::unexpected("the engine's thread has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::canned::{CannedAnswer, CannedEngine};
    use crate::frame::Picture;
    use crate::units::SizePx;

    fn frame(number: u64) -> Arc<Frame> {
        Arc::new(Frame {
            stream: "cam".into(),
            number,
            captured_at: None,
            arrived: Instant::now(),
            source: None,
            part: None,
            picture: Picture::rgb(SizePx::new(2, 2), vec![0; 12]),
        })
    }

    fn host(script: crate::engine::canned::Script) -> Host {
        let engine = CannedEngine::scripted(&["a"], SizePx::new(64, 64), script);
        Host::start(Box::new(move || Ok(Box::new(engine))), Duration::from_secs(5), &|| {}).unwrap()
    }

    #[test]
    fn a_stuck_call_comes_back_later_and_its_answer_is_dropped() {
        let mut host = host(Box::new(|call, _, answer: &mut CannedAnswer| {
            answer.delay = Duration::from_millis(if call == 0 { 120 } else { 0 });
        }));
        let limit = Duration::from_millis(20);
        assert!(matches!(host.call(frame(0), None, limit, &|| {}), Err(Trouble::Stuck(_))));
        assert!(matches!(host.call(frame(1), None, limit, &|| {}), Err(Trouble::Stuck(_))), "still stuck");
        assert!(host.comes_back(Duration::from_secs(5), &|| {}));
        assert_eq!(host.call(frame(2), None, Duration::from_secs(5), &|| {}).unwrap().tag.number, 2);
        assert!(host.close(Duration::from_secs(5)));
    }

    #[test]
    fn an_engine_that_panics_is_an_error_and_not_the_end() {
        let mut host = host(Box::new(|_, _, _: &mut CannedAnswer| panic!("on purpose")));
        assert!(matches!(host.call(frame(0), None, Duration::from_secs(5), &|| {}), Err(Trouble::Failed(_))));
        assert!(matches!(host.call(frame(1), None, Duration::from_secs(5), &|| {}), Err(Trouble::Failed(_))));
    }

    #[test]
    fn a_loader_that_fails_or_never_ends_is_an_error() {
        let failing: Loader = Box::new(|| Err(Error::refused("no")));
        assert_eq!(Host::start(failing, Duration::from_secs(5), &|| {}).unwrap_err().kind(), ErrorKind::Refused);
        let stuck: Loader = Box::new(|| {
            std::thread::sleep(Duration::from_secs(1));
            Err(Error::refused("late"))
        });
        assert_eq!(Host::start(stuck, Duration::from_millis(50), &|| {}).unwrap_err().kind(), ErrorKind::Device);
    }

    fn batch_host(batch: u32, lanes: usize, run: Duration) -> Host {
        let engine = CannedEngine::identifying(&["a"], SizePx::new(64, 64));
        let engine = engine.with_batch(batch).with_lanes(lanes).with_run_time(run);
        Host::start(Box::new(move || Ok(Box::new(engine))), Duration::from_secs(5), &|| {}).unwrap()
    }

    const LONG: Duration = Duration::from_secs(20);

    fn collect(host: &mut Host) -> Answered {
        let since = Instant::now();
        loop {
            if let Some(answered) = host.collect(LONG) {
                return answered;
            }
            assert!(since.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn numbers(answered: &Answered) -> Vec<Option<u64>> {
        answered.answers.iter().map(|answer| answer.as_ref().ok().map(|answer| answer.tag.number)).collect()
    }

    #[test]
    fn batches_come_back_in_order_with_a_call_between_them() {
        for lanes in [1, 2, 3] {
            let mut host = batch_host(4, lanes, Duration::from_millis(3));
            assert_eq!((host.batch(), host.lanes()), (4, lanes));
            let mut sent = Vec::new();
            while host.has_room() {
                let first = 10 * sent.len() as u64;
                sent.push(host.submit(vec![frame(first), frame(first + 1)]).unwrap());
            }
            assert_eq!(sent.len(), lanes);
            assert_eq!(host.call(frame(999), Some(0.5), LONG, &|| {}).unwrap().tag.number, 999);
            assert_eq!(host.in_flight(), lanes, "answers wait to be collected");
            for (number, ticket) in sent.into_iter().enumerate() {
                let answered = collect(&mut host);
                assert_eq!(answered.ticket, ticket);
                let first = 10 * number as u64;
                assert_eq!(numbers(&answered), [Some(first), Some(first + 1)]);
            }
            assert!(host.collect(LONG).is_none());
        }
    }

    #[test]
    fn a_bad_picture_does_not_spoil_the_answers_of_others_and_an_error_spoils_all() {
        for lanes in [1, 2] {
            let script = |_, frame: &Frame, answer: &mut CannedAnswer| match frame.number {
                7 => *answer = CannedAnswer::failing(ErrorKind::Refused, "no such picture"),
                8 => *answer = CannedAnswer::failing(ErrorKind::Budget, "no memory"),
                _ => {}
            };
            let engine = CannedEngine::scripted(&["a"], SizePx::new(64, 64), Box::new(script));
            let engine = engine.with_batch(4).with_lanes(lanes);
            let mut host = Host::start(Box::new(move || Ok(Box::new(engine))), LONG, &|| {}).unwrap();
            host.submit(vec![frame(6), frame(7), frame(9)]).unwrap();
            assert_eq!(numbers(&collect(&mut host)), [Some(6), None, Some(9)], "{lanes} lanes");
            host.submit(vec![frame(6), frame(8), frame(9)]).unwrap();
            assert_eq!(numbers(&collect(&mut host)), [None, None, None], "{lanes} lanes");
            host.submit(vec![frame(10)]).unwrap();
            assert_eq!(numbers(&collect(&mut host)), [Some(10)], "{lanes} lanes");
        }
    }

    #[test]
    fn a_stuck_batch_takes_those_behind_it_along_and_none_is_lost() {
        let script = |_, frame: &Frame, answer: &mut CannedAnswer| {
            answer.delay = Duration::from_millis(if frame.number == 0 { 150 } else { 0 });
        };
        let engine = CannedEngine::scripted(&["a"], SizePx::new(64, 64), Box::new(script)).with_batch(2).with_lanes(2);
        let mut host = Host::start(Box::new(move || Ok(Box::new(engine))), LONG, &|| {}).unwrap();
        let limit = Duration::from_millis(30);
        host.submit(vec![frame(0), frame(1)]).unwrap();
        host.submit(vec![frame(2)]).unwrap();
        assert!(host.collect(limit).is_none());
        std::thread::sleep(limit + Duration::from_millis(10));
        let stuck = host.collect(limit).unwrap();
        assert!(matches!(stuck.answers[..], [Err(Trouble::Stuck(_)), Err(Trouble::Stuck(_))]), "{stuck:?}");
        assert!(matches!(host.collect(limit).unwrap().answers[..], [Err(Trouble::GivenUp)]));
        assert!(!host.has_room());
        assert!(matches!(host.submit(vec![frame(3)]), Err(Trouble::Stuck(_))));
        assert!(host.comes_back(LONG, &|| {}));
        host.submit(vec![frame(4)]).unwrap();
        assert_eq!(numbers(&collect(&mut host)), [Some(4)]);
    }

    #[test]
    fn what_is_given_up_is_told_by_ticket_and_never_answered() {
        let mut host = batch_host(2, 2, Duration::from_millis(20));
        let first = host.submit(vec![frame(0), frame(1)]).unwrap();
        let second = host.submit(vec![frame(2)]).unwrap();
        host.give_up();
        for (ticket, frames) in [(first, 2), (second, 1)] {
            let answered = host.collect(LONG).unwrap();
            assert_eq!((answered.ticket, answered.answers.len()), (ticket, frames));
            assert!(answered.answers.iter().all(|answer| matches!(answer, Err(Trouble::GivenUp))));
        }
        let third = host.submit(vec![frame(3)]).unwrap();
        let answered = collect(&mut host);
        assert_eq!((answered.ticket, numbers(&answered)), (third, vec![Some(3)]));
    }

    #[test]
    fn two_lanes_are_kept_busy() {
        const RUNS: u32 = 40;
        let run = Duration::from_millis(5);
        let mut host = batch_host(1, 2, run);
        let since = Instant::now();
        let mut begun = 0;
        let mut ended = 0;
        while ended < RUNS {
            while host.has_room() && begun < RUNS {
                host.submit(vec![frame(u64::from(begun))]).unwrap();
                begun += 1;
            }
            if let Some(answered) = host.collect(LONG) {
                assert_eq!(numbers(&answered), [Some(u64::from(ended))]);
                ended += 1;
                // What is done with the answers does not hold the engine up: the next run is in its lane already.
                std::thread::sleep(Duration::from_millis(1));
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let idle = since.elapsed().saturating_sub(run * RUNS);
        assert!(idle < run * RUNS / 2, "the device was idle for {idle:?} of {:?}", since.elapsed());
    }
}
