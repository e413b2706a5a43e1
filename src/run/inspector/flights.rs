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
    /// It was in flight when the engine was repaired or replaced.
    told: bool,
}

/// The batches that are at the engine, first the one that is answered next.
#[derive(Default)]
pub(super) struct Flights {
    queue: VecDeque<Flight>,
    /// Answers of engines that were replaced.
    left: VecDeque<Answered>,
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
        let mut flight = Flight { ticket: None, captures, refused: None, stamp: Arc::clone(stamp), told: false };
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
        Some(flight.answers(answered))
    }

    /// The engine is repaired: what is in flight raises no further alarm.
    pub(super) fn repaired(&mut self) {
        self.queue.iter_mut().for_each(|flight| flight.told = true);
    }

    /// `before` is replaced. Whatever is still in flight was meant for it: its frames are faults, none is lost.
    pub(super) fn outlive(&mut self, before: &mut Host) {
        before.give_up();
        while let Some(answered) = before.collect(Duration::MAX) {
            self.left.push_back(answered);
        }
        self.repaired();
    }
}

impl Flight {
    fn answers(self, answered: Option<Answered>) -> Vec<Answer> {
        let mut answers = match answered {
            Some(answered) if Some(answered.ticket) == self.ticket => answered.answers.into_iter(),
            Some(answered) => {
                // Cannot happen; if it does, no answer goes to a frame that it may not belong to.
                log::error!("found the answers of batch {}, expected {:?}", answered.ticket, self.ticket);
                Vec::new().into_iter()
            }
            None => Vec::new().into_iter(),
        };
        let (mut refused, stamp, told) = (self.refused, self.stamp, self.told);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::canned::CannedEngine;
    use crate::frame::Picture;
    use crate::guard::picture::PictureStats;
    use crate::units::SizePx;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    fn host() -> Host {
        let engine = CannedEngine::identifying(&["a"], SizePx::new(64, 64)).with_lanes(2);
        Host::start(Box::new(move || Ok(Box::new(engine))), LONG, &|| {}).unwrap()
    }

    fn batch(number: u64) -> Batch {
        let picture = Picture::rgb(SizePx::new(2, 2), vec![0; 12]);
        let stats = Box::new(PictureStats::measure(&picture));
        let frame = Arc::new(Frame::new("cam", number, picture));
        let (arrived, picture) = (Instant::now(), Sight::Frame(frame, stats));
        vec![(0, Box::new(Work { number, captured_at: None, source: None, arrived, part: None, picture }))]
    }

    fn collect(flights: &mut Flights, host: &mut Host) -> Answer {
        let since = Instant::now();
        loop {
            if let Some(mut answers) = flights.collect(host, LONG) {
                return answers.remove(0);
            }
            assert!(since.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_in_flight_at_the_engine_before_raises_no_alarm_however_few_calls_the_new_one_has_had() {
        let (mut old, stamp) = (host(), Arc::default());
        let mut flights = Flights::default();
        for number in 0..5 {
            flights.submit(&mut old, batch(number), &stamp);
            assert!(!collect(&mut flights, &mut old).told);
        }
        flights.submit(&mut old, batch(5), &stamp);
        let mut new = host();
        flights.outlive(&mut old);
        flights.submit(&mut new, batch(6), &stamp);
        let left = collect(&mut flights, &mut new);
        assert!(left.told && matches!(left.said, Some(Err(Trouble::GivenUp))), "{left:?}");
        assert!(!collect(&mut flights, &mut new).told, "the new engine's own answers are judged");
        flights.submit(&mut new, batch(7), &stamp);
        flights.repaired();
        assert!(collect(&mut flights, &mut new).told);
    }
}
