//! Where captures wait for an engine: one lane a stream, bounded, with every drop counted; and where batches are closed.
//!
//! A `newest` lane is a mailbox of one: a newer frame replaces an older one, and the drop is counted. An `every` lane is a
//! bounded queue in order: the camera thread waits while it is full. Frames taken for a part always queue, whatever the
//! lane's delivery, and a part's frame clears an older waiting frame so that a stream is answered in order.
//!
//! Each lane belongs to one group; a group is served by one engine. This file is who waits for whom and who wakes whom; what a
//! lane keeps is in `lane`, when a batch is closed in `batching`.

mod batching;
mod lane;
mod work;

use batching::Lanes;
pub use batching::{Closed, Wanted};
pub use lane::Delivery;
use lane::Lane;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub use work::{Sight, Work};

/// What became of a pushed capture.
#[derive(Debug)]
pub enum Pushed {
    /// It waits for the engine.
    Waiting,
    /// It replaced an older frame, which is dropped.
    Replaced,
    /// The lane is full of parts: this one is given back, to be answered `not_inspected`.
    Refused(Box<Work>),
    /// The run is over.
    Closed,
}

/// Captures with the index of their lane.
pub type Batch = Vec<(usize, Box<Work>)>;

/// Why [`Depot::next`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A batch is closed.
    Batch(Closed),
    /// [`Depot::nudge`] was called.
    Nudged,
    /// Nothing within the time given.
    Nothing,
    /// All lanes of the group have ended and are empty and no batch is in flight, or the depot was closed.
    Over,
}

#[derive(Debug)]
struct State {
    lanes: Lanes,
    /// One a group.
    nudged: Vec<bool>,
    closed: bool,
}

/// The lanes of a run.
#[derive(Debug)]
pub struct Depot {
    state: Mutex<State>,
    /// One a group.
    filled: Vec<Condvar>,
    emptied: Condvar,
}

impl Depot {
    /// Most captures that wait in one lane's queue.
    pub const QUEUE_LIMIT: usize = Lane::QUEUE_LIMIT;

    /// A depot with one lane for each delivery in `lanes`, all of one group.
    pub fn new(lanes: &[Delivery]) -> Self {
        Self::grouped(&lanes.iter().map(|&delivery| (delivery, 0)).collect::<Vec<_>>())
    }

    /// A depot with one lane for each delivery in `lanes`, which belongs to the group beside it.
    pub fn grouped(lanes: &[(Delivery, usize)]) -> Self {
        let groups = lanes.iter().map(|(_, group)| group + 1).max().unwrap_or(1);
        let lanes = lanes.iter().map(|&(delivery, group)| Lane::new(delivery, group)).collect();
        Depot {
            state: Mutex::new(State { lanes: Lanes::new(lanes), nudged: vec![false; groups], closed: false }),
            filled: (0..groups).map(|_| Condvar::new()).collect(),
            emptied: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a capture over. On an `every` lane this waits while the queue is full and `keep_waiting` says so.
    pub fn push(&self, lane_index: usize, work: Box<Work>, keep_waiting: impl Fn() -> bool) -> Pushed {
        const PAUSE: Duration = Duration::from_millis(100);
        let mut state = self.lock();
        let now = Instant::now();
        if let Some(lane) = state.lanes.each.get_mut(lane_index) {
            lane.rhythm.pushed(now);
        }
        let mut work = work;
        loop {
            if state.closed {
                return Pushed::Closed;
            }
            let Some(lane) = state.lanes.each.get_mut(lane_index) else { return Pushed::Closed };
            work = match lane.offer(work) {
                Ok(pushed) => {
                    let group = lane.group;
                    drop(state);
                    self.filled[group].notify_all();
                    return pushed;
                }
                Err(work) if lane.delivery == Delivery::Newest => return Pushed::Refused(work),
                Err(work) => work,
            };
            if !keep_waiting() {
                return Pushed::Closed;
            }
            state = self.emptied.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits at most `patience` until a batch of `group` is closed and puts it into `batch`, which is emptied first.
    pub fn next(&self, group: usize, wanted: Wanted, patience: Duration, batch: &mut Batch) -> Next {
        batch.clear();
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        let Some(filled) = self.filled.get(group) else { return Next::Over };
        loop {
            if state.closed {
                return Next::Over;
            }
            let now = Instant::now();
            let until = match state.lanes.closes(group, wanted, now) {
                Ok(why) => {
                    state.lanes.fill(group, wanted.most, batch);
                    drop(state);
                    self.emptied.notify_all();
                    return Next::Batch(why);
                }
                Err(until) => until.map_or(deadline, |until| until.min(deadline)),
            };
            if std::mem::take(&mut state.nudged[group]) {
                return Next::Nudged;
            }
            if !wanted.busy && state.lanes.of_group(group).all(|lane| lane.ended && lane.waiting() == 0) {
                return Next::Over;
            }
            if now >= deadline {
                return Next::Nothing;
            }
            state = filled.wait_timeout(state, until - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets [`Depot::next`] of this group come back at once, or the next call of it.
    pub fn nudge(&self, group: usize) {
        if let Some(nudged) = self.lock().nudged.get_mut(group) {
            *nudged = true;
        }
        if let Some(filled) = self.filled.get(group) {
            filled.notify_all();
        }
    }

    /// Whether a capture waits in a lane of `group`.
    pub fn has_work(&self, group: usize) -> bool {
        self.lock().lanes.of_group(group).any(|lane| lane.waiting() > 0)
    }

    /// Says that no more captures come on this lane; what waits is still answered.
    pub fn end(&self, lane_index: usize) {
        if let Some(lane) = self.lock().lanes.each.get_mut(lane_index) {
            lane.ended = true;
        }
        self.filled.iter().for_each(Condvar::notify_all);
    }

    /// Ends the run: nothing is handed out any more. Returns what was waiting, lane by lane.
    pub fn close(&self) -> Vec<(usize, Box<Work>)> {
        let mut state = self.lock();
        state.closed = true;
        let mut left = Vec::new();
        for (index, lane) in state.lanes.each.iter_mut().enumerate() {
            left.extend(std::iter::from_fn(|| lane.take()).map(|work| (index, work)));
        }
        drop(state);
        self.filled.iter().for_each(Condvar::notify_all);
        self.emptied.notify_all();
        left
    }

    /// Frames of a lane that a newer one replaced.
    pub fn replaced(&self, lane_index: usize) -> u64 {
        self.lock().lanes.each.get(lane_index).map_or(0, |lane| lane.replaced)
    }
}

#[cfg(test)]
mod tests {
    use super::lane::Rhythm;
    use super::*;
    use crate::frame::PartTag;
    use std::sync::Arc;

    fn work(number: u64, part: Option<&str>) -> Box<Work> {
        Box::new(Work {
            number,
            captured_at: None,
            source: None,
            arrived: Instant::now(),
            part: part.map(|id| PartTag { id: id.into(), deadline: None }),
            picture: Sight::Unreadable("test".into()),
        })
    }

    fn one_by_one() -> Wanted {
        Wanted { most: 1, wait: Duration::ZERO, busy: false }
    }

    fn numbers(depot: &Depot) -> Vec<(usize, u64)> {
        let mut seen = Vec::new();
        let mut batch = Batch::new();
        while let Next::Batch(_) = depot.next(0, one_by_one(), Duration::ZERO, &mut batch) {
            seen.extend(batch.iter().map(|(lane, work)| (*lane, work.number)));
        }
        seen
    }

    fn batch_of(depot: &Depot, wanted: Wanted, patience: Duration) -> (Next, Vec<(usize, u64)>) {
        let mut batch = Batch::new();
        let next = depot.next(0, wanted, patience, &mut batch);
        (next, batch.iter().map(|(lane, work)| (*lane, work.number)).collect())
    }

    /// Lets a lane look as if its captures came every `interval`.
    fn with_rhythm(depot: &Depot, lane: usize, interval: Duration) {
        let mut state = depot.lock();
        state.lanes.each[lane].rhythm = Rhythm { last: Some(Instant::now()), interval: Some(interval) };
    }

    #[test]
    fn newest_keeps_one_and_counts_the_rest() {
        let depot = Depot::new(&[Delivery::Newest]);
        for number in 0..5 {
            depot.push(0, work(number, None), || true);
        }
        assert_eq!(numbers(&depot), [(0, 4)]);
        assert_eq!(depot.replaced(0), 4);
    }

    #[test]
    fn parts_queue_even_on_a_newest_lane_and_keep_the_order() {
        let depot = Depot::new(&[Delivery::Newest]);
        depot.push(0, work(0, None), || true);
        depot.push(0, work(1, Some("a")), || true);
        depot.push(0, work(2, Some("b")), || true);
        depot.push(0, work(3, None), || true);
        assert_eq!(numbers(&depot), [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(depot.replaced(0), 1);
    }

    #[test]
    fn a_full_lane_gives_the_part_back() {
        let depot = Depot::new(&[Delivery::Newest]);
        for number in 0..Depot::QUEUE_LIMIT as u64 {
            depot.push(0, work(number, Some("p")), || true);
        }
        assert!(matches!(depot.push(0, work(99, Some("late")), || true), Pushed::Refused(work) if work.number == 99));
    }

    #[test]
    fn every_waits_for_room_and_loses_nothing() {
        let depot = Arc::new(Depot::new(&[Delivery::Every]));
        let pusher = std::thread::spawn({
            let depot = Arc::clone(&depot);
            move || {
                for number in 0..100 {
                    depot.push(0, work(number, None), || true);
                }
                depot.end(0);
            }
        });
        let mut seen = Vec::new();
        let mut batch = Batch::new();
        loop {
            match depot.next(0, one_by_one(), Duration::from_secs(5), &mut batch) {
                Next::Batch(_) => seen.extend(batch.iter().map(|(_, work)| work.number)),
                Next::Over => break,
                other => panic!("starved: {other:?}"),
            }
        }
        pusher.join().unwrap();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn lanes_take_turns() {
        let depot = Depot::new(&[Delivery::Every, Delivery::Every]);
        for number in 0..3 {
            depot.push(0, work(number, None), || true);
        }
        depot.push(1, work(10, None), || true);
        assert_eq!(numbers(&depot), [(0, 0), (1, 10), (0, 1), (0, 2)]);
    }

    #[test]
    fn closing_gives_back_what_waits() {
        let depot = Depot::new(&[Delivery::Every]);
        depot.push(0, work(7, Some("p")), || true);
        let left = depot.close();
        assert_eq!(left.len(), 1);
        assert_eq!(batch_of(&depot, one_by_one(), Duration::ZERO).0, Next::Over);
        assert!(matches!(depot.push(0, work(8, None), || true), Pushed::Closed));
    }

    #[test]
    fn a_batch_takes_each_lane_in_turn_and_then_what_queues_hold() {
        let depot = Depot::new(&[Delivery::Every, Delivery::Newest, Delivery::Every]);
        for number in 0..6 {
            depot.push(0, work(number, None), || true);
        }
        depot.push(1, work(10, None), || true);
        depot.push(2, work(20, None), || true);
        depot.push(2, work(21, None), || true);
        let wanted = Wanted { most: 6, ..one_by_one() };
        let (next, seen) = batch_of(&depot, wanted, Duration::ZERO);
        assert_eq!(next, Next::Batch(Closed::Full));
        assert_eq!(seen, [(0, 0), (1, 10), (2, 20), (0, 1), (2, 21), (0, 2)]);
        // The rest; first the lane whose turn is longest ago.
        depot.push(1, work(11, None), || true);
        depot.push(2, work(22, None), || true);
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO).1, [(1, 11), (2, 22), (0, 3), (0, 4), (0, 5)]);
    }

    #[test]
    fn a_batch_waits_for_what_is_due_and_not_beyond_its_deadline() {
        let wait = Duration::from_millis(30);
        let wanted = Wanted { most: 8, wait, busy: false };
        let depot = Depot::new(&[Delivery::Newest, Delivery::Newest]);
        // The other lane is due within the wait: it is waited for, and when it does not come the batch goes without it.
        with_rhythm(&depot, 1, Duration::from_millis(20));
        depot.push(0, work(0, None), || true);
        let since = Instant::now();
        assert_eq!(batch_of(&depot, wanted, Duration::from_secs(5)), (Next::Batch(Closed::Deadline), vec![(0, 0)]));
        assert!(since.elapsed() >= Duration::from_millis(25), "{:?}", since.elapsed());
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        // Due only later: nobody waits.
        with_rhythm(&depot, 1, Duration::from_secs(20));
        depot.push(0, work(1, None), || true);
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO), (Next::Batch(Closed::Complete), vec![(0, 1)]));
        // Both there: nothing more to wait for.
        depot.push(0, work(2, None), || true);
        depot.push(1, work(3, None), || true);
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO), (Next::Batch(Closed::Complete), vec![(1, 3), (0, 2)]));
    }

    #[test]
    fn with_a_batch_in_flight_only_what_can_grow_no_more_goes_ahead() {
        let depot = Depot::new(&[Delivery::Newest, Delivery::Newest]);
        let wanted = Wanted { most: 8, wait: Duration::ZERO, busy: true };
        with_rhythm(&depot, 1, Duration::from_secs(20));
        depot.push(0, work(0, None), || true);
        assert_eq!(batch_of(&depot, wanted, Duration::from_millis(20)), (Next::Nothing, vec![]));
        depot.nudge(0);
        assert_eq!(batch_of(&depot, wanted, Duration::from_secs(5)).0, Next::Nudged);
        depot.push(1, work(1, None), || true);
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO).0, Next::Batch(Closed::Complete));
        // A lane that has fallen silent holds nobody up.
        with_rhythm(&depot, 1, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(5));
        depot.push(0, work(2, None), || true);
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO), (Next::Batch(Closed::Complete), vec![(0, 2)]));
    }

    #[test]
    fn groups_do_not_see_each_other() {
        let depot = Depot::grouped(&[(Delivery::Every, 0), (Delivery::Every, 1)]);
        depot.push(1, work(1, None), || true);
        let wanted = Wanted { most: 4, wait: Duration::ZERO, busy: false };
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO), (Next::Nothing, vec![]));
        depot.end(0);
        assert_eq!(batch_of(&depot, wanted, Duration::ZERO).0, Next::Over);
        let mut batch = Batch::new();
        assert!(matches!(depot.next(1, wanted, Duration::ZERO, &mut batch), Next::Batch(_)));
        assert!(!depot.has_work(1));
    }

    #[test]
    fn without_room_or_with_a_batch_in_flight_the_end_is_not_the_end() {
        let depot = Depot::new(&[Delivery::Every]);
        depot.push(0, work(1, None), || true);
        depot.end(0);
        let none = Wanted { most: 0, wait: Duration::ZERO, busy: true };
        assert_eq!(batch_of(&depot, none, Duration::ZERO), (Next::Nothing, vec![]));
        assert_eq!(batch_of(&depot, one_by_one(), Duration::ZERO), (Next::Batch(Closed::Full), vec![(0, 1)]));
        assert_eq!(batch_of(&depot, Wanted { busy: true, ..one_by_one() }, Duration::ZERO).0, Next::Nothing);
        assert_eq!(batch_of(&depot, one_by_one(), Duration::ZERO).0, Next::Over);
    }
}
