//! Exactly one decision a part, with the real threads, lanes and deadlines around an engine that fails in every way it can.
//!
//! `EDGE_FULL=1`: 10,000 parts from a PLC and 10,000 from the camera itself; without it 1,000 of each.

use edge_trt::decision::{Decision, DecisionRule, Rule};
use edge_trt::detections::Thresholds;
use edge_trt::engine::canned::{CannedAnswer, CannedEngine};
use edge_trt::engine::{Candidate, Engine, OutputStats};
use edge_trt::error::ErrorKind;
use edge_trt::frame::{Frame, FrameTag, PartTag, Picture};
use edge_trt::guard::picture::PictureStats;
use edge_trt::guard::{Guard, GuardSpec, StreamTraits, Trust};
use edge_trt::run::clerk::{Clerk, Unanswered};
use edge_trt::run::depot::{Delivery, Depot, Pushed, Sight, Taken, Work};
use edge_trt::run::inspector::{Inspector, Parts, StreamPlace};
use edge_trt::sinks::row::{EngineStamp, Row};
use edge_trt::telemetry::Telemetry;
use edge_trt::units::SizePx;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

const CLASSES: [&str; 2] = ["hole", "short"];
const DEADLINE: Duration = Duration::from_millis(60);

/// What reached the row's writer: part, decision, and why there is no answer.
type Told = (String, Decision, bool);

fn parts() -> u64 {
    if std::env::var_os("EDGE_FULL").is_some() { 10_000 } else { 1_000 }
}

/// Answers a box of `hole` on every fourth frame, and with `faulty` fails in turn: not a number, another frame's answer,
/// an error, no answer in time, a score that is none.
fn engine(faulty: bool) -> CannedEngine {
    let script = move |call: u64, frame: &Frame, answer: &mut CannedAnswer| {
        if call.is_multiple_of(4) {
            let hole = Candidate { class_id: 0, score: 0.9, edges: [10.0, 10.0, 30.0, 30.0].into(), anchor: 0 };
            answer.candidates.push(hole);
        }
        let stats = |stats: OutputStats| Some(OutputStats { values: 100, ..stats });
        match if faulty { call % 97 } else { 0 } {
            11 => answer.stats = stats(OutputStats { nan: 3, ..OutputStats::default() }),
            23 => answer.claimed_tag = Some(FrameTag { stream: "plc".into(), number: frame.number + 1 }),
            37 => *answer = CannedAnswer::failing(ErrorKind::Unexpected, "the network cannot run"),
            53 => answer.delay = DEADLINE * 3,
            71 => answer.stats = stats(OutputStats { infinite: 1, ..OutputStats::default() }),
            _ => {}
        }
    };
    CannedEngine::scripted(&CLASSES, SizePx::new(64, 64), Box::new(script))
}

struct Station {
    clerk: Arc<Clerk>,
    depot: Depot,
    stop: AtomicBool,
    told: Mutex<Sender<Told>>,
}

impl Station {
    fn tell(&self, told: Told) {
        self.told.lock().unwrap().send(told).unwrap();
    }

    fn tell_unanswered(&self, unanswered: Vec<Unanswered>) {
        for Unanswered { decided, .. } in unanswered {
            self.tell((decided.part.to_string(), decided.decision, true));
        }
    }

    fn tell_row(&self, row: &Row) {
        let fault = row.trust == Trust::Fault;
        assert_eq!(row.detections.is_none(), fault);
        match (&row.part, row.decision) {
            (Some(part), Some(decision)) => self.tell((part.to_string(), decision, fault)),
            (None, decision) => assert_eq!(decision, None, "a frame without a part decides nothing"),
            (Some(part), None) => panic!("part {part} has no decision"),
        }
    }

    /// The thread of a camera: takes pictures as fast as it can; on lane 1 every second picture brings its own part.
    fn camera(&self, lane: usize, own_parts: u64) {
        let picture = |number: u64| {
            let shade = number.to_le_bytes()[0];
            Picture::rgb(SizePx::new(64, 48), (0..64 * 48 * 3u32).map(|at| at.to_le_bytes()[0] ^ shade).collect())
        };
        let (mut number, mut brought) = (0, 0);
        while !self.stop.load(Ordering::Acquire) && (lane == 0 || brought < own_parts) {
            let arrived = Instant::now();
            let part: Option<PartTag> = if lane == 0 {
                self.clerk.claim(lane, arrived)
            } else if number % 2 == 0 {
                brought += 1;
                Some(self.clerk.open(lane, &format!("own-{brought}"), arrived).unwrap().tag)
            } else {
                None
            };
            let name = if lane == 0 { "plc" } else { "own" };
            let frame = Frame {
                stream: name.into(),
                number,
                captured_at: Some(SystemTime::now()),
                arrived,
                source: None,
                part: part.clone(),
                picture: picture(number),
            };
            let stats = Box::new(PictureStats::measure(&frame.picture));
            let picture = Sight::Frame(Arc::new(frame), stats);
            let work = Work { number, captured_at: None, source: None, arrived, part, picture };
            let keep_waiting = || !self.stop.load(Ordering::Acquire);
            if let Pushed::Refused(work) = self.depot.push(lane, Box::new(work), keep_waiting) {
                let id = &work.part.as_ref().unwrap().id;
                if let Some(decided) = self.clerk.answer(id, Decision::NotInspected, Instant::now()) {
                    self.tell((decided.part.to_string(), decided.decision, true));
                }
            }
            number += 1;
            std::thread::sleep(Duration::from_micros(300));
        }
        self.depot.end(lane);
    }

    /// The thread of a PLC: triggers in bursts, as the line brings parts.
    fn plc(&self, triggers: u64) {
        for number in 0..triggers {
            // A starved machine gets no more parts than its line would bring.
            while self.clerk.open_parts() > 200 {
                std::thread::sleep(Duration::from_millis(5));
            }
            let id = format!("plc-{number}");
            self.clerk.trigger(Some("plc"), Some(&id), Instant::now()).unwrap();
            let pause_us = if number % 50 == 0 { 20_000 } else { 900 };
            std::thread::sleep(Duration::from_micros(pause_us));
        }
    }

    fn timer(&self) {
        while !self.stop.load(Ordering::Acquire) {
            self.tell_unanswered(self.clerk.expire(Instant::now()));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn answer_all(&self, mut inspector: Inspector) {
        while !self.stop.load(Ordering::Acquire) {
            match self.depot.take(Duration::from_millis(20)) {
                Taken::Work(lane, work) => {
                    let (row, fatal) = inspector.inspect(lane, *work);
                    assert!(fatal.is_none());
                    self.tell_row(&row);
                }
                Taken::Nothing => {}
                Taken::Over => break,
            }
        }
    }
}

fn inspector(clerk: &Arc<Clerk>, faulty: bool) -> Inspector {
    let classes: Arc<[String]> = CLASSES.map(String::from).into();
    let rule: DecisionRule = toml::from_str("deadline_ms = 60\nreject = { hole = {} }").unwrap();
    let engine = engine(faulty);
    let place = |name: &str| StreamPlace {
        name: name.into(),
        guard: Guard::new(
            &GuardSpec::default(),
            &classes,
            StreamTraits { live: true, related_frames: true, triggered: true },
        )
        .unwrap(),
        triggered: true,
    };
    let streams = vec![place("plc"), place("own")];
    let stamp = EngineStamp {
        bundle: "canned".into(),
        sha256: String::new(),
        backend: engine.info().backend.clone(),
        classes: Arc::clone(&classes),
    };
    Inspector::new(Parts {
        engine: Box::new(engine),
        thresholds: Thresholds::default(),
        reported: None,
        rule: Some(Rule::new(&rule, &classes).unwrap()),
        streams,
        clerk: Arc::clone(clerk),
        stamp: stamp.into(),
        proved_at: None,
        telemetry: Telemetry::new(),
    })
    .unwrap()
}

/// Every part with its one decision, from both ways a part comes about.
fn run(faulty: bool) -> BTreeMap<String, Told> {
    let (told, heard) = channel();
    let clerk = Arc::new(Clerk::new(vec!["plc".into(), "own".into()], Some(DEADLINE)));
    let inspector = inspector(&clerk, faulty);
    let depot = Depot::new(&[Delivery::Newest, Delivery::Newest]);
    let station = Station { clerk, depot, stop: AtomicBool::new(false), told: Mutex::new(told) };
    std::thread::scope(|scope| {
        let own = scope.spawn(|| station.camera(1, parts()));
        let plc = scope.spawn(|| station.plc(parts()));
        scope.spawn(|| station.camera(0, 0));
        scope.spawn(|| station.timer());
        scope.spawn(|| station.answer_all(inspector));
        plc.join().unwrap();
        own.join().unwrap();
        // The run ends at once, with parts open.
        station.stop.store(true, Ordering::Release);
    });
    drop(station.depot.close());
    station.tell_unanswered(station.clerk.drain());
    let counts = station.clerk.counts();
    assert_eq!(counts.opened, 2 * parts());
    assert_eq!(counts.opened, counts.passed + counts.rejected + counts.not_inspected);
    drop(station);
    let mut decided = BTreeMap::new();
    for told in heard {
        let part = told.0.clone();
        assert!(decided.insert(part.clone(), told).is_none(), "part {part} was decided twice");
    }
    decided
}

fn count(decided: &BTreeMap<String, Told>, decision: Decision) -> usize {
    decided.values().filter(|told| told.1 == decision).count()
}

#[test]
fn every_part_is_decided_exactly_once() {
    let decided = run(false);
    println!(
        "{} parts: {} pass, {} reject, {} not inspected",
        decided.len(),
        count(&decided, Decision::Pass),
        count(&decided, Decision::Reject),
        count(&decided, Decision::NotInspected)
    );
    assert_eq!(u64::try_from(decided.len()).unwrap(), 2 * parts());
    assert!(count(&decided, Decision::Pass) > decided.len() / 10);
    assert!(count(&decided, Decision::Reject) > decided.len() / 50);
}

#[test]
fn every_part_is_decided_exactly_once_while_the_engine_fails() {
    let decided = run(true);
    println!(
        "{} parts under faults: {} pass, {} reject, {} not inspected",
        decided.len(),
        count(&decided, Decision::Pass),
        count(&decided, Decision::Reject),
        count(&decided, Decision::NotInspected)
    );
    assert_eq!(u64::try_from(decided.len()).unwrap(), 2 * parts());
    for (part, decision, fault) in decided.values() {
        assert!(!fault || *decision == Decision::NotInspected, "part {part}: {decision:?} on a fault");
    }
    assert!(count(&decided, Decision::NotInspected) > decided.len() / 100);
    assert!(count(&decided, Decision::Pass) > decided.len() / 20);
}
