//! What the recorder knows of lanes, engines and incidents.

use super::super::IncidentOptions;
use super::super::report::{EngineFacts, EventLine, Report, time_text};
use super::super::ring::{Lane, Shot};
use super::super::writer::Writer;
use super::{EVENTS_BEFORE, MOST_EVENTS};
use crate::sinks::row::Row;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(super) struct State {
    pub(super) options: IncidentOptions,
    pub(super) lanes: Vec<Lane>,
    /// Number of the engine that answers each lane.
    pub(super) engine_of: Vec<usize>,
    /// One an engine: a fault of one is no incident of the other.
    pub(super) engines: Vec<Log>,
    pub(super) pending: Vec<Shot>,
    pub(super) spare: Vec<Shot>,
    /// Incidents that are closed and not over: they end with the first good frame of their lane.
    pub(super) lasting: Vec<Lasting>,
    pub(super) writer: Option<Writer>,
    pub(super) ids: u64,
    pub(super) spent: Duration,
    pub(super) recorded: u64,
}

/// What is known of one engine.
#[derive(Default)]
pub(super) struct Log {
    pub(super) facts: Option<(EngineFacts, Arc<[u8]>)>,
    pub(super) events: VecDeque<EventLine>,
    pub(super) open: Option<Open>,
    /// The reason of its last incident, and when that began.
    pub(super) last: Option<(String, Instant)>,
}

impl Log {
    pub(super) fn event(&mut self, kind: &str, text: &str) {
        let line = EventLine { at: time_text(SystemTime::now()), kind: kind.to_owned(), text: text.to_owned() };
        let most = if self.open.is_some() { MOST_EVENTS } else { EVENTS_BEFORE };
        while self.events.len() >= most {
            self.events.pop_front();
        }
        self.events.push_back(line);
    }

    pub(super) fn facts(&self) -> EngineFacts {
        self.facts.as_ref().map(|(facts, _)| facts.clone()).unwrap_or_default()
    }
}

pub(super) struct Open {
    pub(super) id: Arc<str>,
    pub(super) report: Report,
    pub(super) since: Instant,
    /// Frames still to be recorded, by lane; `None`: not part of it.
    pub(super) left: Vec<Option<u32>>,
    /// The lane whose first good frame ends it; `None`: the service says when it is over.
    pub(super) ends_with: Option<usize>,
    pub(super) over: bool,
}

pub(super) struct Lasting {
    pub(super) report: Report,
    pub(super) since: Instant,
    pub(super) lane: usize,
}

impl State {
    /// The slot with the answer for this row, or an empty one.
    pub(super) fn shot_of(&mut self, row: &Row, lane: usize) -> Shot {
        let own = |shot: &Shot| {
            shot.tag.as_ref().is_some_and(|tag| tag.stream == row.stream && Some(tag.number) == row.number)
        };
        let mut shot = match self.pending.iter().position(own) {
            Some(at) => self.pending.swap_remove(at),
            None => {
                let mut spare = self.spare.pop().unwrap_or_else(Shot::new);
                spare.clear();
                spare
            }
        };
        let log = self.engine_of.get(lane).and_then(|&engine| self.engines.get(engine));
        let device = log.and_then(|log| log.facts.as_ref()).map_or(0, |(facts, _)| facts.device);
        shot.take_row(row, usize::try_from(device).unwrap_or(0));
        shot
    }
}
