//! Which batches are at the engine, whose answers are still wanted, and for how long the engine has been busy with the first.
//!
//! Every batch that is asked for has its answers in [`Accounts::collect`], whatever becomes of it; the exception is one that
//! was not [wanted](Accounts::wanted), because somebody waits for it elsewhere.

use super::worker::Said;
use crate::engine::Inference;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Why a frame has no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The engine says so itself.
    Failed(Error),
    /// The call took longer than its limit. It may still come back: see [`Host::comes_back`](super::Host::comes_back).
    Stuck(Duration),
    /// The engine was given up, or its answers are not wanted any more, before this one came. Told of elsewhere.
    GivenUp,
}

impl Trouble {
    /// For people.
    pub fn what(&self) -> &str {
        match self {
            Trouble::Failed(error) => error.message(),
            Trouble::Stuck(_) => "the engine has not answered in time",
            Trouble::GivenUp => "the engine was given up before it answered",
        }
    }
}

/// The answers of one batch.
#[derive(Debug)]
pub struct Answered {
    /// What [`Host::submit`](super::Host::submit) gave for the batch.
    pub ticket: u64,
    /// One for each frame, in order.
    pub answers: Vec<Result<Inference, Trouble>>,
}

/// Batches by ticket, from the asking to the collecting.
pub(super) struct Accounts {
    /// Tickets given so far, and answers that came so far: a ticket each.
    sent: u64,
    said: u64,
    /// Batches whose answers are wanted, with the number of their frames.
    out: VecDeque<(u64, usize)>,
    done: VecDeque<Answered>,
    /// When the engine began with the first batch in `out`.
    head_since: Instant,
    usual: Duration,
    stuck: bool,
}

impl Accounts {
    pub(super) fn new() -> Self {
        Accounts {
            sent: 0,
            said: 0,
            out: VecDeque::new(),
            done: VecDeque::new(),
            head_since: Instant::now(),
            usual: Duration::ZERO,
            stuck: false,
        }
    }

    /// The ticket of the next batch.
    pub(super) fn next_ticket(&self) -> u64 {
        self.sent
    }

    /// What a batch takes, as measured of late.
    pub(super) fn usual(&self) -> Duration {
        self.usual
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Whether the engine still has to answer something.
    pub(super) fn is_owed(&self) -> bool {
        self.said < self.sent
    }

    /// Batches at the engine whose answers are wanted.
    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    /// Batches that were wanted and have not been collected.
    pub(super) fn uncollected(&self) -> usize {
        self.out.len() + self.done.len()
    }

    /// What is left of `limit` for the batch that the engine is busy with.
    pub(super) fn left_of(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.head_since.elapsed())
    }

    /// The next batch went to the engine's thread.
    pub(super) fn asked(&mut self) {
        if !self.is_owed() {
            self.head_since = Instant::now();
        }
        self.sent += 1;
    }

    /// The answers to this batch of `count` frames are to be collected.
    pub(super) fn wanted(&mut self, ticket: u64, count: usize) {
        self.out.push_back((ticket, count));
    }

    /// Files an answer that came: the frames' own answers when it is the one with this ticket that nobody collects.
    pub(super) fn take(&mut self, said: Said) -> Option<Vec<Result<Inference>>> {
        self.said += 1;
        self.head_since = Instant::now();
        self.usual = if self.usual.is_zero() { said.took } else { (self.usual * 7 + said.took) / 8 };
        if self.out.front().is_some_and(|(ticket, _)| *ticket == said.ticket) {
            self.out.pop_front();
            let answers = said.answers.into_iter().map(|answer| answer.map_err(Trouble::Failed)).collect();
            self.done.push_back(Answered { ticket: said.ticket, answers });
            None
        } else {
            Some(said.answers)
        }
    }

    /// The first batch that is done with. One beyond its `limit` is stuck, and those behind it are given up with it.
    pub(super) fn collect(&mut self, limit: Duration) -> Option<Answered> {
        if self.done.is_empty() && !self.out.is_empty() && self.head_since.elapsed() > limit {
            self.stuck = true;
            self.settle_first(|| Trouble::Stuck(limit));
            self.settle_out(|| Trouble::GivenUp);
        }
        self.done.pop_front()
    }

    /// A batch that nobody collects is beyond its limit: those that are out are given up.
    pub(super) fn is_stuck_now(&mut self) {
        self.stuck = true;
        self.settle_out(|| Trouble::GivenUp);
    }

    /// The stuck batch is answered, or the engine is gone with it.
    pub(super) fn is_free(&mut self) {
        self.stuck = false;
    }

    /// Nothing is wanted any more, also where an answer has come already.
    pub(super) fn give_up(&mut self) {
        for answered in &mut self.done {
            answered.answers.iter_mut().for_each(|answer| *answer = Err(Trouble::GivenUp));
        }
        self.settle_out(|| Trouble::GivenUp);
    }

    /// The engine's thread has ended by itself: whatever was out has failed.
    pub(super) fn thread_ended(&mut self) {
        self.stuck = false;
        self.said = self.sent;
        self.settle_out(|| Trouble::Failed(ended()));
    }

    fn settle_out(&mut self, trouble: impl Fn() -> Trouble) {
        while !self.out.is_empty() {
            self.settle_first(&trouble);
        }
    }

    fn settle_first(&mut self, trouble: impl Fn() -> Trouble) {
        if let Some((ticket, count)) = self.out.pop_front() {
            let answers = (0..count).map(|_| Err(trouble())).collect();
            self.done.push_back(Answered { ticket, answers });
        }
    }
}

pub(super) fn ended() -> Error {
    Error::unexpected("the engine's thread has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemoryFigures;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Ask { frames: usize, wanted: bool },
        Answer,
        Collect { stuck: bool },
        GiveUp,
        StuckElsewhere,
        ThreadEnds,
        ComesBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..4_usize, any::<bool>()).prop_map(|(frames, wanted)| Step::Ask { frames, wanted }),
            8 => Just(Step::Answer),
            8 => Just(Step::Collect { stuck: false }),
            1 => Just(Step::Collect { stuck: true }),
            1 => Just(Step::GiveUp),
            1 => Just(Step::StuckElsewhere),
            1 => Just(Step::ThreadEnds),
            1 => Just(Step::ComesBack),
        ]
    }

    /// The engine's own words for each frame of a batch.
    fn said(ticket: u64, frames: usize) -> Said {
        let answers = (0..frames).map(|_| Err(Error::refused(ticket.to_string()))).collect();
        Said { ticket, answers, memory: MemoryFigures::default(), took: Duration::from_millis(1) }
    }

    /// The next wanted batch, with its own answers or none: never another one's.
    fn is_next(answered: &Answered, wanted: &mut VecDeque<(u64, usize)>) {
        assert_eq!(Some((answered.ticket, answered.answers.len())), wanted.pop_front());
        for answer in &answered.answers {
            if let Err(Trouble::Failed(error)) = answer {
                assert!(
                    [answered.ticket.to_string().as_str(), ended().message()].contains(&error.message()),
                    "{error}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn every_wanted_batch_is_collected_once_in_order_whatever_happens(
            steps in proptest::collection::vec(step(), 0..80)
        ) {
            let mut accounts = Accounts::new();
            let (mut at_engine, mut wanted) = (VecDeque::new(), VecDeque::new());
            for step in steps {
                match step {
                    // The host asks no engine that is stuck.
                    Step::Ask { .. } if accounts.is_stuck() => {}
                    Step::Ask { frames, wanted: is_wanted } => {
                        let ticket = accounts.next_ticket();
                        accounts.asked();
                        at_engine.push_back((ticket, frames));
                        if is_wanted {
                            accounts.wanted(ticket, frames);
                            wanted.push_back((ticket, frames));
                        }
                    }
                    Step::Answer => {
                        if let Some((ticket, frames)) = at_engine.pop_front() {
                            let own = accounts.take(said(ticket, frames));
                            prop_assert!(own.is_none_or(|answers| answers.len() == frames));
                        }
                    }
                    Step::Collect { stuck } => {
                        if stuck {
                            std::thread::sleep(Duration::from_micros(1));
                        }
                        let limit = if stuck { Duration::ZERO } else { Duration::MAX };
                        if let Some(answered) = accounts.collect(limit) {
                            is_next(&answered, &mut wanted);
                        }
                    }
                    Step::GiveUp => accounts.give_up(),
                    Step::StuckElsewhere => accounts.is_stuck_now(),
                    Step::ThreadEnds => {
                        at_engine.clear();
                        accounts.thread_ended();
                    }
                    Step::ComesBack => accounts.is_free(),
                }
                prop_assert_eq!(accounts.uncollected(), wanted.len());
            }
            accounts.give_up();
            while let Some(answered) = accounts.collect(Duration::MAX) {
                prop_assert!(answered.answers.iter().all(|answer| matches!(answer, Err(Trouble::GivenUp))));
                is_next(&answered, &mut wanted);
            }
            prop_assert!(wanted.is_empty(), "never collected: {wanted:?}");
        }
    }
}
