//! When a batch is closed, and which lane's captures it takes.
//!
//! A batch takes one capture of each lane of its group in turn, the one served longest ago first, then further ones of lanes
//! with a queue: a fast stream gets what slow ones leave over and never more. It is closed when it is full, when nothing more
//! is to be expected, or when its oldest capture has waited long enough. While a batch is in flight only a full one goes
//! ahead: frames that must wait anyway wait where newer ones replace them.

use super::Batch;
use super::lane::Lane;
use std::time::{Duration, Instant};

/// What an engine asks the depot for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Most captures of the batch; 0 when the engine has no room and only waits to be nudged.
    pub most: usize,
    /// How long the oldest capture waits for others.
    pub wait: Duration,
    /// A batch is in flight already: one that is not full stays open.
    pub busy: bool,
}

/// Why a batch was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It has as many captures as the engine takes.
    Full,
    /// Every stream from which a capture is to be expected soon has given one.
    Complete,
    /// Its oldest capture has waited long enough.
    Deadline,
}

impl Closed {
    /// The word in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Closed::Full => "full",
            Closed::Complete => "complete",
            Closed::Deadline => "deadline",
        }
    }
}

/// The lanes of a run, whatever their group.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) each: Vec<Lane>,
    turns: u64,
}

impl Lanes {
    pub(super) fn new(each: Vec<Lane>) -> Self {
        Lanes { each, turns: 0 }
    }

    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = &Lane> {
        self.each.iter().filter(move |lane| lane.group == group)
    }

    /// Whether the captures that wait make a batch now; else until when at most to wait for that.
    pub(super) fn closes(&self, group: usize, wanted: Wanted, now: Instant) -> Result<Closed, Option<Instant>> {
        let Some(oldest) = self.of_group(group).filter_map(Lane::oldest).min() else { return Err(None) };
        if wanted.most == 0 {
            return Err(None);
        }
        let waiting: usize = self.of_group(group).map(Lane::waiting).sum();
        if waiting >= wanted.most {
            return Ok(Closed::Full);
        }
        let mut open = self.of_group(group).filter(|lane| lane.may_add());
        if wanted.busy {
            // Looked at again when the batch in flight is answered: whoever asks is nudged then.
            return if open.any(|lane| lane.rhythm.is_alive(now)) { Err(None) } else { Ok(Closed::Complete) };
        }
        let until = oldest + wanted.wait;
        if now >= until {
            return Ok(Closed::Deadline);
        }
        if open.any(|lane| lane.rhythm.is_due(now, until)) { Err(Some(until)) } else { Ok(Closed::Complete) }
    }

    /// Lanes in turn, one capture each, round by round until the batch is full or nothing waits. A lane that had nothing when
    /// its turn came is the first one when it has something: slow streams lose nothing to fast ones.
    pub(super) fn fill(&mut self, group: usize, most: usize, batch: &mut Batch) {
        while batch.len() < most {
            let waiting =
                self.each.iter_mut().enumerate().filter(|(_, lane)| lane.group == group && lane.waiting() > 0);
            let Some((index, lane)) = waiting.min_by_key(|(_, lane)| lane.served) else { return };
            self.turns += 1;
            lane.served = self.turns;
            batch.extend(lane.take().map(|work| (index, work)));
        }
    }
}
