//! Where captures wait for the engine: one lane a stream, bounded, with every drop counted.
//!
//! A `newest` lane is a mailbox of one: a newer frame replaces an older one, and the drop is counted. An `every` lane is a
//! bounded queue in order: the camera thread waits while it is full. Frames taken for a part always queue, whatever the
//! lane's delivery, and a part's frame clears an older waiting frame so that a stream is answered in order.

use crate::frame::{Frame, PartTag};
use crate::guard::picture::PictureStats;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How a stream is delivered to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The newest frame; older ones are dropped and counted.
    Newest,
    /// Every frame in order; the source waits while the queue is full.
    Every,
}

/// One capture on its way to the engine.
#[derive(Debug)]
pub struct Work {
    /// Capture number within the stream.
    pub number: u64,
    /// Wall-clock capture time; `None` for files.
    pub captured_at: Option<SystemTime>,
    /// File name or address.
    pub source: Option<Arc<str>>,
    /// When it arrived.
    pub arrived: Instant,
    /// The part it was taken for.
    pub part: Option<PartTag>,
    /// The picture, or why there is none.
    pub picture: Sight,
}

/// What the camera saw.
#[derive(Debug)]
pub enum Sight {
    /// A frame with the statistics of its picture.
    Frame(Arc<Frame>, Box<PictureStats>),
    /// A picture that cannot be read, and why.
    Unreadable(String),
}

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

/// What the engine thread gets.
#[derive(Debug)]
pub enum Taken {
    /// A capture of the lane with this index.
    Work(usize, Box<Work>),
    /// Nothing within the time given.
    Nothing,
    /// All lanes have ended and are empty, or the depot was closed.
    Over,
}

#[derive(Debug)]
struct Lane {
    delivery: Delivery,
    newest: Option<Box<Work>>,
    queue: VecDeque<Box<Work>>,
    ended: bool,
    replaced: u64,
}

#[derive(Debug)]
struct State {
    lanes: Vec<Lane>,
    next_lane: usize,
    closed: bool,
}

/// The lanes of a run.
#[derive(Debug)]
pub struct Depot {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
    queue_limit: usize,
}

impl Depot {
    /// Most captures that wait in one lane's queue.
    pub const QUEUE_LIMIT: usize = 16;

    /// A depot with one lane for each delivery in `lanes`.
    pub fn new(lanes: &[Delivery]) -> Self {
        let lanes = lanes
            .iter()
            .map(|&delivery| Lane {
                delivery,
                newest: None,
                queue: VecDeque::with_capacity(Self::QUEUE_LIMIT),
                ended: false,
                replaced: 0,
            })
            .collect();
        Depot {
            state: Mutex::new(State { lanes, next_lane: 0, closed: false }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            queue_limit: Self::QUEUE_LIMIT,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a capture over. On an `every` lane this waits while the queue is full and `keep_waiting` says so.
    pub fn push(&self, lane_index: usize, work: Box<Work>, keep_waiting: impl Fn() -> bool) -> Pushed {
        const PAUSE: Duration = Duration::from_millis(100);
        let mut state = self.lock();
        loop {
            if state.closed {
                return Pushed::Closed;
            }
            let limit = self.queue_limit;
            let Some(lane) = state.lanes.get_mut(lane_index) else { return Pushed::Closed };
            if lane.delivery == Delivery::Newest {
                let pushed = if work.part.is_some() {
                    if lane.queue.len() >= limit {
                        return Pushed::Refused(work);
                    }
                    lane.queue.push_back(work);
                    lane.newest.take().map_or(Pushed::Waiting, |_| Pushed::Replaced)
                } else {
                    lane.newest.replace(work).map_or(Pushed::Waiting, |_| Pushed::Replaced)
                };
                if matches!(pushed, Pushed::Replaced) {
                    lane.replaced += 1;
                }
                drop(state);
                self.filled.notify_one();
                return pushed;
            }
            if lane.queue.len() < limit {
                lane.queue.push_back(work);
                drop(state);
                self.filled.notify_one();
                return Pushed::Waiting;
            }
            if !keep_waiting() {
                return Pushed::Closed;
            }
            state = self.emptied.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the next capture: lanes in turn, within a lane parts and queued frames before the newest.
    pub fn take(&self, patience: Duration) -> Taken {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if state.closed {
                return Taken::Over;
            }
            let lanes = state.lanes.len();
            for step in 0..lanes {
                let index = (state.next_lane + step) % lanes;
                let lane = &mut state.lanes[index];
                if let Some(work) = lane.queue.pop_front().or_else(|| lane.newest.take()) {
                    state.next_lane = (index + 1) % lanes;
                    drop(state);
                    self.emptied.notify_all();
                    return Taken::Work(index, work);
                }
            }
            if state.lanes.iter().all(|lane| lane.ended) {
                return Taken::Over;
            }
            let now = Instant::now();
            if now >= deadline {
                return Taken::Nothing;
            }
            state = self.filled.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a capture waits in any lane.
    pub fn has_work(&self) -> bool {
        self.lock().lanes.iter().any(|lane| lane.newest.is_some() || !lane.queue.is_empty())
    }

    /// Says that no more captures come on this lane; what waits is still answered.
    pub fn end(&self, lane_index: usize) {
        if let Some(lane) = self.lock().lanes.get_mut(lane_index) {
            lane.ended = true;
        }
        self.filled.notify_all();
    }

    /// Ends the run: nothing is handed out any more. Returns what was waiting, lane by lane.
    pub fn close(&self) -> Vec<(usize, Box<Work>)> {
        let mut state = self.lock();
        state.closed = true;
        let mut left = Vec::new();
        for (index, lane) in state.lanes.iter_mut().enumerate() {
            left.extend(lane.queue.drain(..).map(|work| (index, work)));
            left.extend(lane.newest.take().map(|work| (index, work)));
        }
        drop(state);
        self.filled.notify_all();
        self.emptied.notify_all();
        left
    }

    /// Frames of a lane that a newer one replaced.
    pub fn replaced(&self, lane_index: usize) -> u64 {
        self.lock().lanes.get(lane_index).map_or(0, |lane| lane.replaced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn numbers(depot: &Depot) -> Vec<(usize, u64)> {
        let mut seen = Vec::new();
        while let Taken::Work(lane, work) = depot.take(Duration::ZERO) {
            seen.push((lane, work.number));
        }
        seen
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
        loop {
            match depot.take(Duration::from_secs(5)) {
                Taken::Work(_, work) => seen.push(work.number),
                Taken::Nothing => panic!("starved"),
                Taken::Over => break,
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
        assert!(matches!(depot.take(Duration::ZERO), Taken::Over));
        assert!(matches!(depot.push(0, work(8, None), || true), Pushed::Closed));
    }
}
