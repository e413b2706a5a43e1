//! Where captures wait for an engine: one lane a stream, bounded, with every drop counted; and where batches are closed.
//!
//! A `newest` lane is a mailbox of one: a newer frame replaces an older one, and the drop is counted. An `every` lane is a
//! bounded queue in order: the camera thread waits while it is full. Frames taken for a part always queue, whatever the
//! lane's delivery, and a part's frame clears an older waiting frame so that a stream is answered in order.
//!
//! Each lane belongs to one group; a group is served by one engine. A batch takes one capture of each lane of its group in
//! turn, the one served longest ago first, then further ones of lanes with a queue: a fast stream gets what slow ones leave
//! over and never more. It is
//! closed when it is full, when nothing more is to be expected, or when its oldest capture has waited long enough. While a
//! batch is in flight only a full one goes ahead: frames that must wait anyway wait where newer ones replace them.

use crate::frame::{Frame, PartTag};
use crate::guard::Reason;
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
    /// A picture that is not looked at, and why.
    SetAside(Reason),
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

/// Captures with the index of their lane.
pub type Batch = Vec<(usize, Box<Work>)>;

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

#[derive(Debug)]
struct Lane {
    delivery: Delivery,
    group: usize,
    newest: Option<Box<Work>>,
    queue: VecDeque<Box<Work>>,
    ended: bool,
    replaced: u64,
    rhythm: Rhythm,
    /// Its turn: the lane whose turn is longest ago is the next one.
    served: u64,
}

#[derive(Debug, Default)]
struct Group {
    nudged: bool,
}

#[derive(Debug)]
struct State {
    lanes: Vec<Lane>,
    groups: Vec<Group>,
    turns: u64,
    closed: bool,
}

/// The lanes of a run.
#[derive(Debug)]
pub struct Depot {
    state: Mutex<State>,
    /// One a group.
    filled: Vec<Condvar>,
    emptied: Condvar,
    queue_limit: usize,
}

/// How often captures of a lane come.
#[derive(Debug, Default)]
struct Rhythm {
    last: Option<Instant>,
    interval: Option<Duration>,
}

impl Rhythm {
    /// A lane that is silent for more than this many intervals is not waited for.
    const MISSED: u32 = 3;

    fn pushed(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let new = now - last;
            self.interval = Some(self.interval.map_or(new, |usual| (usual * 3 + new) / 4));
        }
        self.last = Some(now);
    }

    /// Whether captures still come.
    fn is_alive(&self, now: Instant) -> bool {
        let (Some(last), Some(interval)) = (self.last, self.interval) else { return false };
        now.saturating_duration_since(last) < interval * Self::MISSED
    }

    /// Whether one is to be expected until `until`.
    fn is_due(&self, now: Instant, until: Instant) -> bool {
        let (Some(last), Some(interval)) = (self.last, self.interval) else { return false };
        self.is_alive(now) && last + interval <= until
    }
}

impl Lane {
    fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.newest.is_some())
    }

    fn oldest(&self) -> Option<Instant> {
        self.queue.front().or(self.newest.as_ref()).map(|work| work.arrived)
    }

    /// Whether a further capture would find a place beside those that wait.
    fn may_add(&self) -> bool {
        !self.ended && (self.waiting() == 0 || self.delivery == Delivery::Every)
    }

    fn take(&mut self) -> Option<Box<Work>> {
        self.queue.pop_front().or_else(|| self.newest.take())
    }
}

impl State {
    fn of_group(&self, group: usize) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(move |lane| lane.group == group)
    }

    /// Whether the captures that wait make a batch now; else until when at most to wait for that.
    fn closes(&self, group: usize, wanted: Wanted, now: Instant) -> Result<Closed, Option<Instant>> {
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
    fn fill(&mut self, group: usize, most: usize, batch: &mut Batch) {
        while batch.len() < most {
            let waiting =
                self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.group == group && lane.waiting() > 0);
            let Some((index, lane)) = waiting.min_by_key(|(_, lane)| lane.served) else { return };
            self.turns += 1;
            lane.served = self.turns;
            batch.extend(lane.take().map(|work| (index, work)));
        }
    }
}

impl Depot {
    /// Most captures that wait in one lane's queue.
    pub const QUEUE_LIMIT: usize = 16;

    /// A depot with one lane for each delivery in `lanes`, all of one group.
    pub fn new(lanes: &[Delivery]) -> Self {
        Self::grouped(&lanes.iter().map(|&delivery| (delivery, 0)).collect::<Vec<_>>())
    }

    /// A depot with one lane for each delivery in `lanes`, which belongs to the group beside it.
    pub fn grouped(lanes: &[(Delivery, usize)]) -> Self {
        let groups = lanes.iter().map(|(_, group)| group + 1).max().unwrap_or(1);
        let lanes = lanes
            .iter()
            .map(|&(delivery, group)| Lane {
                delivery,
                group,
                newest: None,
                queue: VecDeque::with_capacity(Self::QUEUE_LIMIT),
                ended: false,
                replaced: 0,
                rhythm: Rhythm::default(),
                served: 0,
            })
            .collect();
        Depot {
            state: Mutex::new(State {
                lanes,
                groups: (0..groups).map(|_| Group::default()).collect(),
                turns: 0,
                closed: false,
            }),
            filled: (0..groups).map(|_| Condvar::new()).collect(),
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
        let now = Instant::now();
        if let Some(lane) = state.lanes.get_mut(lane_index) {
            lane.rhythm.pushed(now);
        }
        loop {
            if state.closed {
                return Pushed::Closed;
            }
            let limit = self.queue_limit;
            let Some(lane) = state.lanes.get_mut(lane_index) else { return Pushed::Closed };
            let group = lane.group;
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
                self.filled[group].notify_all();
                return pushed;
            }
            if lane.queue.len() < limit {
                lane.queue.push_back(work);
                drop(state);
                self.filled[group].notify_all();
                return Pushed::Waiting;
            }
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
            let until = match state.closes(group, wanted, now) {
                Ok(why) => {
                    state.fill(group, wanted.most, batch);
                    drop(state);
                    self.emptied.notify_all();
                    return Next::Batch(why);
                }
                Err(until) => until.map_or(deadline, |until| until.min(deadline)),
            };
            if std::mem::take(&mut state.groups[group].nudged) {
                return Next::Nudged;
            }
            if !wanted.busy && state.of_group(group).all(|lane| lane.ended && lane.waiting() == 0) {
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
        if let Some(known) = self.lock().groups.get_mut(group) {
            known.nudged = true;
        }
        if let Some(filled) = self.filled.get(group) {
            filled.notify_all();
        }
    }

    /// Whether a capture waits in a lane of `group`.
    pub fn has_work(&self, group: usize) -> bool {
        self.lock().of_group(group).any(|lane| lane.waiting() > 0)
    }

    /// Says that no more captures come on this lane; what waits is still answered.
    pub fn end(&self, lane_index: usize) {
        if let Some(lane) = self.lock().lanes.get_mut(lane_index) {
            lane.ended = true;
        }
        self.filled.iter().for_each(Condvar::notify_all);
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
        self.filled.iter().for_each(Condvar::notify_all);
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
        state.lanes[lane].rhythm = Rhythm { last: Some(Instant::now()), interval: Some(interval) };
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
