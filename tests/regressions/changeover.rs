//! Changeover between products: all engines stand ready, one is put in between frames, and nothing is answered by the wrong one.

use crate::line::{CannedSource, Line, fault, write_bundle};
use edge_trt::decision::{Decision, DecisionRule};
use edge_trt::guard::ladder::Step;
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::product::{self, Product, ProductDoor};
use edge_trt::run::source::EngineSource;
use edge_trt::run::stop::{StopFlag, StopReason};
use edge_trt::run::{self, Outcome, ReloadDoor, Settled};
use edge_trt::units::Bytes;
use edge_trt::{ErrorKind, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Products `a` and `b` with bundles of their own, and `c`, which shares b's with a threshold between its two scores.
fn line() -> Line {
    let mut line = Line::new();
    write_bundle(&line.path("b.edge"), 5.0, |_| {});
    let product = |id: &str, bundle: PathBuf| Product {
        id: id.into(),
        bundle,
        baseline: None,
        thresholds: Default::default(),
        decision: None,
    };
    let mut strict = product("c", line.path("b.edge"));
    strict.thresholds.score = Some(0.75);
    strict.decision = Some(DecisionRule { expect: [("hole".to_owned(), 1)].into(), ..DecisionRule::default() });
    let a = product("a", line.options.bundle.clone());
    line.options.service.products.list = vec![a, product("b", line.path("b.edge")), strict];
    line.options.frames = None;
    line.options.duration = Some(Duration::from_secs(120));
    line
}

struct Running {
    line: Line,
    products: Arc<ProductDoor>,
    reload: Arc<ReloadDoor>,
    stop: StopFlag,
    live: Arc<AtomicI64>,
    thread: JoinHandle<Result<Outcome>>,
}

impl Running {
    fn start(line: Line, live: Arc<AtomicI64>, source: Arc<dyn EngineSource>, engines: i64) -> Self {
        let stop = StopFlag::default();
        let thread = std::thread::spawn({
            let (options, stop) = (line.options.clone(), stop.clone());
            move || run::start_with(&options, source, &stop, &mut |_| {})
        });
        let products = Arc::clone(&line.options.service.products.door);
        let reload = Arc::clone(&line.options.service.reload.door);
        let running = Running { line, products, reload, stop, live, thread };
        running.wait_for("the engines", || running.live.load(Ordering::SeqCst) == engines);
        running.wait_for("the first rows", || running.line.rows_so_far().len() > 3);
        running
    }

    fn canned(line: Line) -> Self {
        let source = CannedSource::new();
        Self::start(line, Arc::clone(&source.live), Arc::new(source), 2)
    }

    fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        let since = Instant::now();
        while !done() {
            assert!(!self.thread.is_finished(), "the line ended before {what}");
            assert!(since.elapsed() < Duration::from_secs(60), "{what} did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks for a product and waits for a row that it has answered.
    fn change_to(&self, id: &str) {
        let before = self.line.rows_so_far().len();
        self.products.ask(id.into(), Instant::now());
        self.wait_for(id, || self.line.rows_so_far().iter().skip(before).any(|row| is_answered_by(row, id)));
    }

    fn next_reloads(&self, count: u64) -> Vec<Settled> {
        let (before, _) = self.reload.settled();
        self.reload.ask();
        let mut seen = Vec::new();
        for number in 1..=count {
            self.wait_for("an outcome", || self.reload.settled().0 >= before + number);
            seen.push(self.reload.settled().1.unwrap());
        }
        seen
    }

    fn end(self) -> (Line, Outcome) {
        self.stop.raise(StopReason::Done);
        let outcome = self.thread.join().unwrap().unwrap();
        let since = Instant::now();
        while self.live.load(Ordering::SeqCst) != 0 {
            assert!(since.elapsed() < Duration::from_secs(5), "an engine was left behind");
            std::thread::sleep(Duration::from_millis(5));
        }
        (self.line, outcome)
    }
}

fn is_answered_by(row: &Value, id: &str) -> bool {
    row["product"] == id && row["trust"] != "fault"
}

/// Right edge of the first box in the source picture.
fn right(row: &Value) -> f64 {
    row["detections"][0]["box"][2].as_f64().unwrap_or(f64::NAN)
}

/// The same as the network of this bias sees it: 1.6 network pixels a source pixel, 6 of padding.
fn right_of(bias: f64) -> f64 {
    (4.0 + bias + 14.0 - 6.0) / 1.6
}

fn is_of(row: &Value, bias: f64) -> bool {
    (right(row) - right_of(bias)).abs() < 1e-3
}

/// Bundle and threshold are those of the product that the row names.
fn is_its_products(row: &Value) {
    let (bias, boxes) = match row["product"].as_str().unwrap() {
        "a" => (0.0, 2),
        "b" => (5.0, 2),
        _ => (5.0, 1),
    };
    assert!(is_of(row, bias), "{row}");
    assert_eq!(row["detections"].as_array().unwrap().len(), boxes, "{row}");
}

fn runs_of_products(rows: &[Value]) -> Vec<String> {
    let mut ids: Vec<String> = rows.iter().map(|row| row["product"].as_str().unwrap().to_owned()).collect();
    ids.dedup();
    ids
}

#[test]
fn every_row_says_its_product_and_none_is_answered_by_another_ones_engine() {
    let running = Running::canned(line());
    for id in ["b", "c", "a", "a", "c", "b"] {
        running.change_to(id);
    }
    assert_eq!(running.live.load(Ordering::SeqCst), 2, "three products, two bundles");
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents, []);
    let recorded = std::fs::read_dir(line.path("state/incidents")).map_or(0, |entries| entries.count());
    assert_eq!(recorded, 0, "a changeover is no incident");
    let rows = line.rows();
    assert_eq!(runs_of_products(&rows), ["a", "b", "c", "a", "c", "b"]);
    for row in &rows {
        if row["trust"] == "fault" {
            assert_eq!(row["reasons"], serde_json::json!(["changeover"]), "{row}");
            assert!(row["detections"].is_null(), "{row}");
            continue;
        }
        is_its_products(row);
        // The rule of product c alone decides.
        assert_eq!(row["decision"].is_null(), row["product"] != "c", "{row}");
    }
    assert!(rows.iter().any(|row| row["product"] == "c" && row["decision"] == "pass"));
}

#[test]
fn the_selection_survives_a_restart_and_a_request_waits_for_it() {
    let running = Running::canned(line());
    running.change_to("b");
    let (mut line, _) = running.end();
    let state = line.path("state");
    assert_eq!(product::read(&state).unwrap().unwrap().product, "b");
    let first_product = |line: Line| {
        std::fs::remove_file(line.path("rows.jsonl")).unwrap();
        let running = Running::canned(line);
        let (line, _) = running.end();
        (line.rows()[0]["product"].as_str().unwrap().to_owned(), line)
    };
    let (id, again) = first_product(line);
    assert_eq!(id, "b");
    product::ask(&state, "c").unwrap();
    let (id, again) = first_product(again);
    assert_eq!(id, "c");
    line = again;
    // What it made last is gone: nobody guesses.
    line.options.service.products.list.truncate(2);
    let error = line.run(Arc::new(CannedSource::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    let text = error.to_string();
    assert!(text.contains("found product `c`, expected one of: `a`, `b`") && text.contains("--product ID"), "{text}");
    line.options.service.products.first = Some("a".into());
    line.options.frames = Some(5);
    line.run(Arc::new(CannedSource::new())).unwrap();
}

#[test]
fn a_request_in_the_state_folder_changes_a_running_line_over() {
    let running = Running::canned(line());
    product::ask(&running.line.path("state"), "b").unwrap();
    running.wait_for("b", || running.line.rows_so_far().iter().any(|row| is_answered_by(row, "b")));
    product::ask(&running.line.path("state"), "nothing").unwrap();
    std::thread::sleep(Duration::from_millis(400));
    let (line, _) = running.end();
    assert_eq!(runs_of_products(&line.rows()), ["a", "b"]);
}

/// Both bundles can be replaced: the inspected one after its shadow, the other one on its shelf.
#[test]
fn bundles_of_inspected_and_waiting_products_are_reloaded() {
    let mut line = line();
    line.options.service.reload.shadow_frames = 3;
    line.options.service.reload.probation = Duration::from_millis(20);
    let running = Running::canned(line);
    write_bundle(&running.line.options.bundle, 0.5, |_| {});
    write_bundle(&running.line.path("b.edge"), 5.5, |_| {});
    let settled = running.next_reloads(2);
    assert!(settled.iter().all(|settled| matches!(settled, Settled::Swapped(_))), "{settled:?}");
    running.change_to("b");
    write_bundle(&running.line.options.bundle, 0.25, |manifest| manifest.classes = vec!["other".into()]);
    let settled = running.next_reloads(2);
    assert!(matches!(settled[0], Settled::Unchanged), "{settled:?}");
    assert!(matches!(&settled[1], Settled::Refused(why) if why.contains("classes")), "{settled:?}");
    running.change_to("a");
    // Copies are made on a thread of their own.
    let state = running.line.path("state");
    running.wait_for("copies of both", || {
        ["a", "b"].iter().all(|id| state.join(format!("last_good.{id}.edge")).is_file())
    });
    running.wait_for("two engines", || running.live.load(Ordering::SeqCst) == 2);
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents, []);
    let rows = line.rows();
    let last = |id| rows.iter().rev().find(|row| is_answered_by(row, id)).unwrap();
    assert!(is_of(last("a"), 0.5) && is_of(last("b"), 5.5), "{} {}", last("a"), last("b"));
}

/// The new product's engine is bad: the ladder climbs on that product's bundle, and the old one's never answers for it.
#[test]
fn a_bad_engine_behind_a_changeover_is_repaired_and_nothing_is_inspected_before() {
    let mut line = line();
    line.options.service.products.list.truncate(2);
    // The engine of bundle b that waits on the shelf gives not-a-number; one that is loaded anew does not.
    let spoilt = Arc::new(AtomicBool::new(false));
    let source = CannedSource { spoilt: Some((5.0, Arc::clone(&spoilt))), ..CannedSource::new() };
    let live = Arc::clone(&source.live);
    let running = Running::start(line, live, Arc::new(source), 2);
    spoilt.store(true, Ordering::SeqCst);
    running.change_to("b");
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
    let rows = line.rows();
    assert_eq!(runs_of_products(&rows), ["a", "b"]);
    let first = rows.iter().position(|row| is_answered_by(row, "b")).unwrap();
    assert!(rows[first..].iter().all(|row| is_of(row, 5.0)));
}

/// A fault in service after a changeover climbs on the product's own bundle.
#[test]
fn the_ladder_works_on_the_inspected_products_bundle() {
    let mut line = line();
    line.options.service.products.first = Some("b".into());
    let source = CannedSource::new();
    let live = Arc::clone(&source.live);
    let plan = Plan { faults: vec![fault(FaultKind::Nan, 1.0, Until::Load)] };
    let running = Running::start(line, live, Injected::over(Arc::new(source), Injector::new(plan)), 2);
    running.wait_for("the way back", || {
        let rows = running.line.rows_so_far();
        let bad = rows.iter().position(|row| row["trust"] == "fault");
        bad.is_some_and(|bad| rows[bad..].iter().any(|row| is_answered_by(row, "b")))
    });
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents.len(), 1);
    let rows = line.rows();
    assert_eq!(runs_of_products(&rows), ["b"]);
    assert!(rows.iter().filter(|row| row["trust"] != "fault").all(|row| is_of(row, 5.0)));
}

#[test]
fn products_that_do_not_fit_together_are_refused_at_the_start_with_what_would() {
    let line = line();
    let source = CannedSource { room: Some(Bytes(6000)), ..CannedSource::new() };
    let live = Arc::clone(&source.live);
    let error = line.run(Arc::new(source)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert_eq!(error.kind().exit_code(), 4);
    let text = error.to_string();
    assert!(text.contains("2 bundles take") && text.contains("what fits: `line1`"), "{text}");
    assert_eq!(live.load(Ordering::SeqCst), 0, "nothing was loaded");
    let enough = CannedSource { room: Some(Bytes(9000)), ..CannedSource::new() };
    let mut line = self::line();
    line.options.frames = Some(3);
    line.run(Arc::new(enough)).unwrap();
}

/// The engines of all products are loaded again on the device that goes on: it needs the room for them too.
#[test]
fn products_must_fit_together_on_every_device() {
    let source = |other_room| {
        let other_room = Some((1, Bytes(other_room)));
        CannedSource { devices: 2, room: Some(Bytes(9000)), other_room, ..CannedSource::new() }
    };
    let error = line().run(Arc::new(source(6000))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(error.to_string().contains("2 bundles take"), "{error}");
    let mut line = line();
    line.options.frames = Some(3);
    line.run(Arc::new(source(8500))).unwrap();
}

fn device_of(row: &Value) -> &str {
    row["engine"]["device"].as_str().unwrap()
}

/// Whichever device serves, a product is answered by its own bundle's engine, and judged by its own thresholds.
#[test]
fn a_standby_device_follows_the_product_and_the_shelf_follows_the_line() {
    let mut line = line();
    line.options.service.standby.retry_after = Duration::from_millis(50);
    let source = CannedSource { devices: 2, ..CannedSource::new() };
    let (live, loads) = (Arc::clone(&source.live), Arc::clone(&source.loads));
    let lost = Fault { at: 400, device: Some(0), ..fault(FaultKind::DeviceLost, 1.0, Until::Device) };
    let engines = Injected::over(Arc::new(source), Injector::new(Plan { faults: vec![lost] }));
    // One serves, one is on the shelf, one stands by.
    let running = Running::start(line, live, engines, 3);
    assert_eq!(*loads.lock().unwrap(), [0, 0, 1]);
    running.change_to("b");
    running.wait_for("the standby of b", || loads.lock().unwrap()[..] == [0, 0, 1, 1]);
    running.wait_for("the other device", || {
        running.line.rows_so_far().iter().any(|row| device_of(row) == "1" && is_answered_by(row, "b"))
    });
    for id in ["c", "a", "b"] {
        running.change_to(id);
    }
    running.wait_for("one engine on the shelf and one to stand by", || running.live.load(Ordering::SeqCst) == 3);
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
    assert_eq!(outcome.incidents[0].steps, [Step::StandbyDevice]);
    let rows = line.rows();
    assert_eq!(runs_of_products(&rows), ["a", "b", "c", "a", "b"]);
    let mut devices: Vec<&str> = rows.iter().map(device_of).collect();
    devices.dedup();
    assert_eq!(devices, ["0", "1"]);
    rows.iter().filter(|row| row["trust"] != "fault").for_each(is_its_products);
}

#[test]
fn what_does_not_fit_the_bundle_is_refused_at_the_start() {
    let mut line = line();
    line.options.service.products.list[2].decision.as_mut().unwrap().expect = [("scratch".to_owned(), 1)].into();
    let error = line.run(Arc::new(CannedSource::new())).unwrap_err().to_string();
    assert!(error.contains("scratch") && error.contains("product `c`"), "{error}");
}

/// Parts triggered before the request are the old product's; those after it are not inspected until READY.
#[test]
fn a_part_is_answered_by_the_product_it_was_triggered_for_or_not_at_all() {
    let mut line = line();
    let rule = DecisionRule { expect: [("hole".to_owned(), 2)].into(), ..DecisionRule::default() };
    for product in &mut line.options.service.products.list {
        product.decision = Some(rule.clone());
        product.thresholds = Default::default();
    }
    line.options.streams[0].delivery = Some(run::depot::Delivery::Every);
    let running = Running::canned(line);
    for id in ["b", "a", "b"] {
        running.change_to(id);
    }
    let (line, _) = running.end();
    let rows = line.rows();
    let set_aside: Vec<&Value> = rows.iter().filter(|row| row["trust"] == "fault").collect();
    assert!(set_aside.iter().all(|row| row["decision"] == Decision::NotInspected.name()), "{set_aside:?}");
    assert!(rows.iter().filter(|row| row["trust"] != "fault").all(|row| row["decision"] == "pass"));
    let numbers: Vec<u64> = rows.iter().map(|row| row["frame"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "every frame has its row");
}

/// Not below what the issue asks for: under one second from the request, here with engines of 40 ms a call.
#[test]
fn a_changeover_takes_less_than_a_second() {
    let source = CannedSource { call: Duration::from_millis(40), ..CannedSource::new() };
    let running = Running::start(line(), Arc::clone(&source.live), Arc::new(source), 2);
    let mut slowest = Duration::ZERO;
    for id in ["b", "a", "b", "a", "b"] {
        let since = Instant::now();
        running.change_to(id);
        slowest = slowest.max(since.elapsed());
    }
    running.end();
    eprintln!("slowest of five changeovers until the first answered row: {slowest:.0?}");
    assert!(slowest < Duration::from_secs(1) * slow_machine(), "{slowest:?}");
}

/// A machine that other work keeps busy may take longer.
fn slow_machine() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = load.split(' ').next().and_then(|load| load.parse::<f64>().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if busy > cores as f64 { 5 } else { 1 }
}
