//! Triggers and the parts they open: exactly one decision a part, also while the engine is stuck or a camera is gone.
//!
//! A trigger opens a part at once; the next frame captured after it carries the part. A thread of its own answers parts
//! whose deadline passes. Whoever closes a part in the book writes its row; a later answer finds the part closed.

use crate::decision::Decision;
use crate::decision::parts::{Decided, Opened, PartBook, PartCounts};
use crate::error::{Error, Result};
use crate::frame::{PartTag, StreamName};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The parts of a run; shared by camera threads, the engine thread, the timer and the HTTP server.
#[derive(Debug)]
pub struct Clerk {
    streams: Vec<StreamName>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// One a stream.
    deadlines: Vec<Duration>,
    book: PartBook,
    stream_of: HashMap<Arc<str>, usize>,
    waiting: Vec<VecDeque<Waiting>>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    tag: PartTag,
    since: Instant,
}

/// A part that was closed by the clerk itself, without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// Index of the stream the part belongs to.
    pub stream: usize,
    /// The part with its decision, which is `not_inspected`.
    pub decided: Decided,
}

impl Clerk {
    /// Deadline of parts whose recipe sets none: a part is never left without an answer.
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(2);

    /// A clerk for `streams`; parts are due `deadline` after their trigger.
    pub fn new(streams: Vec<StreamName>, deadline: Option<Duration>) -> Self {
        let deadlines = streams.iter().map(|_| deadline).collect();
        Self::with_deadlines(streams, deadlines)
    }

    /// A clerk for `streams`, each with the deadline of its parts.
    pub fn with_deadlines(streams: Vec<StreamName>, deadlines: Vec<Option<Duration>>) -> Self {
        let usual = |deadline: Option<Duration>| deadline.unwrap_or(Self::DEFAULT_DEADLINE);
        let deadlines: Vec<Duration> = deadlines.into_iter().map(usual).collect();
        let waiting = streams.iter().map(|_| VecDeque::new()).collect();
        let book = PartBook::new(Some(deadlines.first().copied().unwrap_or(Self::DEFAULT_DEADLINE)));
        Clerk {
            streams,
            state: Mutex::new(State { deadlines, book, stream_of: HashMap::new(), waiting, closed: false }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a trigger from outside: the next frame of `stream` captured from now on carries the part. `stream` may be
    /// left out when there is only one.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an unknown stream, a stream left out where there are several, an id that cannot
    /// be used, or at the end of the run.
    pub fn trigger(&self, stream: Option<&str>, id: Option<&str>, now: Instant) -> Result<Opened> {
        let index = self.stream_index(stream)?;
        let mut state = self.lock();
        let opened = state.open(index, id, now)?;
        state.waiting[index].push_back(Waiting { tag: opened.tag.clone(), since: now });
        Ok(opened)
    }

    /// Opens the part of a frame that its source triggered itself (the simulated line).
    ///
    /// # Errors
    /// As [`Clerk::trigger`].
    pub fn open(&self, stream: usize, id: &str, now: Instant) -> Result<Opened> {
        self.lock().open(stream, Some(id), now)
    }

    /// The part that a frame of `stream` which arrived at `arrived` is for, if one waits.
    pub fn claim(&self, stream: usize, arrived: Instant) -> Option<PartTag> {
        let mut state = self.lock();
        let State { book, waiting, .. } = &mut *state;
        let waiting = waiting.get_mut(stream)?;
        while let Some(first) = waiting.front() {
            if !book.is_open(&first.tag.id) {
                waiting.pop_front();
            } else if first.since <= arrived {
                return waiting.pop_front().map(|first| first.tag);
            } else {
                return None;
            }
        }
        None
    }

    /// Closes a part with its answer; `None` when it is closed already, so that the caller writes no second decision.
    pub fn answer(&self, id: &str, decision: Decision, now: Instant) -> Option<Decided> {
        let mut state = self.lock();
        let decided = state.book.answer(id, decision, now)?;
        state.stream_of.remove(&decided.part);
        Some(decided)
    }

    /// Closes the parts whose deadline lies before `now`.
    pub fn expire(&self, now: Instant) -> Vec<Unanswered> {
        let mut state = self.lock();
        let expired = state.book.expire(now);
        state.with_streams(expired)
    }

    /// Closes every open part and refuses triggers from now on: the end of the run.
    pub fn drain(&self) -> Vec<Unanswered> {
        let mut state = self.lock();
        state.closed = true;
        let drained = state.book.drain();
        state.with_streams(drained)
    }

    /// What happened to parts so far.
    pub fn counts(&self) -> PartCounts {
        self.lock().book.counts()
    }

    /// Number of parts that wait for an answer.
    pub fn open_parts(&self) -> usize {
        self.lock().book.waiting()
    }

    /// Parts triggered before `moment` that wait for an answer.
    pub fn open_before(&self, moment: Instant) -> usize {
        self.lock().book.waiting_since_before(moment)
    }

    /// Whether this part waits for an answer and was triggered before `moment`.
    pub fn was_open_before(&self, id: &str, moment: Instant) -> bool {
        self.lock().book.triggered(id).is_some_and(|triggered| triggered < moment)
    }

    /// Parts of these streams that are opened from now on are due `deadline` after their trigger.
    pub fn set_deadline(&self, streams: &[usize], deadline: Option<Duration>) {
        let deadline = deadline.unwrap_or(Self::DEFAULT_DEADLINE);
        let mut state = self.lock();
        for &stream in streams {
            if let Some(of_stream) = state.deadlines.get_mut(stream) {
                *of_stream = deadline;
            }
        }
    }

    fn stream_index(&self, stream: Option<&str>) -> Result<usize> {
        let names = || self.streams.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match stream {
            Some(name) => self
                .streams
                .iter()
                .position(|known| &**known == name)
                .ok_or_else(|| Error::usage(format!("found stream `{name}`, expected one of: {}", names()))),
            None if self.streams.len() == 1 => Ok(0),
            None => Err(Error::usage(format!("found no stream, expected one of: {}", names()))),
        }
    }
}

impl State {
    fn open(&mut self, stream: usize, id: Option<&str>, now: Instant) -> Result<Opened> {
        if self.closed {
            return Err(Error::usage("the run has ended, no parts are taken"));
        }
        let within = self.deadlines.get(stream).copied().unwrap_or(Clerk::DEFAULT_DEADLINE);
        let opened = self.book.open_within(id, now, Some(within))?;
        self.stream_of.insert(Arc::clone(&opened.tag.id), stream);
        Ok(opened)
    }

    fn with_streams(&mut self, decided: Vec<Decided>) -> Vec<Unanswered> {
        decided
            .into_iter()
            .map(|decided| Unanswered { stream: self.stream_of.remove(&decided.part).unwrap_or(0), decided })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clerk() -> Clerk {
        Clerk::new(vec!["left".into(), "right".into()], Some(Duration::from_millis(100)))
    }

    #[test]
    fn the_next_frame_after_the_trigger_carries_the_part() {
        let clerk = clerk();
        let start = Instant::now();
        let opened = clerk.trigger(Some("right"), Some("A1"), start + Duration::from_millis(10)).unwrap();
        assert_eq!(clerk.claim(1, start), None, "captured before the trigger");
        assert_eq!(clerk.claim(0, start + Duration::from_millis(20)), None, "another stream");
        assert_eq!(clerk.claim(1, start + Duration::from_millis(20)), Some(opened.tag));
        assert_eq!(clerk.claim(1, start + Duration::from_millis(30)), None, "one frame a part");
    }

    #[test]
    fn a_part_without_a_frame_is_answered_at_its_deadline_and_once() {
        let clerk = clerk();
        let start = Instant::now();
        clerk.trigger(Some("right"), Some("A1"), start).unwrap();
        let late = start + Duration::from_millis(150);
        let unanswered = clerk.expire(late);
        assert_eq!(unanswered.len(), 1);
        assert_eq!((unanswered[0].stream, unanswered[0].decided.decision), (1, Decision::NotInspected));
        assert_eq!(clerk.claim(1, late), None, "the part is closed");
        assert_eq!(clerk.answer("A1", Decision::Pass, late), None);
        assert!(clerk.expire(late).is_empty());
    }

    #[test]
    fn unknown_or_missing_streams_are_refused() {
        let clerk = clerk();
        assert!(clerk.trigger(Some("middle"), None, Instant::now()).unwrap_err().message().contains("`left`, `right`"));
        assert!(clerk.trigger(None, None, Instant::now()).is_err());
    }

    #[test]
    fn the_end_of_the_run_closes_all_parts_and_takes_no_more() {
        let clerk = clerk();
        clerk.trigger(Some("left"), None, Instant::now()).unwrap();
        assert_eq!(clerk.drain().len(), 1);
        assert!(clerk.trigger(Some("left"), None, Instant::now()).is_err());
        assert_eq!(clerk.open_parts(), 0);
    }
}
