//! Issues 6 and 7: with several devices a warm engine stands by; when the one that serves goes bad, the line goes on there.

use crate::line::{CannedSource, Line, fault};
use edge_trt::camera::SourceSpec;
use edge_trt::error::ErrorKind;
use edge_trt::guard::ladder::Step;
use edge_trt::run::depot::Delivery;
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::BundleEngines;
use edge_trt::run::{self, StreamOptions, ledger, stop::StopFlag};
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Captures that an engine with batches of one may hold.
const MOST_IN_FLIGHT: usize = 4;

/// Two streams, both in order, results every few milliseconds.
fn line() -> Line {
    let mut line = Line::new();
    let options = &mut line.options;
    options.streams[0].delivery = Some(Delivery::Every);
    let second = StreamOptions { name: "cam1".into(), ..options.streams[0].clone() };
    options.streams.push(second);
    options.service.standby.retry_after = Duration::from_millis(50);
    options.service.proofs.every = Duration::from_millis(100);
    options.service.proofs.share = 1.0;
    options.frames = Some(500);
    line
}

fn devices(count: usize) -> CannedSource {
    CannedSource { devices: count, ..CannedSource::new() }
}

fn on_device(device: usize, kind: FaultKind, until: Until) -> Fault {
    Fault { device: Some(device), ..fault(kind, 3.0, until) }
}

fn device_of(row: &Value) -> &str {
    row["engine"]["device"].as_str().unwrap()
}

/// Each stream's rows come in order, and no number twice.
fn in_order(rows: &[Value]) {
    for stream in ["cam0", "cam1"] {
        let of_stream = rows.iter().filter(|row| row["stream"] == stream);
        let numbers: Vec<u64> = of_stream.filter_map(|row| row["frame"].as_u64()).collect();
        assert!(numbers.len() > 100, "{stream}: {} rows", numbers.len());
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{stream}: {numbers:?}");
    }
}

#[test]
fn a_lost_device_is_replaced_in_the_same_moment_and_comes_back_as_the_standby() {
    let line = line();
    let (source, faults) = (
        devices(2),
        vec![
            on_device(0, FaultKind::DeviceLost, Until::Device),
            Fault { at: 300, ..on_device(1, FaultKind::DeviceLost, Until::Never) },
        ],
    );
    let loads = Arc::clone(&source.loads);
    let outcome = line.run(Injected::over(Arc::new(source), Injector::new(Plan { faults }))).unwrap();
    let rows = line.rows();
    in_order(&rows);
    assert_eq!(outcome.incidents.len(), 2, "{:?}", outcome.incidents);
    for incident in &outcome.incidents {
        assert_eq!(incident.steps, [Step::StandbyDevice]);
        assert!(incident.recovered_after < Duration::from_millis(500), "{incident:?}");
    }
    let mut served: Vec<&str> = rows.iter().map(device_of).collect();
    served.dedup();
    assert_eq!(served, ["0", "1", "0"], "device 0 came back and serves again");
    // What was in flight at the lost device; none, when a known answer was the first that it did not give.
    assert!(rows.iter().filter(|row| row["trust"] == "fault").count() <= 2 * MOST_IN_FLIGHT);
    for pair in rows.windows(2).filter(|pair| pair[0]["trust"] == "fault") {
        let next_device = device_of(&pair[0]) != device_of(&pair[1]);
        assert!(next_device || pair[1]["trust"] == "fault", "nothing of a lost device is trusted: {pair:?}");
    }
    let loads = loads.lock().unwrap();
    assert_eq!(&loads[..3], [0, 1, 0], "serving, standing by, brought back");
}

#[test]
fn wrong_answers_and_used_up_memory_climb_to_the_standby() {
    for kind in [FaultKind::Shift, FaultKind::OutOfMemory, FaultKind::Nan] {
        let line = line();
        let (outcome, injector) = line.run_with(devices(2), on_device(0, kind, Until::Device));
        let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
        let incident = &outcome.incidents[0];
        let climbed = [Step::RetryFrame, Step::Rewarm, Step::NewContext, Step::ReloadBundle, Step::StandbyDevice];
        assert_eq!(incident.steps, climbed, "{}", kind.name());
        let rows = line.rows();
        in_order(&rows);
        let change = rows.iter().position(|row| device_of(row) == "1").unwrap();
        assert!(rows[change..].iter().all(|row| device_of(row) == "1" && row["trust"] == "trusted"));
        if kind == FaultKind::Shift {
            let seen_after = incident.seen_at.saturating_duration_since(injector.begun(0).unwrap());
            assert!(seen_after < Duration::from_secs(2), "{seen_after:?}");
        } else {
            // When a known answer was the first to meet the fault, the frame before it is an ordinary one, and marked.
            let last = &rows[change - 1];
            let (incidents, _) = ledger::read(&line.path("state")).unwrap();
            let mut marked = incidents.iter().flat_map(|incident| &incident.results);
            let is_marked = marked.any(|result| result.frame == last["frame"].as_u64());
            assert!(last["trust"] == "fault" || is_marked, "nothing of device 0 is trusted after its fault: {last}");
        }
    }
}

#[test]
fn a_call_that_never_comes_back_is_left_behind_within_a_second() {
    let mut line = line();
    line.options.service.patience = Duration::from_secs(20);
    let fault = Fault { amount: 60.0, ..on_device(0, FaultKind::Stuck, Until::Never) };
    let (outcome, _) = line.run_with(devices(2), fault);
    let incident = &outcome.unwrap().incidents[0];
    assert_eq!(incident.steps, [Step::StandbyDevice]);
    assert!(incident.recovered_after < Duration::from_secs(3), "{incident:?}");
}

#[test]
fn a_standby_that_lies_is_no_standby() {
    let line = line();
    let lies = Fault { at: 20, ..on_device(1, FaultKind::Shift, Until::Never) };
    let lost = Fault { at: 300, ..on_device(0, FaultKind::DeviceLost, Until::Never) };
    let injector = Injector::new(Plan { faults: vec![lies, lost] });
    let error = line.run(Injected::over(Arc::new(devices(2)), injector)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    assert!(line.rows().iter().all(|row| device_of(row) == "0"), "no answer of the device that lies");
}

#[test]
fn a_third_device_serves_when_the_second_is_broken_too() {
    let line = line();
    let source = CannedSource { broken: vec![1], ..devices(3) };
    let (outcome, _) = line.run_with(source, on_device(0, FaultKind::DeviceLost, Until::Never));
    assert_eq!(outcome.unwrap().incidents[0].steps, [Step::StandbyDevice]);
    let rows = line.rows();
    in_order(&rows);
    assert_eq!(device_of(rows.last().unwrap()), "2");
}

#[test]
fn the_line_starts_on_the_next_device_when_the_first_is_broken_and_says_so() {
    let line = line();
    let said = Mutex::new(Vec::new());
    let source = CannedSource { broken: vec![0], ..devices(2) };
    let say = &mut |text: &str| said.lock().unwrap().push(text.to_owned());
    run::start_with(&line.options, Arc::new(source), &StopFlag::default(), say).unwrap();
    assert!(line.rows().iter().all(|row| device_of(row) == "1"));
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("device 0 cannot serve, the next one is tried"), "{said}");
    assert!(said.contains("device 1 serves"), "{said}");
    assert!(said.contains("device 0 does NOT stand by"), "{said}");
}

#[test]
fn without_a_device_left_the_process_ends_with_7() {
    let line = line();
    let faults =
        vec![on_device(0, FaultKind::DeviceLost, Until::Never), on_device(1, FaultKind::DeviceLost, Until::Never)];
    let error = line.run(Injected::over(Arc::new(devices(2)), Injector::new(Plan { faults }))).unwrap_err();
    assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::Device, 7), "{error}");
    assert!(line.rows().iter().skip_while(|row| row["trust"] != "fault").all(|row| row["trust"] == "fault"));
}

#[test]
fn engines_that_stand_by_are_gone_with_the_run() {
    let line = line();
    let source = devices(3);
    let live = Arc::clone(&source.live);
    line.run(Arc::new(source)).unwrap();
    assert_eq!(live.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn two_engines_on_the_cpu_stand_in_for_each_other() {
    let mut line = Line::new();
    line.options.bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sample/sample.edge");
    line.options.streams[0].spec = SourceSpec::parse("sim:?fps=20&size=320x192").unwrap();
    line.options.service.call_limit = None;
    line.options.service.devices = vec![0, 1];
    line.options.cpu.threads = Some(1);
    line.options.frames = Some(30);
    let faults = vec![Fault { at: 10, ..on_device(0, FaultKind::DeviceLost, Until::Never) }];
    let engines = Arc::new(BundleEngines::of(&line.options));
    let outcome = line.run(Injected::over(engines, Injector::new(Plan { faults }))).unwrap();
    assert_eq!(outcome.incidents[0].steps, [Step::StandbyDevice]);
    let rows = line.rows();
    assert_eq!((device_of(&rows[0]), device_of(rows.last().unwrap())), ("0", "1"));
    assert_eq!(rows.last().unwrap()["trust"], "trusted");
}
