//! R04: is there room for two engines while one replaces the other? Asked before anything is loaded; where there is none, the new
//! bundle is refused or the line stands still for it, said aloud, and the old one is never lost.

use crate::line::{CannedSource, Line, write_bundle};
use crate::r04_reload::{Running, line, refused};
use edge_trt::decision::DecisionRule;
use edge_trt::run::Settled;
use edge_trt::run::depot::Delivery;
use edge_trt::units::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Engines of 4096 bytes each.
fn source(room: u64) -> (CannedSource, Arc<AtomicI64>) {
    let source = CannedSource { room: Some(Bytes(room)), ..CannedSource::new() };
    let most = Arc::clone(&source.most_live);
    (source, most)
}

fn with_gap() -> Line {
    let mut line = line();
    line.options.service.reload.gap = true;
    line
}

fn does_not_fit(settled: Settled) -> String {
    match settled {
        Settled::DoesNotFit(why) => why,
        other => panic!("expected no room, found {other:?}"),
    }
}

/// Bundle ids in the order in which they answered, each once in a row; every row is trusted.
fn who_answered(line: &Line) -> Vec<String> {
    let rows = line.rows();
    let untrusted = rows.iter().find(|row| row["trust"] != "trusted");
    assert!(untrusted.is_none(), "{untrusted:?}");
    let mut ids: Vec<String> = rows.iter().map(|row| row["engine"]["sha256"].as_str().unwrap().to_owned()).collect();
    ids.dedup();
    ids
}

#[test]
fn with_room_for_two_the_new_one_is_loaded_beside() {
    let (source, most) = source(8192);
    let running = Running::start(line(), source);
    running.put(0.2, |_| {});
    assert!(matches!(running.reload(), Settled::Swapped(_)));
    assert_eq!(most.load(Ordering::SeqCst), 2);
    running.wait_for("the end of the probation", || running.live.load(Ordering::SeqCst) == 1);
    let (line, outcome) = running.end();
    assert_eq!((outcome.incidents.len(), who_answered(&line).len()), (0, 2));
}

#[test]
fn without_room_for_two_it_is_refused_with_both_figures_and_may_be_tried_again() {
    let (source, most) = source(8191);
    let running = Running::start(line(), source);
    running.put(0.2, |manifest| manifest.name = "newer".into());
    for _ in 0..2 {
        let why = does_not_fit(running.reload());
        for word in ["no room for both", "`line1` 4", "`newer` 4", "take 8", "--reload-gap"] {
            assert!(why.contains(word), "{word}: {why}");
        }
    }
    assert_eq!(most.load(Ordering::SeqCst), 1, "nothing is loaded to find out");
    let (line, outcome) = running.end();
    assert_eq!((outcome.incidents.len(), who_answered(&line).len()), (0, 1));
}

#[test]
fn where_the_line_may_stand_still_the_new_one_takes_the_place_and_the_old_one_can_come_back() {
    let (source, most) = source(8191);
    let running = Running::start(with_gap(), source);
    running.put(0.2, |_| {});
    let Settled::SwappedWithGap { id, gap } = running.reload() else { panic!() };
    assert!(gap > Duration::ZERO && gap < Duration::from_secs(10), "{gap:?}");
    let kept = running.line.path("state").join("last_good.edge");
    running.wait_for("the copy of the one before", || kept.is_file());
    std::thread::sleep(Duration::from_millis(150));
    // A person may go back, and takes the gap along.
    assert!(matches!(running.next(|| running.door.ask_rollback()), Settled::RolledBack(_)));
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(most.load(Ordering::SeqCst), 1, "never two at a time");
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents, []);
    let answered = who_answered(&line);
    assert_eq!((answered.len(), &answered[1], &answered[0]), (3, &id, &answered[2]));
}

/// What arrives while nobody answers is answered afterwards, and too late to pass.
#[test]
fn while_the_line_stands_still_every_frame_has_its_row_and_none_passes_late() {
    let rule =
        DecisionRule { expect: [("hole".to_owned(), 2)].into(), deadline_ms: Some(150.0), ..DecisionRule::default() };
    let mut line = with_gap();
    write_bundle(&line.options.bundle, 0.0, |manifest| manifest.decision = Some(rule.clone()));
    line.options.streams[0].delivery = Some(Delivery::Every);
    let source = CannedSource { load_time: Duration::from_millis(500), ..source(8191).0 };
    let running = Running::start(line, source);
    running.put(0.2, |manifest| manifest.decision = Some(rule));
    let Settled::SwappedWithGap { gap, .. } = running.reload() else { panic!() };
    assert!(gap >= Duration::from_millis(500), "{gap:?}");
    std::thread::sleep(Duration::from_millis(600));
    let (line, _) = running.end();
    assert_eq!(who_answered(&line).len(), 2);
    let rows = line.rows();
    let numbers: Vec<u64> = rows.iter().map(|row| row["frame"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "every frame has its row");
    let late = |row: &&serde_json::Value| row["timings_ms"]["age"].as_f64().unwrap() > 160.0;
    assert!(rows.iter().filter(late).count() > 0, "frames waited for the new engine");
    for row in rows.iter().filter(late) {
        assert_eq!(row["decision"], "not_inspected", "{row}");
    }
    assert!(rows.iter().any(|row| row["decision"] == "pass"));
}

#[test]
fn a_bundle_that_does_not_work_after_the_gap_gives_the_old_one_back() {
    // It cannot be loaded; it does not give its known answers.
    for (bias, word) in [(2000.0, "cannot be loaded"), (0.2, "not a number")] {
        let (source, most) = source(8191);
        let source = CannedSource { spoilt: Some((0.2, Arc::new(AtomicBool::new(true)))), ..source };
        let running = Running::start(with_gap(), source);
        running.put(bias, |_| {});
        let why = refused(running.reload());
        assert!(why.contains(word) && why.contains("nobody answered for"), "{why}");
        assert!(refused(running.reload()).contains("has failed before"));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(most.load(Ordering::SeqCst), 1);
        let (line, outcome) = running.end();
        assert_eq!((outcome.incidents.len(), who_answered(&line).len()), (0, 1));
    }
}

#[test]
fn a_fault_soon_after_a_gap_brings_the_old_one_back_and_one_later_does_not() {
    let mut line = with_gap();
    line.options.service.reload.probation = Duration::from_secs(60);
    let source = CannedSource { bad: Some((0.2, 25)), ..source(8191).0 };
    let running = Running::start(line, source);
    running.put(0.2, |_| {});
    assert!(matches!(running.reload(), Settled::SwappedWithGap { .. }));
    running.wait_for("the rollback", || matches!(running.door.settled().1, Some(Settled::RolledBack(_))));
    assert!(refused(running.reload()).contains("has failed before"));
    std::thread::sleep(Duration::from_millis(100));
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
    let rows = line.rows();
    assert_eq!(rows[0]["engine"]["sha256"], rows[rows.len() - 1]["engine"]["sha256"]);
    assert_eq!(rows[rows.len() - 1]["trust"], "trusted");
}

#[test]
fn what_does_not_fit_alone_never_costs_the_running_engine() {
    let (source, most) = source(4095);
    let running = Running::start(with_gap(), source);
    running.put(0.2, |_| {});
    let why = does_not_fit(running.reload());
    assert!(why.contains("1 bundles take"), "{why}");
    assert_eq!(most.load(Ordering::SeqCst), 1);
    let (line, _) = running.end();
    assert_eq!(who_answered(&line).len(), 1);
}

#[test]
fn a_bundle_waits_for_the_end_of_the_probation_when_that_takes_the_room() {
    let mut line = line();
    line.options.service.reload.probation = Duration::from_millis(1200);
    let (source, most) = source(8192);
    let running = Running::start(line, source);
    running.put(0.2, |_| {});
    assert!(matches!(running.reload(), Settled::Swapped(_)));
    let since = Instant::now();
    running.put(0.3, |_| {});
    assert!(matches!(running.reload(), Settled::Swapped(_)));
    assert!(since.elapsed() > Duration::from_millis(900), "{:?}", since.elapsed());
    assert_eq!(most.load(Ordering::SeqCst), 2, "never three");
    running.wait_for("the end of the probation", || running.live.load(Ordering::SeqCst) == 1);
    running.end();
}

#[test]
fn it_is_said_at_the_start() {
    for (room, gap, said) in [
        (8192, false, None),
        (8191, false, Some("is refused; `--reload-gap`")),
        (8191, true, Some("the line stands still while another bundle")),
    ] {
        let mut line = line();
        line.options.service.reload.gap = gap;
        line.options.frames = Some(3);
        let mut lines = Vec::new();
        let source = Arc::new(source(room).0);
        let stop = edge_trt::run::stop::StopFlag::default();
        edge_trt::run::start_with(&line.options, source, &stop, &mut |line| lines.push(line.to_owned())).unwrap();
        let found = lines.iter().find(|line| line.starts_with("reload: "));
        match said {
            None => assert_eq!(found, None),
            Some(said) => assert!(found.is_some_and(|line| line.contains(said)), "{found:?}"),
        }
    }
}
