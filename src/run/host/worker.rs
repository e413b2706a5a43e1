//! The engine's side of the host: takes batches in order, keeps the engine's lanes busy, says answers in the same order.

use crate::engine::{Engine, Inference, MemoryFigures};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Frames to be run together.
pub(super) struct Ask {
    pub(super) ticket: u64,
    pub(super) frames: Vec<Arc<Frame>>,
    /// Another floor than the usual one, for this batch alone.
    pub(super) score_floor: Option<f32>,
    /// Answers whose buffers may be used again.
    pub(super) spent: Vec<Inference>,
}

/// The answers to one [`Ask`], one a frame, in order.
pub(super) struct Said {
    pub(super) ticket: u64,
    pub(super) answers: Vec<Result<Inference>>,
    pub(super) memory: MemoryFigures,
    /// From the moment the engine was free for this batch until its answers.
    pub(super) took: Duration,
}

/// Rung after every answer, so that whoever waits for something else looks up.
#[derive(Default)]
pub(super) struct Bell {
    ringer: Mutex<Option<Ringer>>,
}

/// What is called after every answer.
pub type Ringer = Arc<dyn Fn() + Send + Sync>;

impl Bell {
    pub(super) fn rings(&self, ringer: Ringer) {
        *self.ringer.lock().unwrap_or_else(PoisonError::into_inner) = Some(ringer);
    }

    fn ring(&self) {
        let ringer = self.ringer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(ringer) = ringer {
            ringer();
        }
    }
}

/// The engine and what is in flight in its lanes.
pub(super) struct Worker {
    engine: Box<dyn Engine>,
    usual_floor: f32,
    /// The one that has been free for longest comes first: two runs over one frame mostly get two lanes.
    free: VecDeque<usize>,
    flying: VecDeque<(usize, Ask)>,
    /// When the last run ended, or the first one of a row began.
    since: Instant,
    /// What a run takes, the least of late.
    usual: Duration,
    answers: Vec<Inference>,
    say: SyncSender<Said>,
    bell: Arc<Bell>,
}

impl Worker {
    pub(super) fn new(engine: Box<dyn Engine>, say: SyncSender<Said>, bell: Arc<Bell>) -> Self {
        Worker {
            usual_floor: engine.info().score_floor,
            free: (0..engine.lanes().max(1)).collect(),
            flying: VecDeque::new(),
            since: Instant::now(),
            usual: Duration::ZERO,
            answers: Vec::new(),
            engine,
            say,
            bell,
        }
    }

    /// Answers until nobody asks or listens any more. What is in flight then is waited for.
    pub(super) fn serve(mut self, asked: &Receiver<Ask>) {
        let mut listened_to = true;
        while listened_to {
            listened_to = match self.next(asked) {
                Next::Ask(ask) => self.start(ask),
                Next::Land => self.land(),
                Next::Over => break,
            };
        }
        // A lane in flight must not be dropped under the device's hands.
        while !self.flying.is_empty() {
            self.land();
        }
    }

    /// With a lane in flight and another one free, waits a while for the next batch: no longer than half of what a run
    /// takes, so that the answers of the run in flight are never held up.
    fn next(&self, asked: &Receiver<Ask>) -> Next {
        if self.flying.is_empty() {
            return asked.recv().map_or(Next::Over, Next::Ask);
        }
        if self.free.is_empty() {
            return Next::Land;
        }
        let patience = (self.usual / 2).saturating_sub(self.since.elapsed());
        if patience.is_zero() {
            return match asked.try_recv() {
                Ok(ask) => Next::Ask(ask),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => Next::Land,
            };
        }
        match asked.recv_timeout(patience) {
            Ok(ask) => Next::Ask(ask),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Next::Land,
        }
    }

    /// Begins a batch; whether somebody still listens.
    fn start(&mut self, mut ask: Ask) -> bool {
        for spent in ask.spent.drain(..) {
            self.engine.recycle(spent);
        }
        if self.engine.lanes() <= 1 || ask.score_floor.is_some() {
            return self.land_all() && self.run_alone(ask);
        }
        let Some(lane) = self.free.pop_front() else { return self.land() && self.start(ask) };
        if self.flying.is_empty() {
            self.since = Instant::now();
        }
        let frames: Vec<&Frame> = ask.frames.iter().map(AsRef::as_ref).collect();
        match self.engine.begin(lane, &frames) {
            Ok(()) => {
                self.flying.push_back((lane, ask));
                true
            }
            Err(error) => {
                self.free.push_front(lane);
                self.land_all() && self.failed(ask, error)
            }
        }
    }

    fn land_all(&mut self) -> bool {
        while !self.flying.is_empty() {
            if !self.land() {
                return false;
            }
        }
        true
    }

    /// Waits for the run that began first and says its answers.
    fn land(&mut self) -> bool {
        let Some((lane, ask)) = self.flying.pop_front() else { return true };
        self.answers.clear();
        let finished = self.engine.finish(lane, &mut self.answers);
        self.free.push_back(lane);
        self.tell(ask, finished)
    }

    /// With no lane in flight. Such runs take the lanes in turn: known answers prove them all.
    fn run_alone(&mut self, ask: Ask) -> bool {
        self.since = Instant::now();
        if let Some(score_floor) = ask.score_floor {
            self.engine.set_score_floor(score_floor);
        }
        self.answers.clear();
        let frames: Vec<&Frame> = ask.frames.iter().map(AsRef::as_ref).collect();
        let ran = if self.engine.lanes() > 1
            && let Some(lane) = self.free.pop_front()
        {
            self.free.push_back(lane);
            self.engine.begin(lane, &frames).and_then(|()| self.engine.finish(lane, &mut self.answers))
        } else {
            self.engine.infer(&frames, &mut self.answers)
        };
        if ask.score_floor.is_some() {
            self.engine.set_score_floor(self.usual_floor);
        }
        match ran {
            Err(error) => self.failed(ask, error),
            ran => self.tell(ask, ran),
        }
    }

    /// A picture that does not match its own description must not spoil the answers of others: each is tried alone.
    fn failed(&mut self, ask: Ask, error: Error) -> bool {
        if error.kind() != ErrorKind::Refused || ask.frames.len() < 2 {
            return self.tell(ask, Err(error));
        }
        let mut answers = Vec::with_capacity(ask.frames.len());
        for frame in &ask.frames {
            self.answers.clear();
            let ran = self.engine.infer(&[frame], &mut self.answers);
            answers.push(ran.and_then(|()| self.answers.pop().ok_or_else(|| miscounted(0, 1))));
        }
        self.say(ask, answers)
    }

    fn tell(&mut self, ask: Ask, ran: Result<()>) -> bool {
        let expected = ask.frames.len();
        let ran = ran.and_then(|()| match self.answers.len() {
            found if found == expected => Ok(()),
            found => Err(miscounted(found, expected)),
        });
        let answers = match ran {
            Ok(()) => self.answers.drain(..).map(Ok).collect(),
            Err(error) => {
                let copies = (1..expected).map(|_| Err(Error::new(error.kind(), error.message()))).collect::<Vec<_>>();
                std::iter::once(Err(error)).chain(copies).collect()
            }
        };
        self.say(ask, answers)
    }

    fn say(&mut self, ask: Ask, answers: Vec<Result<Inference>>) -> bool {
        let now = Instant::now();
        let took = now - self.since;
        self.since = now;
        // Follows a faster engine at once and a slower one slowly: a long wait for work is no slow run.
        self.usual = if took < self.usual || self.usual.is_zero() { took } else { self.usual + self.usual / 8 };
        let ticket = ask.ticket;
        // Before the answer goes out, so that a camera gets its buffer back without waiting for this thread.
        drop(ask);
        let said = self.say.send(Said { ticket, answers, memory: self.engine.memory(), took }).is_ok();
        self.bell.ring();
        said
    }
}

enum Next {
    Ask(Ask),
    Land,
    Over,
}

fn miscounted(found: usize, expected: usize) -> Error {
    Error::unexpected(format!("the engine gave {found} answers, expected {expected}"))
}
