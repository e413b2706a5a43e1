//! Tests of the host with canned engines.

use super::*;
use crate::engine::canned::{CannedAnswer, CannedEngine};
use crate::frame::Picture;
use crate::units::SizePx;

fn frame(number: u64) -> Arc<Frame> {
    Arc::new(Frame::new("cam", number, Picture::rgb(SizePx::new(2, 2), vec![0; 12])))
}

fn host(script: crate::engine::canned::Script) -> Host {
    let engine = CannedEngine::scripted(&["a"], SizePx::new(64, 64), script);
    Host::start(Box::new(move || Ok(Box::new(engine))), Duration::from_secs(5), &|| {}).unwrap()
}

#[test]
fn a_stuck_call_comes_back_later_and_its_answer_is_dropped() {
    let mut host = host(Box::new(|call, _, answer: &mut CannedAnswer| {
        answer.delay = Duration::from_millis(if call == 0 { 120 } else { 0 });
    }));
    let limit = Duration::from_millis(20);
    assert!(matches!(host.call(frame(0), None, limit, &|| {}), Err(Trouble::Stuck(_))));
    assert!(matches!(host.call(frame(1), None, limit, &|| {}), Err(Trouble::Stuck(_))), "still stuck");
    assert!(host.comes_back(Duration::from_secs(5), &|| {}));
    assert_eq!(host.call(frame(2), None, Duration::from_secs(5), &|| {}).unwrap().tag.number, 2);
    assert!(host.close(Duration::from_secs(5)));
}

#[test]
fn an_engine_that_panics_is_an_error_and_not_the_end() {
    let mut host = host(Box::new(|_, _, _: &mut CannedAnswer| panic!("on purpose")));
    assert!(matches!(host.call(frame(0), None, Duration::from_secs(5), &|| {}), Err(Trouble::Failed(_))));
    assert!(matches!(host.call(frame(1), None, Duration::from_secs(5), &|| {}), Err(Trouble::Failed(_))));
}

#[test]
fn a_loader_that_fails_or_never_ends_is_an_error() {
    let failing: Loader = Box::new(|| Err(Error::refused("no")));
    assert_eq!(Host::start(failing, Duration::from_secs(5), &|| {}).unwrap_err().kind(), ErrorKind::Refused);
    let stuck: Loader = Box::new(|| {
        std::thread::sleep(Duration::from_secs(1));
        Err(Error::refused("late"))
    });
    assert_eq!(Host::start(stuck, Duration::from_millis(50), &|| {}).unwrap_err().kind(), ErrorKind::Device);
}

fn batch_host(batch: u32, lanes: usize, run: Duration) -> Host {
    let engine = CannedEngine::identifying(&["a"], SizePx::new(64, 64));
    let engine = engine.with_batch(batch).with_lanes(lanes).with_run_time(run);
    Host::start(Box::new(move || Ok(Box::new(engine))), Duration::from_secs(5), &|| {}).unwrap()
}

const LONG: Duration = Duration::from_secs(20);

fn collect(host: &mut Host) -> Answered {
    let since = Instant::now();
    loop {
        if let Some(answered) = host.collect(LONG) {
            return answered;
        }
        assert!(since.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn numbers(answered: &Answered) -> Vec<Option<u64>> {
    answered.answers.iter().map(|answer| answer.as_ref().ok().map(|answer| answer.tag.number)).collect()
}

#[test]
fn batches_come_back_in_order_with_a_call_between_them() {
    for lanes in [1, 2, 3] {
        let mut host = batch_host(4, lanes, Duration::from_millis(3));
        assert_eq!((host.batch(), host.lanes()), (4, lanes));
        let mut sent = Vec::new();
        while host.has_room() {
            let first = 10 * sent.len() as u64;
            sent.push(host.submit(vec![frame(first), frame(first + 1)]).unwrap());
        }
        assert_eq!(sent.len(), lanes);
        assert_eq!(host.call(frame(999), Some(0.5), LONG, &|| {}).unwrap().tag.number, 999);
        assert_eq!(host.in_flight(), lanes, "answers wait to be collected");
        for (number, ticket) in sent.into_iter().enumerate() {
            let answered = collect(&mut host);
            assert_eq!(answered.ticket, ticket);
            let first = 10 * number as u64;
            assert_eq!(numbers(&answered), [Some(first), Some(first + 1)]);
        }
        assert!(host.collect(LONG).is_none());
    }
}

#[test]
fn a_bad_picture_does_not_spoil_the_answers_of_others_and_an_error_spoils_all() {
    for lanes in [1, 2] {
        let script = |_, frame: &Frame, answer: &mut CannedAnswer| match frame.number {
            7 => *answer = CannedAnswer::failing(ErrorKind::Refused, "no such picture"),
            8 => *answer = CannedAnswer::failing(ErrorKind::Budget, "no memory"),
            _ => {}
        };
        let engine = CannedEngine::scripted(&["a"], SizePx::new(64, 64), Box::new(script));
        let engine = engine.with_batch(4).with_lanes(lanes);
        let mut host = Host::start(Box::new(move || Ok(Box::new(engine))), LONG, &|| {}).unwrap();
        host.submit(vec![frame(6), frame(7), frame(9)]).unwrap();
        assert_eq!(numbers(&collect(&mut host)), [Some(6), None, Some(9)], "{lanes} lanes");
        host.submit(vec![frame(6), frame(8), frame(9)]).unwrap();
        assert_eq!(numbers(&collect(&mut host)), [None, None, None], "{lanes} lanes");
        host.submit(vec![frame(10)]).unwrap();
        assert_eq!(numbers(&collect(&mut host)), [Some(10)], "{lanes} lanes");
    }
}

#[test]
fn a_stuck_batch_takes_those_behind_it_along_and_none_is_lost() {
    let script = |_, frame: &Frame, answer: &mut CannedAnswer| {
        answer.delay = Duration::from_millis(if frame.number == 0 { 150 } else { 0 });
    };
    let engine = CannedEngine::scripted(&["a"], SizePx::new(64, 64), Box::new(script)).with_batch(2).with_lanes(2);
    let mut host = Host::start(Box::new(move || Ok(Box::new(engine))), LONG, &|| {}).unwrap();
    let limit = Duration::from_millis(30);
    host.submit(vec![frame(0), frame(1)]).unwrap();
    host.submit(vec![frame(2)]).unwrap();
    assert!(host.collect(limit).is_none());
    std::thread::sleep(limit + Duration::from_millis(10));
    let stuck = host.collect(limit).unwrap();
    assert!(matches!(stuck.answers[..], [Err(Trouble::Stuck(_)), Err(Trouble::Stuck(_))]), "{stuck:?}");
    assert!(matches!(host.collect(limit).unwrap().answers[..], [Err(Trouble::GivenUp)]));
    assert!(!host.has_room());
    assert!(matches!(host.submit(vec![frame(3)]), Err(Trouble::Stuck(_))));
    assert!(host.comes_back(LONG, &|| {}));
    host.submit(vec![frame(4)]).unwrap();
    assert_eq!(numbers(&collect(&mut host)), [Some(4)]);
}

#[test]
fn what_is_given_up_is_told_by_ticket_and_never_answered() {
    let mut host = batch_host(2, 2, Duration::from_millis(20));
    let first = host.submit(vec![frame(0), frame(1)]).unwrap();
    let second = host.submit(vec![frame(2)]).unwrap();
    host.give_up();
    for (ticket, frames) in [(first, 2), (second, 1)] {
        let answered = host.collect(LONG).unwrap();
        assert_eq!((answered.ticket, answered.answers.len()), (ticket, frames));
        assert!(answered.answers.iter().all(|answer| matches!(answer, Err(Trouble::GivenUp))));
    }
    let third = host.submit(vec![frame(3)]).unwrap();
    let answered = collect(&mut host);
    assert_eq!((answered.ticket, numbers(&answered)), (third, vec![Some(3)]));
}

#[test]
fn two_lanes_are_kept_busy() {
    const RUNS: u32 = 40;
    let run = Duration::from_millis(5);
    let mut host = batch_host(1, 2, run);
    let since = Instant::now();
    let mut begun = 0;
    let mut ended = 0;
    while ended < RUNS {
        while host.has_room() && begun < RUNS {
            host.submit(vec![frame(u64::from(begun))]).unwrap();
            begun += 1;
        }
        if let Some(answered) = host.collect(LONG) {
            assert_eq!(numbers(&answered), [Some(u64::from(ended))]);
            ended += 1;
            // What is done with the answers does not hold the engine up: the next run is in its lane already.
            std::thread::sleep(Duration::from_millis(1));
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let idle = since.elapsed().saturating_sub(run * RUNS);
    assert!(idle < run * RUNS / 2, "the device was idle for {idle:?} of {:?}", since.elapsed());
}
