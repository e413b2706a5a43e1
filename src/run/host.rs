//! The engine's own thread: every call has a time limit, and a call that never comes back takes nothing else with it.
//!
//! The thread owns the engine from load to drop. It is never joined without a limit: an engine that is stuck inside a driver
//! is left behind, and the process ends without it.

use crate::engine::{Engine, EngineInfo, Inference, MemoryFigures};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Loads an engine; called on the engine's own thread.
pub type Loader = Box<dyn FnOnce() -> Result<Box<dyn Engine>> + Send>;

/// Why a call gave no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The engine says so itself.
    Failed(Error),
    /// The call took longer than its limit. It may still come back: see [`Host::comes_back`].
    Stuck(Duration),
}

impl Trouble {
    /// For people.
    pub fn what(&self) -> &str {
        match self {
            Trouble::Failed(error) => error.message(),
            Trouble::Stuck(_) => "the engine has not answered in time",
        }
    }
}

struct Ask {
    frame: Arc<Frame>,
    score_floor: Option<f32>,
    spent: Option<Inference>,
}

struct Said {
    answer: Result<Inference>,
    memory: MemoryFigures,
}

/// A running engine.
pub struct Host {
    asks: Option<SyncSender<Ask>>,
    says: Receiver<Said>,
    thread: Option<JoinHandle<()>>,
    info: EngineInfo,
    memory: MemoryFigures,
    spent: Option<Inference>,
    waiting: bool,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("info", &self.info).field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

/// How often a wait looks up.
const LOOK_UP: Duration = Duration::from_millis(100);

impl Host {
    /// Loads an engine on a thread of its own. `tick` is called while this waits, several times a second.
    ///
    /// # Errors
    /// Of `loader`; [`ErrorKind::Unexpected`] when there is no thread to be had or the loader panics;
    /// [`ErrorKind::Device`] when loading takes longer than `limit`.
    pub fn start(loader: Loader, limit: Duration, tick: &dyn Fn()) -> Result<Host> {
        let (started, starts) = sync_channel::<Result<(EngineInfo, MemoryFigures)>>(1);
        let (asks, asked) = sync_channel::<Ask>(1);
        let (say, says) = sync_channel::<Said>(1);
        let work = move || match loader() {
            Ok(engine) => {
                if started.send(Ok((engine.info().clone(), engine.memory()))).is_ok() {
                    answer_all(engine, &asked, &say);
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
                Ok(Ok((info, memory))) => {
                    let (asks, thread) = (Some(asks), Some(thread));
                    return Ok(Host { asks, says, thread, info, memory, spent: None, waiting: false });
                }
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

    /// What the engine is.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// The engine's memory counters after its last call.
    pub fn memory(&self) -> MemoryFigures {
        self.memory
    }

    /// Runs one frame, with another score floor than usual when one is given.
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
        if self.waiting {
            return Err(Trouble::Stuck(Duration::ZERO));
        }
        let ask = Ask { frame, score_floor, spent: self.spent.take() };
        if self.asks.as_ref().is_none_or(|asks| asks.send(ask).is_err()) {
            return Err(Trouble::Failed(ended()));
        }
        self.waiting = true;
        match self.wait(limit, tick) {
            None => Err(Trouble::Stuck(limit)),
            Some(answer) => answer.map_err(Trouble::Failed),
        }
    }

    /// After a stuck call: waits at most `limit` for it and drops its answer. Whether the engine is free again.
    pub fn comes_back(&mut self, limit: Duration, tick: &dyn Fn()) -> bool {
        !self.waiting || self.wait(limit, tick).is_some()
    }

    fn wait(&mut self, limit: Duration, tick: &dyn Fn()) -> Option<Result<Inference>> {
        let since = Instant::now();
        loop {
            let left = limit.saturating_sub(since.elapsed());
            match self.says.recv_timeout(left.min(LOOK_UP)) {
                Ok(said) => {
                    self.waiting = false;
                    self.memory = said.memory;
                    return Some(said.answer);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.waiting = false;
                    self.asks = None;
                    return Some(Err(ended()));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return None,
                Err(RecvTimeoutError::Timeout) => tick(),
            }
        }
    }

    /// Gives an answer back: its buffers travel with the next call.
    pub fn recycle(&mut self, spent: Inference) {
        self.spent = Some(spent);
    }

    /// Ends the engine and waits at most `limit` until it is gone with its memory. Whether it is.
    pub fn close(mut self, limit: Duration) -> bool {
        self.end(limit)
    }

    /// As [`Host::close`], and leaves a host behind whose calls fail.
    pub fn abandon(&mut self, limit: Duration) -> bool {
        let limit = if self.waiting { Duration::ZERO } else { limit };
        self.waiting = false;
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> bool {
        self.asks = None;
        let Some(thread) = self.thread.take() else { return true };
        let since = Instant::now();
        while !thread.is_finished() {
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
        let limit = if self.waiting { Duration::ZERO } else { Duration::from_secs(5) };
        self.end(limit);
    }
}

fn ended() -> Error {
    Error::unexpected("the engine's thread has ended")
}

fn answer_all(mut engine: Box<dyn Engine>, asked: &Receiver<Ask>, say: &SyncSender<Said>) {
    let usual_floor = engine.info().score_floor;
    let mut answers = Vec::with_capacity(1);
    while let Ok(Ask { frame, score_floor, spent }) = asked.recv() {
        if let Some(spent) = spent {
            engine.recycle(spent);
        }
        if let Some(score_floor) = score_floor {
            engine.set_score_floor(score_floor);
        }
        answers.clear();
        let asked = engine.infer(&[&frame], &mut answers);
        if score_floor.is_some() {
            engine.set_score_floor(usual_floor);
        }
        let answer = asked.and_then(|()| {
            answers.pop().ok_or_else(|| Error::unexpected("the engine gave no answer for one frame, expected one"))
        });
        // Before the answer goes out, so that a camera gets its buffer back without waiting for this thread.
        drop(frame);
        if say.send(Said { answer, memory: engine.memory() }).is_err() {
            break;
        }
    }
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
}
