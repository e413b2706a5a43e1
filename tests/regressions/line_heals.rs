//! Issue 6: every injected fault is seen within its bound, repaired without a person, and leaves no trusted answer behind.

use crate::line::{CannedSource, Line, fault};
use edge_trt::error::ErrorKind;
use edge_trt::guard::Trust;
use edge_trt::guard::ladder::Step;
use edge_trt::run::depot::Delivery;
use edge_trt::run::inject::{FaultKind, Until};
use edge_trt::run::{Outcome, ledger};
use std::time::Duration;

fn healed(line: &Line, kind: FaultKind, amount: f64, until: Until) -> (Outcome, Duration) {
    let (outcome, injector) = line.run_with(CannedSource::new(), fault(kind, amount, until));
    let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
    assert_eq!(outcome.incidents.len(), 1, "{}: {:?}", kind.name(), outcome.incidents);
    let seen_after = outcome.incidents[0].seen_at.saturating_duration_since(injector.begun(0).unwrap());
    (outcome, seen_after)
}

#[test]
fn a_clean_line_has_no_incident() {
    let line = Line::new();
    let outcome = line.run(std::sync::Arc::new(CannedSource::new())).unwrap();
    assert_eq!(outcome.incidents, []);
    assert_eq!(outcome.results.keys().collect::<Vec<_>>(), [&Trust::Trusted]);
    assert_eq!(ledger::read(&line.path("state")).unwrap(), (vec![], 0));
}

#[test]
fn hard_faults_are_seen_in_the_very_frame_and_climb_as_far_as_needed() {
    use FaultKind::{Error, Nan, OutOfMemory, Swapped};
    use Step::{NewContext, ReloadBundle, RetryFrame, Rewarm};
    for (kind, until, steps) in [
        (Nan, Until::Frames, &[RetryFrame][..]),
        (Nan, Until::Load, &[RetryFrame, Rewarm, NewContext]),
        (Error, Until::Load, &[RetryFrame, Rewarm, NewContext]),
        (OutOfMemory, Until::Open, &[RetryFrame, Rewarm, NewContext, ReloadBundle]),
        (Swapped, Until::Load, &[RetryFrame, Rewarm, NewContext]),
    ] {
        let mut line = Line::new();
        line.options.frames = Some(200);
        let (outcome, seen_after) = healed(&line, kind, 1.0, until);
        assert_eq!(outcome.incidents[0].steps, steps, "{}", kind.name());
        assert!(seen_after < Duration::from_millis(500), "{}: {seen_after:?}", kind.name());
        assert_eq!(outcome.results[&Trust::Fault], 1, "{}: the bad frame itself, and no other", kind.name());
        let faulty = line.rows().into_iter().find(|row| row["trust"] == "fault").unwrap();
        assert_eq!(faulty["detections"], serde_json::Value::Null);
    }
}

#[test]
fn silent_drift_is_seen_within_the_interval_and_everything_since_the_last_proof_is_unproven() {
    let mut told = 0;
    for (kind, amount) in
        [(FaultKind::Shift, 1.0), (FaultKind::Shift, 3.0), (FaultKind::Shift, 10.0), (FaultKind::HighScores, 1.0)]
    {
        let mut line = Line::new();
        line.options.service.proofs.every = Duration::from_millis(300);
        line.options.service.echo_every = 0;
        // No row may be lost on its way to the file, however busy the machine is.
        line.options.streams[0].delivery = Some(Delivery::Every);
        let (outcome, seen_after) = healed(&line, kind, amount, Until::Load);
        assert_eq!(outcome.incidents[0].steps, [Step::RetryFrame, Step::Rewarm, Step::NewContext], "{}", kind.name());
        // The interval, a quarter of it while frames wait, and the slowness of a busy machine.
        assert!(seen_after < Duration::from_millis(300 + 75 + 600), "{} {amount}: {seen_after:?}", kind.name());
        let (incidents, broken) = ledger::read(&line.path("state")).unwrap();
        assert_eq!(broken, 0);
        let first = &incidents[0];
        let marked = first.results.iter().filter_map(|result| result.frame);
        let rows = line.rows();
        // A frame that was in flight when the self-test failed is a fault without boxes, not a result to be marked.
        let reported = rows.iter().filter(|row| row["trust"] != "fault");
        let drifted = reported.filter(|row| row["detections"] != rows[0]["detections"]);
        let drifted: Vec<u64> = drifted.filter_map(|row| row["frame"].as_u64()).collect();
        let marked: std::collections::BTreeSet<u64> = marked.collect();
        // None, when a known answer happens to come right after the first drifted frame, which is in flight then.
        told += usize::from(!drifted.is_empty());
        for frame in drifted {
            assert!(marked.contains(&frame), "frame {frame} has drifted and is not marked: {}", first.why);
        }
    }
    assert!(told > 1, "hardly a run with a drifted result: {told}");
}

#[test]
fn an_echo_that_differs_is_a_fault() {
    let mut line = Line::new();
    line.options.service.echo_every = 10;
    line.options.service.proofs.every = Duration::from_secs(1000);
    line.options.service.proofs.at_most = Duration::from_secs(1000);
    // The fault begins between the two runs over one frame: live calls are counted, the echo is one of them.
    let (outcome, injector) = line.run_with(
        CannedSource::new(),
        edge_trt::run::inject::Fault { at: 10, ..fault(FaultKind::Shift, 1.0, Until::Load) },
    );
    let outcome = outcome.unwrap();
    assert_eq!(outcome.incidents.len(), 1);
    assert!(outcome.incidents[0].what.contains("differs by"), "{:?}", outcome.incidents);
    assert!(injector.begun(0).is_some());
    assert!(line.rows().iter().any(|row| row["reasons"][0] == "echo_differs" && row["trust"] == "fault"));
}

#[test]
fn a_stuck_call_is_noticed_and_the_engine_replaced() {
    let line = Line::new();
    let (outcome, seen_after) = healed(&line, FaultKind::Stuck, 0.8, Until::Never);
    assert_eq!(outcome.incidents[0].steps, [Step::NewContext]);
    assert!((Duration::from_millis(290)..Duration::from_millis(1500)).contains(&seen_after), "{seen_after:?}");
}

#[test]
fn a_call_that_never_comes_back_and_a_lost_device_end_with_seven_or_go_to_the_standby() {
    for (kind, amount) in [(FaultKind::Stuck, 30.0), (FaultKind::DeviceLost, 1.0)] {
        let line = Line::new();
        let (outcome, _) = line.run_with(CannedSource::new(), fault(kind, amount, Until::Device));
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Device, "{}", kind.name());
        let line = Line::new();
        let source = CannedSource { devices: 2, ..CannedSource::new() };
        let (outcome, _) = line.run_with(source, fault(kind, amount, Until::Device));
        assert_eq!(outcome.unwrap().incidents[0].steps, [Step::StandbyDevice], "{}", kind.name());
    }
}

/// Frames that the list of unproven results names, and what it says of each incident.
fn marked(line: &Line) -> (std::collections::BTreeSet<u64>, Vec<String>) {
    let (incidents, broken) = ledger::read(&line.path("state")).unwrap();
    assert_eq!(broken, 0);
    let frames = incidents.iter().flat_map(|incident| &incident.results).filter_map(|result| result.frame);
    (frames.collect(), incidents.iter().map(|incident| incident.why.clone()).collect())
}

#[test]
fn what_a_lost_engine_answered_since_its_last_self_test_is_unproven() {
    let mut line = Line::new();
    line.options.service.proofs.every = Duration::from_secs(1000);
    line.options.service.proofs.at_most = Duration::from_secs(1000);
    line.options.streams[0].delivery = Some(Delivery::Every);
    let source = CannedSource { devices: 2, ..CannedSource::new() };
    let (outcome, _) = line.run_with(source, fault(FaultKind::DeviceLost, 1.0, Until::Device));
    assert_eq!(outcome.unwrap().incidents[0].steps, [Step::StandbyDevice]);
    let (marked, why) = marked(&line);
    let rows = line.rows();
    let of_the_lost = rows.iter().take_while(|row| row["trust"] == "trusted").count();
    assert!(of_the_lost > 0);
    for row in &rows[..of_the_lost] {
        assert!(marked.contains(&row["frame"].as_u64().unwrap()), "{row}");
    }
    let last = rows.last().unwrap()["frame"].as_u64().unwrap();
    assert!(!marked.contains(&last), "what the standby answered was proved at the end");
    assert_eq!(why.len(), 1, "{why:?}");
}

#[test]
fn drift_after_the_last_self_test_is_found_by_the_one_at_the_end() {
    let mut line = Line::new();
    line.options.service.proofs.every = Duration::from_secs(1000);
    line.options.service.proofs.at_most = Duration::from_secs(1000);
    line.options.service.echo_every = 0;
    line.options.streams[0].delivery = Some(Delivery::Every);
    let (outcome, _) = line.run_with(CannedSource::new(), fault(FaultKind::Shift, 3.0, Until::Never));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GuardGaveUp, "{error}");
    assert!(error.message().contains("at the end"), "{error}");
    let (marked, why) = marked(&line);
    assert_eq!(marked.len(), line.rows().len(), "{why:?}");
}

#[test]
fn a_fault_that_stays_ends_with_eight_after_three_rounds() {
    let mut line = Line::new();
    line.options.service.ladder.pause = Duration::from_millis(10);
    let (outcome, _) = line.run_with(CannedSource::new(), fault(FaultKind::Nan, 1.0, Until::Never));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GuardGaveUp, "{error}");
    assert!(line.rows().iter().all(|row| row["trust"] != "trusted" || row["frame"].as_u64().unwrap() < 400));
}

#[test]
fn cameras_that_freeze_vanish_or_hang_are_opened_again_and_the_engine_is_left_alone() {
    for (kind, amount, until) in [
        (FaultKind::Freeze, 1.0, Until::Reopen),
        (FaultKind::Vanish, 1.0, Until::Reopen),
        (FaultKind::CameraStuck, 8.0, Until::Never),
    ] {
        let mut line = Line::new();
        line.options.frames = Some(900);
        let (outcome, _) = line.run_with(CannedSource::new(), fault(kind, amount, until));
        let outcome = outcome.unwrap();
        assert_eq!(outcome.incidents, [], "{}", kind.name());
        let last = line.rows().pop().unwrap();
        assert_eq!(last["trust"], "trusted", "{}: {last}", kind.name());
    }
}
