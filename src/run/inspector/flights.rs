//! Batches at the engine: each capture gets the answer of its own slot, in the order in which batches were handed over.

use crate::engine::Inference;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::run::depot::{Batch, Sight, Work};
use crate::run::host::{Answered, Host, Trouble};
use crate::sinks::row::EngineStamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A capture that the engine is done with, to be made a row of.
#[derive(Debug)]
pub struct Answer {
    /// Index of the stream.
    pub lane: usize,
    /// The capture.
    pub work: Box<Work>,
    pub(super) said: Option<Result<Inference, Trouble>>,
    /// It was at the engine when that was repaired. What the engine did to it is known: it raises no alarm, and its fault is
    /// part of the incident that was repaired.
    pub told: bool,
    /// The engine that it was handed to.
    pub(super) stamp: Arc<EngineStamp>,
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

/// The batches that are at the engine, first the one that is answered next.
#[derive(Default)]
pub(super) struct Flights {
    queue: VecDeque<Flight>,
    /// Answers of engines that were replaced.
    left: VecDeque<Answered>,
    /// Batches with a lower ticket were in flight when the engine was last repaired.
    told_until: u64,
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn captures(&self) -> usize {
        self.queue.iter().map(|flight| flight.captures.len()).sum()
    }

    /// Hands a batch to the engine; gives the number of its pictures.
    pub(super) fn submit(&mut self, host: &mut Host, captures: Batch, stamp: &Arc<EngineStamp>) -> usize {
        let frames: Vec<Arc<Frame>> = captures
            .iter()
            .filter_map(|(_, work)| match &work.picture {
                Sight::Frame(frame, _) => Some(Arc::clone(frame)),
                Sight::Unreadable(_) | Sight::SetAside(_) => None,
            })
            .collect();
        let pictures = frames.len();
        let mut flight = Flight { ticket: None, captures, refused: None, stamp: Arc::clone(stamp) };
        if pictures > 0 {
            match host.submit(frames) {
                Ok(ticket) => flight.ticket = Some(ticket),
                Err(trouble) => flight.refused = Some(trouble),
            }
        }
        self.queue.push_back(flight);
        pictures
    }

    /// The captures of the first batch, when the engine is done with it; never waits.
    pub(super) fn collect(&mut self, host: &mut Host, call_limit: Duration) -> Option<Vec<Answer>> {
        let first = self.queue.front()?;
        let answered = match (first.ticket, &first.refused) {
            (Some(_), _) => Some(self.left.pop_front().or_else(|| host.collect(call_limit))?),
            (None, _) => None,
        };
        let flight = self.queue.pop_front()?;
        let told = flight.ticket.is_some_and(|ticket| ticket < self.told_until);
        Some(flight.answers(answered, told))
    }

    /// What is in flight raises no further alarm: the engine is repaired, and `next` is the first ticket after that.
    pub(super) fn repaired(&mut self, next: u64) {
        self.told_until = next;
    }

    /// `before` is replaced. Whatever is still in flight was meant for it: its frames are faults, none is lost.
    pub(super) fn outlive(&mut self, before: &mut Host) {
        before.give_up();
        while let Some(answered) = before.collect(Duration::MAX) {
            self.left.push_back(answered);
        }
    }
}

impl Flight {
    fn answers(self, answered: Option<Answered>, told: bool) -> Vec<Answer> {
        let mut answers = match answered {
            Some(answered) if Some(answered.ticket) == self.ticket => answered.answers.into_iter(),
            Some(answered) => {
                // Cannot happen; if it does, no answer goes to a frame that it may not belong to.
                log::error!("found the answers of batch {}, expected {:?}", answered.ticket, self.ticket);
                Vec::new().into_iter()
            }
            None => Vec::new().into_iter(),
        };
        let (mut refused, stamp) = (self.refused, self.stamp);
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
            Answer { lane, work, said, told, stamp: Arc::clone(&stamp) }
        };
        self.captures.into_iter().map(of_slot).collect()
    }
}

pub(super) fn lost() -> Error {
    Error::unexpected("the engine gave no answer for this frame")
}
