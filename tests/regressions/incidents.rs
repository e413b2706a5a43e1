//! Issue 6: the frames around a fault are kept, tell what was wrong, and run again elsewhere.

use crate::line::{CannedSource, Line, fault};
use edge_trt::bundle::Bundle;
use edge_trt::camera::SourceSpec;
use edge_trt::engine::Engine;
use edge_trt::engine::cpu::{CpuBackend, CpuOptions};
use edge_trt::run::depot::Delivery;
use edge_trt::run::incident::recording::Recording;
use edge_trt::run::incident::replay::{AskedTolerance, Outcome, Replay, replay};
use edge_trt::run::incident::{Listed, list};
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::BundleEngines;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn incidents(line: &Line) -> Vec<Listed> {
    let (listed, broken) = list(&line.path("state")).unwrap();
    assert_eq!(broken, Vec::<String>::new());
    listed
}

#[test]
fn every_fault_leaves_one_incident_with_its_reason_and_the_step_that_repaired_it() {
    for (kind, until, reason, step) in [
        (FaultKind::Nan, Until::Frames, "nan", Some("retry_frame")),
        (FaultKind::Nan, Until::Load, "nan", Some("new_context")),
        (FaultKind::Error, Until::Load, "engine_error", Some("new_context")),
        (FaultKind::OutOfMemory, Until::Open, "engine_error", Some("reload_bundle")),
        (FaultKind::Swapped, Until::Load, "wrong_frame", Some("new_context")),
        (FaultKind::Freeze, Until::Reopen, "frozen", None),
    ] {
        let mut line = Line::new();
        line.options.service.echo_every = 0;
        line.options.frames = Some(if kind == FaultKind::Freeze { 900 } else { 250 });
        line.run_with(CannedSource::new(), fault(kind, 1.0, until)).0.unwrap();
        let listed = incidents(&line);
        assert_eq!(listed.len(), 1, "{}: {listed:?}", kind.name());
        let report = &listed[0].report;
        assert_eq!(report.reason, reason, "{}", kind.name());
        assert_eq!(report.steps.last().map(String::as_str), step, "{}", kind.name());
        assert!(report.recovered_after_ms.is_some_and(|after_ms| after_ms > 0.0), "{}", kind.name());
        assert!(report.complete, "{}: {report:?}", kind.name());
        let recording = Recording::open(&listed[0].folder).unwrap();
        assert_eq!(recording.frames().len(), 50, "{}", kind.name());
        let first = recording.frames().iter().position(|frame| !frame.reasons.is_empty()).unwrap();
        assert_eq!(first, 25, "{}: as many before it as from it on", kind.name());
        assert!(recording.picture(&recording.frames()[first]).unwrap().is_some());
    }
}

#[test]
fn silent_drift_leaves_the_frames_before_the_failed_self_test() {
    let mut line = Line::new();
    line.options.service.proofs.every = std::time::Duration::from_millis(300);
    line.options.service.echo_every = 0;
    line.run_with(CannedSource::new(), fault(FaultKind::Shift, 3.0, Until::Load)).0.unwrap();
    let listed = incidents(&line);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let report = &listed[0].report;
    assert_eq!((report.reason.as_str(), report.steps.last().unwrap().as_str()), ("self_test", "new_context"));
    let kinds: Vec<&str> = report.events.iter().map(|event| event.kind.as_str()).collect();
    for kind in ["self_test_passed", "self_test_failed", "alarm", "step", "recovered"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    // The frames before it carry the drift that only the self-test has seen.
    let recording = Recording::open(&listed[0].folder).unwrap();
    let lefts: Vec<f32> =
        recording.frames().iter().filter_map(|frame| Some(frame.candidates.first()?.edges_px().left_px)).collect();
    let healed = *lefts.last().unwrap();
    let drifted = lefts.iter().filter(|left| (*left - healed).abs() > 1.0).count();
    assert!(drifted > 0 && drifted < lefts.len(), "{drifted} of {lefts:?}");
}

#[test]
fn a_run_that_gives_up_leaves_its_incident() {
    let line = Line::new();
    line.run_with(CannedSource::new(), fault(FaultKind::DeviceLost, 1.0, Until::Device)).0.unwrap_err();
    let listed = incidents(&line);
    assert_eq!(listed.len(), 1);
    let report = &listed[0].report;
    assert!(report.ended.as_ref().is_some_and(|ended| ended.starts_with("exit 7: ")), "{report:?}");
    assert_eq!((report.recovered_after_ms, report.frames), (None, 26));
}

#[test]
fn a_clean_line_leaves_no_incident() {
    let line = Line::new();
    line.run(Arc::new(CannedSource::new())).unwrap();
    assert_eq!(incidents(&line).len(), 0);
}

/// The sample model on the simulated line, with a plan of faults, and every frame answered.
fn sample_line(plan: Vec<Fault>) -> (Line, PathBuf) {
    let mut line = Line::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sample/sample.edge");
    line.options.bundle = sample.clone();
    line.options.cpu = CpuOptions { backend: CpuBackend::Rten, threads: Some(1), ..CpuOptions::default() };
    line.options.streams[0].spec = SourceSpec::parse("sim:?size=320x192&fast&frames=70").unwrap();
    line.options.streams[0].delivery = Some(Delivery::Every);
    line.options.frames = Some(70);
    line.options.duration = None;
    line.options.service.call_limit = None;
    line.options.service.echo_every = 0;
    let engines = Arc::new(BundleEngines::of(&line.options));
    line.run(Injected::over(engines, Injector::new(Plan { faults: plan }))).unwrap();
    (line, sample)
}

/// Runs the incident again, with an engine that `plan` spoils.
fn again(line: &Line, sample: &Path, recording: &Recording, plan: Vec<Fault>) -> Replay {
    let bundle = Bundle::open(sample).unwrap();
    let engines = Injected::over(Arc::new(BundleEngines::of(&line.options)), Injector::new(Plan { faults: plan }));
    let floor = recording.report().engine.score_floor;
    let mut engine: Box<dyn Engine> = engines.load(&bundle, floor, 0).unwrap();
    replay(recording, &bundle, &mut *engine, AskedTolerance::default(), &mut |_| {}).unwrap()
}

fn that_differ(replayed: &Replay) -> Vec<usize> {
    let frames = replayed.frames.iter().enumerate();
    frames.filter(|(_, frame)| frame.outcome == Outcome::Differs).map(|(at, _)| at).collect()
}

fn spoiled(kind: FaultKind, at: u64, frames: u64) -> Fault {
    Fault { kind, at, amount: 4.0, until: Until::Frames, frames, device: None }
}

#[test]
fn an_incident_of_the_sample_model_is_the_same_again_but_for_what_was_spoiled() {
    let (line, sample) = sample_line(vec![spoiled(FaultKind::Nan, 35, 1)]);
    let listed = incidents(&line);
    assert_eq!(listed.len(), 1);
    let recording = Recording::open(&listed[0].folder).unwrap();
    assert_eq!(recording.frames().len(), 50);
    assert!(
        recording.frames().iter().map(|frame| frame.detections.len()).sum::<usize>() > 20,
        "there is something to see"
    );
    // A healthy engine: the fault alone differs.
    let healthy = again(&line, &sample, &recording, vec![]);
    assert_eq!(that_differ(&healthy), [25]);
    assert!(healthy.frames[25].differences[0].contains("recorded 7 values that are not a number, now 0"));
    assert_eq!((healthy.same, healthy.differ, healthy.not_run), (49, 1, 0));
    assert!(healthy.frames.iter().all(|frame| frame.apart_px < 0.01 && frame.apart_score < 0.001));
    // The same fault again: nothing differs.
    let same = again(&line, &sample, &recording, vec![spoiled(FaultKind::Nan, 25, 1)]);
    assert_eq!(that_differ(&same), Vec::<usize>::new());
    // An engine that is spoiled on other frames: these, and only these with something to see, differ besides.
    let moved = again(&line, &sample, &recording, vec![spoiled(FaultKind::Shift, 10, 5)]);
    let seen = |at: &usize| !recording.frames()[*at].candidates.is_empty();
    let expected: Vec<usize> = (10..15).filter(seen).chain([25]).collect();
    assert!(expected.len() > 2, "{expected:?}");
    assert_eq!(that_differ(&moved), expected);
}
