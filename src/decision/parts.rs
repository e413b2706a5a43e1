//! The book of parts: one trigger, one id, exactly one decision.
//!
//! A part is opened by its trigger and closed by the first of: its answer, its deadline, the end of the run. Whatever
//! comes after that is counted and changes nothing.

mod ids;

use super::Decision;
use crate::error::{Error, Result};
use crate::frame::PartTag;
use ids::Ids;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A part that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The part; its id differs from the one asked for when `renamed` is set.
    pub tag: PartTag,
    /// Whether the id was taken by a recent part, so that this one got a suffix (`A17` → `A17#2`).
    pub renamed: bool,
}

/// A part with its one decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The part's id.
    pub part: Arc<str>,
    /// What the line does with it.
    pub decision: Decision,
    /// When the trigger came.
    pub triggered: Instant,
}

/// What happened to parts so far. `opened` = `passed` + `rejected` + `not_inspected` + those still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartCounts {
    /// Parts opened.
    pub opened: u64,
    /// Parts decided `pass`.
    pub passed: u64,
    /// Parts decided `reject`.
    pub rejected: u64,
    /// Parts decided `not_inspected`, for whatever cause.
    pub not_inspected: u64,
    /// Of those, the ones whose deadline passed without an answer in time.
    pub expired: u64,
    /// Of those, the ones that were open when the run ended.
    pub drained: u64,
    /// Answers that came for a part already decided; they changed nothing.
    pub late_answers: u64,
    /// Answers for a part nobody opened; they changed nothing.
    pub unknown_answers: u64,
    /// Triggers refused: id still open, id not usable, or too many parts open.
    pub refused_triggers: u64,
    /// Triggers whose id was taken by a recent part and got a suffix.
    pub renamed_triggers: u64,
}

#[derive(Debug)]
struct OpenPart {
    triggered: Instant,
    deadline: Option<Instant>,
}

/// The book of parts of one process. Times are given by the caller, so the book itself has no clock.
#[derive(Debug)]
pub struct PartBook {
    deadline: Option<Duration>,
    /// Parts have different deadlines: the oldest need not be due first.
    mixed: bool,
    open: HashMap<Arc<str>, OpenPart>,
    in_order: VecDeque<Arc<str>>,
    ids: Ids,
    counts: PartCounts,
}

impl PartBook {
    /// Most parts that may wait for an answer at once; more triggers are refused.
    pub const MOST_OPEN: usize = 4096;
    /// Decided ids that are remembered, so that an id is not used twice within that many parts.
    pub const REMEMBERED: usize = Ids::REMEMBERED;
    /// Longest id in bytes.
    pub const LONGEST_ID_BYTES: usize = Ids::LONGEST_BYTES;

    /// An empty book. Parts not answered `deadline` after their trigger are `not_inspected`; `None` waits until the end
    /// of the run.
    pub fn new(deadline: Option<Duration>) -> Self {
        PartBook {
            deadline,
            mixed: false,
            open: HashMap::new(),
            in_order: VecDeque::new(),
            ids: Ids::new(),
            counts: PartCounts::default(),
        }
    }

    /// Opens a part with the trigger's own id, or with a running number when it gave none.
    ///
    /// An id that a recent, decided part had gets a suffix: every id names one part.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when a part of this id is still open, the id is empty, too long or holds control
    /// characters, or [`PartBook::MOST_OPEN`] parts wait. No part exists then.
    pub fn open(&mut self, id: Option<&str>, triggered: Instant) -> Result<Opened> {
        self.open_within(id, triggered, self.deadline)
    }

    /// As [`PartBook::open`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`PartBook::open`].
    pub fn open_within(&mut self, id: Option<&str>, triggered: Instant, within: Option<Duration>) -> Result<Opened> {
        self.mixed |= within != self.deadline;
        match self.free_id(id) {
            Ok((id, renamed)) => {
                let deadline = within.and_then(|deadline| triggered.checked_add(deadline));
                self.open.insert(Arc::clone(&id), OpenPart { triggered, deadline });
                self.forget_answered();
                self.in_order.push_back(Arc::clone(&id));
                self.counts.opened += 1;
                self.counts.renamed_triggers += u64::from(renamed);
                Ok(Opened { tag: PartTag { id, deadline }, renamed })
            }
            Err(error) => {
                self.counts.refused_triggers += 1;
                Err(error)
            }
        }
    }

    /// When the open part of this id was triggered.
    pub fn triggered(&self, id: &str) -> Option<Instant> {
        self.open.get(id).map(|part| part.triggered)
    }

    /// Number of open parts that were triggered before `moment`.
    pub fn waiting_since_before(&self, moment: Instant) -> usize {
        self.open.values().filter(|part| part.triggered < moment).count()
    }

    /// Closes a part with its answer, which came at `now`: after the deadline the decision is `not_inspected` whatever
    /// the answer says. `None` when the part was decided before or is unknown: that answer is counted and dropped.
    pub fn answer(&mut self, id: &str, decision: Decision, now: Instant) -> Option<Decided> {
        let Some((id, part)) = self.open.remove_entry(id) else {
            if self.ids.is_recent(id) {
                self.counts.late_answers += 1;
            } else {
                self.counts.unknown_answers += 1;
            }
            return None;
        };
        let late = part.deadline.is_some_and(|deadline| now > deadline);
        let decision = if late {
            self.counts.expired += 1;
            Decision::NotInspected
        } else {
            decision
        };
        Some(self.close(id, part.triggered, decision))
    }

    /// Closes every part whose deadline lies before `now` as `not_inspected`, oldest first.
    pub fn expire(&mut self, now: Instant) -> Vec<Decided> {
        let mut expired = Vec::new();
        let is_due = |open: &HashMap<Arc<str>, OpenPart>, id: &Arc<str>| {
            open.get(id).and_then(|part| part.deadline).is_some_and(|deadline| now > deadline)
        };
        let due_later: Vec<Arc<str>> = if self.mixed {
            self.in_order.iter().filter(|id| is_due(&self.open, id)).cloned().collect()
        } else {
            Vec::new()
        };
        let mut due_later = due_later.into_iter();
        while let Some(id) = due_later.next().or_else(|| self.oldest()) {
            if !is_due(&self.open, &id) {
                break;
            }
            if let Some((id, part)) = self.open.remove_entry(&id) {
                self.counts.expired += 1;
                expired.push(self.close(id, part.triggered, Decision::NotInspected));
            }
        }
        expired
    }

    /// Closes every open part as `not_inspected`, oldest first: the end of the run.
    pub fn drain(&mut self) -> Vec<Decided> {
        let mut drained = Vec::new();
        while let Some(id) = self.oldest() {
            if let Some((id, part)) = self.open.remove_entry(&id) {
                self.counts.drained += 1;
                drained.push(self.close(id, part.triggered, Decision::NotInspected));
            }
        }
        drained
    }

    /// When the oldest open part is due; `None` when nothing waits or parts have no deadline.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let id = self.oldest()?;
        self.open.get(&id)?.deadline
    }

    /// Whether a part of this id waits for its answer.
    pub fn is_open(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    /// Number of parts that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.open.len()
    }

    /// What happened so far.
    pub fn counts(&self) -> PartCounts {
        self.counts
    }

    fn close(&mut self, part: Arc<str>, triggered: Instant, decision: Decision) -> Decided {
        match decision {
            Decision::Pass => self.counts.passed += 1,
            Decision::Reject => self.counts.rejected += 1,
            Decision::NotInspected => self.counts.not_inspected += 1,
        }
        self.ids.remember(Arc::clone(&part));
        Decided { part, decision, triggered }
    }

    /// The oldest part still open; forgets those in front of it that were answered.
    fn oldest(&mut self) -> Option<Arc<str>> {
        while let Some(id) = self.in_order.front() {
            if self.open.contains_key(id) {
                return Some(Arc::clone(id));
            }
            self.in_order.pop_front();
        }
        None
    }

    /// Keeps `in_order` short also while one old part stays open for ever.
    fn forget_answered(&mut self) {
        if self.in_order.len() > 2 * self.open.len() + 64 {
            let open = &self.open;
            self.in_order.retain(|id| open.contains_key(id));
        }
    }

    fn free_id(&mut self, id: Option<&str>) -> Result<(Arc<str>, bool)> {
        if self.open.len() >= Self::MOST_OPEN {
            return Err(Error::usage(format!("{} parts wait for an answer, no more are taken", self.open.len()))
                .hint("trigger slower, or set a shorter `deadline_ms` in [decision]"));
        }
        self.ids.choose(id, |id| self.open.contains_key(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::count;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_part_is_answered_once_and_the_second_answer_is_counted() {
        let start = Instant::now();
        let mut book = PartBook::new(Some(Duration::from_millis(100)));
        let opened = book.open(Some("A17"), start).unwrap();
        assert_eq!(opened.tag.deadline, Some(at(start, 100)));
        let decided = book.answer("A17", Decision::Reject, at(start, 100)).unwrap();
        assert_eq!((&*decided.part, decided.decision), ("A17", Decision::Reject));
        assert_eq!(book.answer("A17", Decision::Pass, at(start, 101)), None);
        assert_eq!(book.answer("never opened", Decision::Pass, start), None);
        assert_eq!(
            book.counts(),
            PartCounts { opened: 1, rejected: 1, late_answers: 1, unknown_answers: 1, ..PartCounts::default() }
        );
    }

    #[test]
    fn an_answer_after_the_deadline_is_not_inspected() {
        let start = Instant::now();
        let mut book = PartBook::new(Some(Duration::from_millis(100)));
        book.open(None, start).unwrap();
        let decided = book.answer("1", Decision::Pass, at(start, 101)).unwrap();
        assert_eq!(decided.decision, Decision::NotInspected);
        assert_eq!(book.counts().expired, 1);
    }

    #[test]
    fn parts_expire_oldest_first_and_only_when_due() {
        let start = Instant::now();
        let mut book = PartBook::new(Some(Duration::from_millis(100)));
        for number in 0..3 {
            book.open(None, at(start, number * 50)).unwrap();
        }
        assert_eq!(book.next_deadline(), Some(at(start, 100)));
        assert!(book.expire(at(start, 100)).is_empty());
        let expired: Vec<_> = book.expire(at(start, 151)).into_iter().map(|decided| decided.part.to_string()).collect();
        assert_eq!(expired, ["1", "2"]);
        assert_eq!(book.waiting(), 1);
        assert_eq!(book.drain().len(), 1);
        assert_eq!(book.next_deadline(), None);
    }

    #[test]
    fn without_a_deadline_a_part_waits_until_the_end() {
        let start = Instant::now();
        let mut book = PartBook::new(None);
        book.open(Some("x"), start).unwrap();
        assert!(book.expire(at(start, 1_000_000)).is_empty());
        assert_eq!(book.drain()[0].decision, Decision::NotInspected);
        assert_eq!(book.counts().drained, 1);
    }

    #[test]
    fn an_open_id_is_refused_and_a_decided_one_renamed() {
        let start = Instant::now();
        let mut book = PartBook::new(None);
        book.open(Some("A"), start).unwrap();
        let error = book.open(Some("A"), start).unwrap_err();
        assert!(error.message().contains("`A` is still open"), "{error}");
        book.answer("A", Decision::Pass, start);
        for expected in ["A#2", "A#3"] {
            let again = book.open(Some("A"), start).unwrap();
            assert_eq!((&*again.tag.id, again.renamed), (expected, true));
        }
        assert_eq!(book.counts().refused_triggers, 1);
        assert_eq!(book.counts().renamed_triggers, 2);
    }

    #[test]
    fn a_running_number_avoids_ids_in_use() {
        let start = Instant::now();
        let mut book = PartBook::new(None);
        book.open(Some("1"), start).unwrap();
        assert_eq!(&*book.open(None, start).unwrap().tag.id, "2");
    }

    #[test]
    fn unusable_ids_and_too_many_parts_are_refused_with_one_error() {
        let start = Instant::now();
        let mut book = PartBook::new(None);
        for bad in ["", "a\nb", &"x".repeat(129)] {
            assert!(book.open(Some(bad), start).is_err(), "{bad:?}");
        }
        for _ in 0..PartBook::MOST_OPEN {
            book.open(None, start).unwrap();
        }
        assert!(book.open(None, start).is_err());
        assert_eq!(book.waiting(), PartBook::MOST_OPEN);
    }

    #[test]
    fn the_memory_of_decided_parts_does_not_grow() {
        let start = Instant::now();
        let mut book = PartBook::new(None);
        book.open(Some("never answered"), start).unwrap();
        for _ in 0..PartBook::REMEMBERED + 1000 {
            let id = book.open(None, start).unwrap().tag.id;
            book.answer(&id, Decision::Pass, start);
        }
        assert!(book.in_order.len() < 100, "{}", book.in_order.len());
        assert_eq!(&*book.drain()[0].part, "never answered");
        assert_eq!(book.ids.remembered(), PartBook::REMEMBERED);
        assert!(book.in_order.is_empty());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Trigger,
        TriggerAs(u8),
        Answer(usize, Decision),
        Wait(u64),
        Expire,
    }

    fn step() -> impl Strategy<Value = Step> {
        let decision = prop_oneof![Just(Decision::Pass), Just(Decision::Reject), Just(Decision::NotInspected)];
        prop_oneof![
            3 => Just(Step::Trigger),
            2 => (0..8_u8).prop_map(Step::TriggerAs),
            5 => (0..64_usize, decision).prop_map(|(back, decision)| Step::Answer(back, decision)),
            2 => (0..40_u64).prop_map(Step::Wait),
            1 => Just(Step::Expire),
        ]
    }

    /// Runs the steps and returns how often each opened part was decided.
    fn play(steps: &[Step]) -> (BTreeMap<String, u32>, PartCounts) {
        let start = Instant::now();
        let mut now = start;
        let mut book = PartBook::new(Some(Duration::from_millis(50)));
        let mut opened: Vec<(Arc<str>, Instant)> = Vec::new();
        let mut decided: BTreeMap<String, u32> = BTreeMap::new();
        for step in steps {
            let closed = match step {
                Step::Trigger | Step::TriggerAs(_) => {
                    let id = if let Step::TriggerAs(id) = step { Some(format!("id{id}")) } else { None };
                    if let Ok(part) = book.open(id.as_deref(), now) {
                        assert_eq!(decided.insert(part.tag.id.to_string(), 0), None, "an id names one part");
                        opened.push((part.tag.id, now));
                    }
                    Vec::new()
                }
                Step::Answer(back, decision) => {
                    let Some((id, triggered)) = opened.iter().rev().nth(*back).cloned() else { continue };
                    let closed = book.answer(&id, *decision, now);
                    if let Some(closed) = &closed {
                        let on_time = now <= triggered + Duration::from_millis(50);
                        assert_eq!(closed.decision, if on_time { *decision } else { Decision::NotInspected });
                    }
                    closed.into_iter().collect()
                }
                Step::Wait(milliseconds) => {
                    now += Duration::from_millis(*milliseconds);
                    Vec::new()
                }
                Step::Expire => book.expire(now),
            };
            for part in closed {
                *decided.get_mut(&*part.part).unwrap() += 1;
            }
        }
        for part in book.drain() {
            *decided.get_mut(&*part.part).unwrap() += 1;
        }
        (decided, book.counts())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_interleaving_gives_exactly_one_decision_a_part(steps in proptest::collection::vec(step(), 0..400)) {
            let (decided, counts) = play(&steps);
            prop_assert!(decided.values().all(|&times| times == 1), "{decided:?}");
            prop_assert_eq!(counts.opened, count(decided.len()));
            prop_assert_eq!(counts.opened, counts.passed + counts.rejected + counts.not_inspected);
        }
    }

    #[test]
    fn ten_thousand_parts_give_ten_thousand_decisions() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut steps = Vec::new();
        for _ in 0..10_000 {
            steps.push(Step::Trigger);
            let back = usize::try_from(random(30)).unwrap();
            match random(5) {
                0 => steps.push(Step::Wait(random(30))),
                1 => steps.push(Step::Expire),
                _ => steps.push(Step::Answer(back, Decision::Pass)),
            }
        }
        let (decided, counts) = play(&steps);
        assert_eq!(decided.len(), 10_000);
        assert!(decided.values().all(|&times| times == 1));
        assert!(counts.passed > 1000 && counts.expired > 1000 && counts.late_answers > 100, "{counts:?}");
    }

    #[test]
    fn parts_with_deadlines_of_their_own_are_due_by_those() {
        let start = Instant::now();
        let mut book = PartBook::new(Some(Duration::from_millis(500)));
        book.open(Some("slow"), start).unwrap();
        book.open_within(Some("fast"), start, Some(Duration::from_millis(50))).unwrap();
        book.open_within(Some("too"), start, Some(Duration::from_millis(60))).unwrap();
        let expired = |book: &mut PartBook, ms| {
            book.expire(at(start, ms)).into_iter().map(|decided| decided.part.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(expired(&mut book, 40), Vec::<String>::new());
        assert_eq!(expired(&mut book, 70), ["fast", "too"]);
        assert_eq!(expired(&mut book, 600), ["slow"]);
        assert_eq!(book.waiting(), 0);
    }
}
