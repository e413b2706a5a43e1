//! One stream's captures that wait: what a new one replaces, what queues behind others, and what finds no room.

use super::Pushed;
use super::work::Work;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How a stream is delivered to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The newest frame; older ones are dropped and counted.
    Newest,
    /// Every frame in order; the source waits while the queue is full.
    Every,
}

/// The captures of one stream.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) delivery: Delivery,
    pub(super) group: usize,
    newest: Option<Box<Work>>,
    queue: VecDeque<Box<Work>>,
    pub(super) ended: bool,
    /// Frames that a newer one replaced.
    pub(super) replaced: u64,
    pub(super) rhythm: Rhythm,
    /// Its turn: the lane whose turn is longest ago is the next one.
    pub(super) served: u64,
}

impl Lane {
    /// Most captures that wait in the queue.
    pub(super) const QUEUE_LIMIT: usize = 16;

    pub(super) fn new(delivery: Delivery, group: usize) -> Self {
        Lane {
            delivery,
            group,
            newest: None,
            queue: VecDeque::with_capacity(Self::QUEUE_LIMIT),
            ended: false,
            replaced: 0,
            rhythm: Rhythm::default(),
            served: 0,
        }
    }

    /// Takes a capture in, or gives it back when there is no room for it.
    pub(super) fn offer(&mut self, work: Box<Work>) -> Result<Pushed, Box<Work>> {
        if self.delivery == Delivery::Newest && work.part.is_none() {
            let before = self.newest.replace(work);
            return Ok(self.count_replaced(before));
        }
        if self.queue.len() >= Self::QUEUE_LIMIT {
            return Err(work);
        }
        self.queue.push_back(work);
        let before = self.newest.take();
        Ok(self.count_replaced(before))
    }

    fn count_replaced(&mut self, before: Option<Box<Work>>) -> Pushed {
        self.replaced += u64::from(before.is_some());
        before.map_or(Pushed::Waiting, |_| Pushed::Replaced)
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.newest.is_some())
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.queue.front().or(self.newest.as_ref()).map(|work| work.arrived)
    }

    /// Whether a further capture would find a place beside those that wait.
    pub(super) fn may_add(&self) -> bool {
        !self.ended && (self.waiting() == 0 || self.delivery == Delivery::Every)
    }

    pub(super) fn take(&mut self) -> Option<Box<Work>> {
        self.queue.pop_front().or_else(|| self.newest.take())
    }
}

/// How often captures of a lane come.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    pub(super) last: Option<Instant>,
    pub(super) interval: Option<Duration>,
}

impl Rhythm {
    /// A lane that is silent for more than this many intervals is not waited for.
    const MISSED: u32 = 3;

    pub(super) fn pushed(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let new = now - last;
            self.interval = Some(self.interval.map_or(new, |usual| (usual * 3 + new) / 4));
        }
        self.last = Some(now);
    }

    /// Whether captures still come.
    pub(super) fn is_alive(&self, now: Instant) -> bool {
        let (Some(last), Some(interval)) = (self.last, self.interval) else { return false };
        now.saturating_duration_since(last) < interval * Self::MISSED
    }

    /// Whether one is to be expected until `until`.
    pub(super) fn is_due(&self, now: Instant, until: Instant) -> bool {
        let (Some(last), Some(interval)) = (self.last, self.interval) else { return false };
        self.is_alive(now) && last + interval <= until
    }
}
