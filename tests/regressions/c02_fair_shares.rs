//! C02: one camera starves the rest, results are seconds old, a camera without pictures holds all up, and with batches only
//! one of several pictures shows boxes. Streams of different speeds on one engine each get their share, in time, and every
//! answer belongs to its frame.

use crate::line::{self, INPUT, Line, small_pictures};
use edge_trt::bundle::Bundle;
use edge_trt::camera::{Camera, Capture, SourceInfo};
use edge_trt::engine::canned::{CannedAnswer, CannedEngine};
use edge_trt::engine::{Candidate, Engine, EngineInfo, Inference, Letterbox, MemoryFigures};
use edge_trt::error::{ErrorKind, Result};
use edge_trt::frame::Frame;
use edge_trt::guard::ladder::Step;
use edge_trt::run::Outcome;
use edge_trt::run::depot::Delivery;
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::EngineSource;
use edge_trt::units::{BoxPx, SizePx};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a script may do about a frame; the first number counts loads of an engine, the second its live frames so far.
type Spoil = dyn Fn(u64, u64, &Frame, &mut CannedAnswer) + Send + Sync;

/// Streams with periods of their own on one engine of some batch size.
struct Streams {
    /// Name, and time between two pictures; zero gives none.
    periods: BTreeMap<String, Duration>,
    batch: u32,
    lanes: usize,
    devices: usize,
    /// Most runs in flight at once.
    most_flying: Arc<AtomicU64>,
    run: Duration,
    spoil: Arc<Spoil>,
    loads: AtomicU64,
    /// Runs by the number of live frames in them.
    runs: Arc<Mutex<BTreeMap<usize, u64>>>,
    captured: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Streams {
    fn new(periods_ms: &[u64], batch: u32, lanes: usize, run_ms: u64) -> Self {
        let named = periods_ms.iter().enumerate();
        Streams {
            periods: named.map(|(at, &ms)| (format!("cam{at:02}"), Duration::from_millis(ms))).collect(),
            batch,
            lanes,
            devices: 1,
            most_flying: Arc::default(),
            run: Duration::from_millis(run_ms),
            spoil: Arc::new(|_, _, _, _| {}),
            loads: AtomicU64::new(0),
            runs: Arc::default(),
            captured: Arc::default(),
        }
    }

    fn line(&self, seconds: u64) -> Line {
        let mut line = Line::with_streams(&self.periods.keys().cloned().collect::<Vec<_>>());
        let batch = self.batch;
        line::write_bundle(&line.options.bundle, 0.0, |manifest| manifest.input.batch = batch);
        line.options.frames = None;
        line.options.duration = Some(Duration::from_secs(seconds));
        line.options.service.call_limit = Some(Duration::from_secs(20));
        line.options.service.echo_every = 500;
        line
    }
}

/// The box by which a live frame's answer is known: its stream in the height, its number in the place.
fn mark(stream: &str, number: u64) -> BoxPx {
    let stream: u16 = stream.trim_start_matches("cam").parse().unwrap_or(0);
    let left = 14.0 + f32::from(u16::try_from(number % 13).unwrap());
    BoxPx::new(left, 8.0, left + 12.0, 20.0 + f32::from(stream))
}

struct Marking {
    engine: CannedEngine,
    runs: Arc<Mutex<BTreeMap<usize, u64>>>,
    flying: u64,
    most_flying: Arc<AtomicU64>,
}

impl Marking {
    fn count(&self, frames: &[&Frame]) {
        let live = frames.iter().filter(|frame| frame.stream.starts_with("cam")).count();
        if live > 0 {
            *self.runs.lock().unwrap().entry(live).or_default() += 1;
        }
    }
}

impl Engine for Marking {
    fn info(&self) -> &EngineInfo {
        self.engine.info()
    }
    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        self.count(frames);
        self.engine.infer(frames, answers)
    }
    fn lanes(&self) -> usize {
        self.engine.lanes()
    }
    fn begin(&mut self, lane: usize, frames: &[&Frame]) -> Result<()> {
        self.count(frames);
        self.engine.begin(lane, frames)?;
        self.flying += 1;
        self.most_flying.fetch_max(self.flying, Relaxed);
        Ok(())
    }
    fn finish(&mut self, lane: usize, answers: &mut Vec<Inference>) -> Result<()> {
        self.flying -= 1;
        self.engine.finish(lane, answers)
    }
    fn memory(&self) -> MemoryFigures {
        self.engine.memory()
    }
    fn recycle(&mut self, spent: Inference) {
        self.engine.recycle(spent);
    }
    fn set_score_floor(&mut self, score_floor: f32) {
        self.engine.set_score_floor(score_floor);
    }
}

impl EngineSource for Streams {
    fn load(&self, bundle: &Bundle, score_floor: f32, _device: usize) -> Result<Box<dyn Engine>> {
        assert_eq!(bundle.manifest().input.batch, self.batch);
        let load = self.loads.fetch_add(1, Relaxed);
        let spoil = Arc::clone(&self.spoil);
        let mut live = 0;
        let script = move |_, frame: &Frame, answer: &mut CannedAnswer| {
            line::see(0.0, frame, answer);
            if frame.stream.starts_with("cam") {
                let candidate =
                    Candidate { anchor: 5, class_id: 0, score: 0.8, edges: mark(&frame.stream, frame.number) };
                answer.candidates.clear();
                answer.candidates.push(candidate);
                live += 1;
            }
            spoil(load, live, frame, answer);
        };
        let mut engine = CannedEngine::scripted(&["hole"], INPUT, Box::new(script))
            .with_batch(self.batch)
            .with_lanes(self.lanes)
            .with_run_time(self.run);
        engine.set_score_floor(score_floor);
        let (runs, most_flying) = (Arc::clone(&self.runs), Arc::clone(&self.most_flying));
        Ok(Box::new(Marking { engine, runs, flying: 0, most_flying }))
    }

    fn devices(&self) -> usize {
        self.devices
    }

    fn fit_camera(&self, stream: &str, _camera: Box<dyn Camera>) -> Box<dyn Camera> {
        let period = self.periods[stream];
        let inner = small_pictures(stream, period);
        Box::new(Counted { inner, dead: period.is_zero(), stream: stream.into(), captured: Arc::clone(&self.captured) })
    }
}

struct Counted {
    inner: Box<dyn Camera>,
    dead: bool,
    stream: String,
    captured: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Camera for Counted {
    fn info(&self) -> SourceInfo {
        self.inner.info()
    }
    fn next(&mut self, patience: Duration) -> Result<Capture> {
        if self.dead {
            // Longer than it was asked to, as a driver does that does not come back.
            std::thread::sleep(patience * 4);
            return Ok(Capture::Nothing);
        }
        let captured = self.inner.next(patience);
        *self.captured.lock().unwrap().entry(self.stream.clone()).or_default() += 1;
        captured
    }
}

/// Results and 95th percentile of the age in ms, by stream. Checks that every answer bears the mark of its own frame, and
/// that each stream's frames are answered in order and once.
fn results(line: &Line) -> BTreeMap<String, (u64, f64)> {
    let letterbox = Letterbox::fit(SizePx::new(32, 40), INPUT);
    let mut ages: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for row in line.rows() {
        let stream = row["stream"].as_str().unwrap().to_owned();
        let number = row["frame"].as_u64().unwrap();
        if let Some(before) = last.insert(stream.clone(), number) {
            assert!(before < number, "{stream}: frame {number} after {before}");
        }
        ages.entry(stream.clone()).or_default().push(row["timings_ms"]["age"].as_f64().unwrap());
        if row["trust"] == "fault" {
            assert!(row["detections"].is_null());
            continue;
        }
        let marked = mark(&stream, number);
        let found: Vec<f64> =
            row["detections"][0]["box"].as_array().unwrap().iter().map(|edge| edge.as_f64().unwrap()).collect();
        let back = |edge: f32, pad: u32| (f64::from(edge) - f64::from(pad)) / letterbox.scale;
        let left = back(marked.left_px, letterbox.pad_left_px);
        let bottom = back(marked.bottom_px, letterbox.pad_top_px);
        assert!((found[0] - left).abs() < 0.01 && (found[3] - bottom).abs() < 0.01, "{stream} {number}: {found:?}");
    }
    let late = |mut ages: Vec<f64>| {
        ages.sort_by(f64::total_cmp);
        (ages.len() as u64, ages[ages.len() * 95 / 100])
    };
    ages.into_iter().map(|(stream, ages)| (stream, late(ages))).collect()
}

fn run(streams: Streams, line: &Line) -> (Outcome, Arc<Streams>) {
    let streams = Arc::new(streams);
    let source: Arc<dyn EngineSource> = Arc::clone(&streams) as _;
    (line.run(source).unwrap(), streams)
}

/// Shares are equal within this, which covers a machine that does other work meanwhile.
const TOLERANCE: f64 = 0.10;

fn equal_shares(shares: &[u64]) {
    let (least, most) = (*shares.iter().min().unwrap() as f64, *shares.iter().max().unwrap() as f64);
    assert!(most - least <= TOLERANCE * most + 2.0, "{shares:?}");
}

#[test]
fn c02_thirty_thirty_five_and_none_a_second_on_a_slow_engine() {
    let streams = Streams::new(&[33, 33, 200, 0], 1, 1, 50);
    let line = streams.line(6);
    let (outcome, streams) = run(streams, &line);
    assert_eq!(outcome.incidents, []);
    let results = results(&line);
    let captured = streams.captured.lock().unwrap().clone();
    println!("{results:?} of {captured:?}");
    equal_shares(&[results["cam00"].0, results["cam01"].0]);
    // The slow one gets everything it has, not a third.
    assert!(results["cam02"].0 as f64 >= 0.9 * captured["cam02"] as f64 - 1.0);
    assert!(!results.contains_key("cam03"));
    // Two periods of what each stream gets: 1 / 7.5 s and 1 / 5 s.
    for (stream, period_ms) in [("cam00", 133.0), ("cam01", 133.0), ("cam02", 200.0)] {
        assert!(results[stream].1 < 2.0 * period_ms, "{stream}: {:?}", results[stream]);
    }
}

#[test]
fn c02_sixteen_streams_of_different_speeds_share_batches_of_eight() {
    let periods = [10, 10, 10, 10, 20, 20, 20, 20, 50, 50, 50, 50, 200, 200, 0, 0];
    let streams = Streams::new(&periods, 8, 2, 25);
    let line = streams.line(5);
    let (outcome, streams) = run(streams, &line);
    assert_eq!(outcome.incidents, []);
    let results = results(&line);
    let captured = streams.captured.lock().unwrap().clone();
    let runs = streams.runs.lock().unwrap().clone();
    println!("{results:?} of {captured:?}; runs by frames {runs:?}");
    let share = |at: usize| results[&format!("cam{at:02}")].0;
    equal_shares(&(0..8).map(share).collect::<Vec<_>>());
    for at in 8..14 {
        let captured = captured[&format!("cam{at:02}")] as f64;
        assert!(share(at) as f64 >= (1.0 - TOLERANCE) * captured - 1.0, "cam{at:02}: {} of {captured}", share(at));
    }
    // More is asked for than the engine gives: its slots are used.
    let (frames, slots) =
        runs.iter().fold((0, 0), |(frames, slots), (fill, count)| (frames + *fill as u64 * count, slots + 8 * count));
    assert!(frames as f64 >= 0.85 * slots as f64, "{frames} of {slots} slots: {runs:?}");
    for (stream, (_, age_ms)) in &results {
        // Two runs in flight, one being filled, and a round of sixteen takes two of them.
        assert!(*age_ms < 6.0 * 25.0, "{stream}: {age_ms} ms");
    }
}

#[test]
fn c02_few_frames_do_not_wait_for_a_full_batch() {
    let streams = Streams::new(&[100, 0, 0, 0], 8, 2, 5);
    let line = streams.line(3);
    let (outcome, streams) = run(streams, &line);
    assert_eq!(outcome.incidents, []);
    let results = results(&line);
    assert!(results["cam00"].0 >= 20, "{results:?}");
    // Alone: nobody is waited for, although the batch has eight places.
    assert!(results["cam00"].1 < 60.0, "{results:?}");
    assert_eq!(streams.runs.lock().unwrap().keys().collect::<Vec<_>>(), [&1]);
}

/// Every frame of every stream, once.
fn nothing_is_lost(line: &Line, streams: &Streams) {
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in line.rows() {
        numbers.entry(row["stream"].as_str().unwrap().into()).or_default().push(row["frame"].as_u64().unwrap());
    }
    for (stream, numbers) in numbers {
        let expected: Vec<u64> = (0..numbers.len() as u64).collect();
        assert_eq!(numbers, expected, "{stream}");
        assert!(streams.captured.lock().unwrap()[&stream] >= expected.len() as u64);
    }
}

#[test]
fn c02_a_fault_in_one_slot_is_that_frame_s_alone() {
    let mut streams = Streams::new(&[5; 8], 8, 2, 10);
    streams.spoil = Arc::new(|_, live, frame, answer| {
        if live == 203 && frame.stream.starts_with("cam") {
            let faulty = edge_trt::engine::OutputStats { values: 420, nan: 3, ..Default::default() };
            answer.stats = Some(faulty);
        }
    });
    let mut line = streams.line(20);
    line.options.frames = Some(800);
    line.options.streams.iter_mut().for_each(|stream| stream.delivery = Some(Delivery::Every));
    let (outcome, streams) = run(streams, &line);
    assert_eq!(outcome.incidents.len(), 1);
    results(&line);
    nothing_is_lost(&line, &streams);
    let faults = line.rows().into_iter().filter(|row| row["trust"] == "fault").count();
    assert_eq!(faults, 1, "the frame itself, not those that shared its run or were in flight");
}

#[test]
fn c02_an_engine_that_fails_takes_its_batches_along_by_name_and_is_replaced() {
    for kind in [ErrorKind::Unexpected, ErrorKind::Budget] {
        let mut streams = Streams::new(&[5; 8], 8, 2, 10);
        streams.spoil = Arc::new(move |load, live, _, answer| {
            if load == 0 && live >= 203 {
                *answer = CannedAnswer::failing(kind, "on purpose");
            }
        });
        let mut line = streams.line(20);
        line.options.service.echo_every = 0;
        line.options.frames = Some(800);
        line.options.streams.iter_mut().for_each(|stream| stream.delivery = Some(Delivery::Every));
        let (outcome, streams) = run(streams, &line);
        assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
        assert_eq!(streams.loads.load(Relaxed), 2);
        results(&line);
        nothing_is_lost(&line, &streams);
        let faults = line.rows().into_iter().filter(|row| row["trust"] == "fault").count();
        assert!((1..=24).contains(&faults), "{faults}: the batch itself and what was in flight behind it");
    }
}

#[test]
fn c02_a_stuck_engine_answers_every_frame_in_flight_as_a_fault() {
    let mut streams = Streams::new(&[5; 8], 8, 2, 10);
    streams.spoil = Arc::new(|load, live, frame, answer| {
        if load == 0 && live == 203 && frame.stream.starts_with("cam") {
            answer.delay = Duration::from_millis(900);
        }
    });
    let mut line = streams.line(20);
    line.options.service.call_limit = Some(Duration::from_millis(300));
    line.options.service.patience = Duration::from_secs(5);
    line.options.frames = Some(800);
    line.options.streams.iter_mut().for_each(|stream| stream.delivery = Some(Delivery::Every));
    let (outcome, streams) = run(streams, &line);
    assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
    results(&line);
    nothing_is_lost(&line, &streams);
    let faults = line.rows().into_iter().filter(|row| row["trust"] == "fault").count();
    assert!((1..=24).contains(&faults), "{faults}");
}

#[test]
fn c02_a_slot_that_fails_is_seen_by_the_self_test() {
    // The third frame of every run is wrong: live answers look well, and one known answer in slot 0 would too.
    let mut streams = Streams::new(&[5; 8], 4, 2, 5);
    let asked = AtomicU64::new(0);
    streams.spoil = Arc::new(move |load, live, frame, answer| {
        let slot = if &*frame.stream == "golden" { asked.fetch_add(1, Relaxed) % 4 } else { 0 };
        if load == 0 && live >= 100 && slot == 2 {
            answer.candidates.iter_mut().for_each(|candidate| candidate.edges.left_px += 3.0);
        }
    });
    let mut line = streams.line(30);
    line.options.service.echo_every = 0;
    line.options.service.proofs.every = Duration::from_millis(100);
    line.options.frames = Some(1500);
    let (outcome, _) = run(streams, &line);
    assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
    assert!(outcome.incidents[0].what.contains("slot 2"), "{:?}", outcome.incidents);
}

/// The fault harness leaves an engine its lanes: what begins with two batches in flight is repaired as on a real engine, and
/// every frame has its row.
#[test]
fn c02_faults_on_purpose_begin_with_batches_in_flight() {
    use FaultKind::{DeviceLost, Error, Nan, OutOfMemory, Stuck, Swapped};
    use Step::{NewContext, ReloadBundle, RetryFrame, Rewarm, StandbyDevice};
    for (kind, amount, until, steps) in [
        (Nan, 1.0, Until::Load, &[RetryFrame, Rewarm, NewContext][..]),
        (Swapped, 1.0, Until::Load, &[RetryFrame, Rewarm, NewContext]),
        (OutOfMemory, 1.0, Until::Load, &[RetryFrame, Rewarm, NewContext]),
        (Error, 1.0, Until::Open, &[RetryFrame, Rewarm, NewContext, ReloadBundle]),
        (Stuck, 0.9, Until::Never, &[NewContext]),
        (DeviceLost, 1.0, Until::Device, &[StandbyDevice]),
    ] {
        let mut streams = Streams::new(&[5; 8], 8, 2, 10);
        streams.devices = if kind == DeviceLost { 2 } else { 1 };
        let mut line = streams.line(30);
        line.options.service.echo_every = 0;
        line.options.service.call_limit = Some(Duration::from_millis(400));
        line.options.service.patience = Duration::from_secs(5);
        line.options.frames = Some(800);
        line.options.streams.iter_mut().for_each(|stream| stream.delivery = Some(Delivery::Every));
        let streams = Arc::new(streams);
        let fault = Fault { kind, at: 203, amount, until, frames: 1, device: None };
        let injector = Injector::new(Plan { faults: vec![fault] });
        let outcome = line.run(Injected::over(Arc::clone(&streams) as _, Arc::clone(&injector))).unwrap();
        let name = kind.name();
        assert_eq!(outcome.incidents.len(), 1, "{name}: {:?}", outcome.incidents);
        assert_eq!(outcome.incidents[0].steps, steps, "{name}");
        assert_eq!(streams.most_flying.load(Relaxed), 2, "{name}: as many in flight as without the harness");
        results(&line);
        nothing_is_lost(&line, &streams);
        let rows = line.rows();
        let faults = rows.iter().filter(|row| row["trust"] == "fault").count();
        assert!((1..=24).contains(&faults), "{name}: {faults}: the batch itself and what was in flight behind it");
        let (listed, _) = edge_trt::run::incident::list(&line.path("state")).unwrap();
        assert_eq!(listed.len(), 1, "{name}: {:?}", listed.iter().map(|listed| &listed.report).collect::<Vec<_>>());
    }
}
