//! The loop over captures of one engine: closes batches, keeps the engine busy, makes rows, and acts on what they show.

use super::cameras::Cameras;
use super::depot::{Batch, Delivery, Depot, Next, Sight, Wanted};
use super::inspector::{Alarm, Answer, Inspector};
use super::service::Service;
use super::station::Quota;
use super::stop::StopReason;
use super::teller::RowSender;
use super::{Outcome, Shared};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::guard::Trust;
use crate::sinks::http::Phase;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Longest wait for a capture or an answer before the loop looks around.
const PATIENCE: Duration = Duration::from_millis(200);

/// One engine with the streams it serves.
pub(super) struct Desk<'a, 'b> {
    pub(super) shared: Shared<'a>,
    /// The lanes of the depot that it serves.
    pub(super) group: usize,
    pub(super) inspector: Inspector,
    pub(super) service: Service<'a>,
    pub(super) cameras: &'a Mutex<Cameras<'b>>,
    pub(super) depot: &'a Arc<Depot>,
    pub(super) rows: &'a RowSender,
    pub(super) deliveries: &'a [Delivery],
    pub(super) quota: &'a Quota,
    pub(super) outcome: Outcome,
}

/// Runs the first desk on the calling thread and every further one on a thread of its own; ends when all have. The first
/// error ends them all.
pub(super) fn run_all<'scope, 'env, 'a: 'scope, 'b: 'scope>(
    desks: Vec<Desk<'a, 'b>>,
    scope: &'scope Scope<'scope, 'env>,
) -> Result<Outcome> {
    let mut desks = desks.into_iter();
    let Some(first) = desks.next() else { return Ok(Outcome::default()) };
    let others: Vec<_> = desks.map(|desk| scope.spawn(move || desk.run())).collect();
    let mut ended = vec![first.run()];
    for other in others {
        ended.push(other.join().unwrap_or_else(|_| Err(Error::unexpected("an engine's loop has ended early"))));
    }
    let mut whole = Outcome::default();
    for outcome in ended {
        let Outcome { results, unreadable, incidents, .. } = outcome?;
        for (trust, count) in results {
            *whole.results.entry(trust).or_default() += count;
        }
        whole.unreadable += unreadable;
        whole.incidents.extend(incidents);
    }
    Ok(whole)
}

impl<'b> Desk<'_, 'b> {
    /// Answers until the sources end, the count or time is reached, or the run stops. Every capture that went to the engine
    /// has its row then.
    pub(super) fn run(mut self) -> Result<Outcome> {
        let (depot, group) = (Arc::clone(self.depot), self.group);
        self.inspector.rings(Arc::new(move || depot.nudge(group)));
        let ended = self.turns();
        self.land_all(ended.is_err());
        let ended = self.service.end(&mut self.inspector, ended);
        if ended.is_err() {
            self.shared.stop.raise(StopReason::Failed);
        }
        self.shared.board.retire();
        self.outcome.incidents = self.service.incidents();
        ended.map(|()| self.outcome)
    }

    fn turns(&mut self) -> Result<()> {
        let (options, stop) = (self.shared.options, self.shared.stop.clone());
        let until = options.duration.map(|duration| Instant::now() + duration);
        let mut batch = Batch::new();
        while !stop.is_raised() && !self.quota.is_used_up() && until.is_none_or(|until| Instant::now() < until) {
            self.shared.board.heartbeat();
            self.cameras().look();
            self.service.between_frames(&mut self.inspector, self.depot.has_work(self.group))?;
            let ready = self.inspector.collect();
            // With answers there, the engine gets its next batch before they are looked at.
            let patience = if ready.is_some() { Duration::ZERO } else { self.patience() };
            let wanted = self.wanted();
            let next = self.depot.next(self.group, wanted, patience, &mut batch);
            self.quota.give_back(wanted.most - batch.len());
            match next {
                Next::Batch(closed) => {
                    self.service.set_aside(&mut batch);
                    self.inspector.submit(std::mem::take(&mut batch), closed);
                }
                Next::Over if ready.is_none() && self.inspector.in_flight() == 0 => break,
                Next::Over | Next::Nudged | Next::Nothing => {}
            }
            if let Some(answers) = ready {
                let alarm = self.tell(answers);
                self.service.act_on(&mut self.inspector, alarm)?;
            }
        }
        Ok(())
    }

    fn cameras(&self) -> MutexGuard<'_, Cameras<'b>> {
        self.cameras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self) -> Duration {
        let of_engine = self.inspector.due_in().unwrap_or(PATIENCE);
        PATIENCE.min(self.service.due_in()).min(of_engine)
    }

    fn wanted(&self) -> Wanted {
        let room = if self.service.holds() { 0 } else { self.inspector.room() };
        Wanted {
            most: self.quota.take(room),
            wait: self.shared.options.service.batch_wait.unwrap_or_else(|| self.inspector.usual_wait()),
            busy: self.inspector.in_flight() > 0,
        }
    }

    /// Makes a row of every capture of a batch and hands it on. What the run must act on is the gravest that was seen.
    fn tell(&mut self, answers: Vec<Answer>) -> Option<Alarm> {
        let mut gravest: Option<Alarm> = None;
        for answer in answers {
            let frame = self.for_shadow(&answer);
            let (lane, told) = (answer.lane, answer.told);
            self.outcome.unreadable += u64::from(matches!(answer.work.picture, Sight::Unreadable(_)));
            let (row, alarm) = self.inspector.finish(answer);
            if alarm.as_ref().is_some_and(|alarm| alarm.cause.is_some()) {
                self.shared.board.set_phase(Phase::Fault);
            }
            *self.outcome.results.entry(row.trust).or_default() += 1;
            self.service.note(&row, told);
            self.cameras().note(lane, &row);
            let trusted = row.trust != Trust::Fault;
            self.rows.put(row, self.deliveries[lane] == Delivery::Every);
            self.quota.answered();
            gravest = match (gravest, alarm) {
                (Some(known), Some(new)) if known.cause.is_none() && new.cause.is_some() => Some(new),
                (known, new) => known.or(new),
            };
            if let Some(frame) = frame.filter(|_| trusted && gravest.is_none()) {
                self.service.shadow(&frame, self.inspector.judged());
            }
        }
        gravest
    }

    fn for_shadow(&self, answer: &Answer) -> Option<Arc<Frame>> {
        match &answer.work.picture {
            Sight::Frame(frame, _) if self.service.shadows() => Some(Arc::clone(frame)),
            _ => None,
        }
    }

    /// The end: whatever is at the engine is answered, or given up when the engine has failed.
    fn land_all(&mut self, failed: bool) {
        if failed {
            self.inspector.give_up_flights();
        }
        while self.inspector.in_flight() > 0 {
            match self.inspector.collect() {
                Some(answers) => drop(self.tell(answers)),
                None => {
                    self.shared.board.heartbeat();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}
