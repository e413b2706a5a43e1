//! The engine's own thread: every batch has a time limit, and a call that never comes back takes nothing else with it.
//!
//! The thread owns the engine from load to drop. It is never joined without a limit: an engine that is stuck inside a driver
//! is left behind, and the process ends without it. Batches are answered in the order in which they were submitted; as many
//! may be in flight as the engine has lanes. This file is the thread and the waiting for it; `accounts` knows which batches are
//! out, `worker` is the thread's own side.

mod accounts;
#[cfg(test)]
mod tests;
mod worker;

use crate::engine::{Engine, EngineInfo, Inference, MemoryFigures};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::process;
use crate::frame::Frame;
use crate::units::index;
use accounts::{Accounts, ended};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::{Ask, Bell, Said, Worker};

pub use accounts::{Answered, Trouble};
pub use worker::Ringer;

/// Loads an engine; called on the engine's own thread.
pub type Loader = Box<dyn FnOnce() -> Result<Box<dyn Engine>> + Send>;

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
    accounts: Accounts,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("info", &self.info)
            .field("stuck", &self.accounts.is_stuck())
            .finish_non_exhaustive()
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
            accounts: Accounts::new(),
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
        self.accounts.uncollected()
    }

    /// Whether another batch may be submitted now.
    pub fn has_room(&self) -> bool {
        !self.accounts.is_stuck() && self.accounts.out() < self.lanes
    }

    /// The engine's memory counters after its last call.
    pub fn memory(&self) -> MemoryFigures {
        self.memory
    }

    /// What a batch takes, as measured of late; zero before the first one.
    pub fn usual(&self) -> Duration {
        self.accounts.usual()
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
        self.accounts.wanted(ticket, count);
        Ok(ticket)
    }

    fn ask(&mut self, frames: Vec<Arc<Frame>>, score_floor: Option<f32>) -> Result<u64, Trouble> {
        if self.accounts.is_stuck() {
            return Err(Trouble::Stuck(Duration::ZERO));
        }
        let ticket = self.accounts.next_ticket();
        let ask = Ask { ticket, frames, score_floor, spent: std::mem::take(&mut self.spent) };
        if self.asks.as_ref().is_none_or(|asks| asks.send(ask).is_err()) {
            return Err(Trouble::Failed(ended()));
        }
        self.accounts.asked();
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
        self.accounts.collect(limit)
    }

    /// When [`Host::collect`] should look for a stuck batch at the latest.
    pub fn due_in(&self, limit: Duration) -> Option<Duration> {
        (self.accounts.out() > 0).then(|| self.accounts.left_of(limit))
    }

    fn take(&mut self, said: Said) -> Option<Vec<Result<Inference>>> {
        self.memory = said.memory;
        self.accounts.take(said)
    }

    /// Nothing that is in flight is wanted any more: [`Host::collect`] gives [`Trouble::GivenUp`] for every frame of it, also
    /// where an answer has come already.
    pub fn give_up(&mut self) {
        self.accounts.give_up();
    }

    /// The thread has ended by itself.
    fn ended(&mut self) {
        self.asks = None;
        self.accounts.thread_ended();
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
            let left = self.accounts.left_of(limit);
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
                    self.accounts.is_stuck_now();
                    return Err(Trouble::Stuck(limit));
                }
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
    }

    /// After a stuck call: waits at most `limit` for everything that is owed and drops it. Whether the engine is free again.
    pub fn comes_back(&mut self, limit: Duration, tick: &dyn Fn()) -> bool {
        let since = Instant::now();
        while self.accounts.is_stuck() && self.accounts.is_owed() {
            let left = limit.saturating_sub(since.elapsed());
            match self.says.recv_timeout(left.min(LOOK_UP)) {
                Ok(said) => drop(self.take(said)),
                Err(RecvTimeoutError::Disconnected) => self.ended(),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return false,
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
        self.accounts.is_free();
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
        let limit = if self.accounts.is_stuck() { Duration::ZERO } else { limit };
        self.accounts.is_free();
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
                process::left_behind();
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
        let limit = if self.accounts.is_stuck() { Duration::ZERO } else { Duration::from_secs(5) };
        self.end(limit);
    }
}
