//! R08: answers never belong to another stream's frame. The engine encodes each frame's identity in its answer.

use edge_trt::engine::Engine;
use edge_trt::engine::canned::{CannedAnswer, CannedEngine, identity_box};
use edge_trt::frame::{Frame, Picture};
use edge_trt::guard::picture::PictureStats;
use edge_trt::run::depot::{Batch, Delivery, Depot, Next, Sight, Wanted, Work};
use edge_trt::run::host::Host;
use edge_trt::units::SizePx;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

fn frame(stream: &str, number: u64) -> Frame {
    Frame::new(stream, number, Picture::rgb(SizePx::new(2, 2), vec![0; 12]))
}

#[test]
fn sixteen_streams_keep_their_answers() {
    const FRAMES: u64 = 200;
    let (send, receive) = sync_channel::<Arc<Frame>>(8);
    let cameras: Vec<_> = (0..16_u64)
        .map(|camera| {
            let send = send.clone();
            std::thread::spawn(move || {
                for number in 0..FRAMES {
                    if (number * 7 + camera) % 31 == 0 {
                        std::thread::sleep(Duration::from_micros(50 * camera));
                    }
                    send.send(Arc::new(frame(&format!("cam{camera}"), number))).unwrap();
                }
            })
        })
        .collect();
    drop(send);
    let mut engine = CannedEngine::identifying(&["part"], SizePx::new(64, 64)).with_batch(4);
    let mut answered = 0;
    let mut answers = Vec::new();
    while let Ok(first) = receive.recv() {
        let mut batch = vec![first];
        batch.extend(receive.try_iter().take(3));
        let frames: Vec<&Frame> = batch.iter().map(AsRef::as_ref).collect();
        engine.infer(&frames, &mut answers).unwrap();
        for (frame, answer) in batch.iter().zip(answers.drain(..)) {
            assert_eq!(answer.tag, frame.tag());
            assert_eq!(answer.candidates.boxes, [identity_box(&frame.stream, frame.number)]);
            answered += 1;
        }
    }
    cameras.into_iter().for_each(|camera| camera.join().unwrap());
    assert_eq!(answered, 16 * FRAMES);
}

/// One line of streams, batches and lanes, as drawn by chance.
#[derive(Debug, Clone)]
struct Drawn {
    batch: u32,
    lanes: usize,
    /// Frames and the pause between two of them, in microseconds, for each stream.
    streams: Vec<(u64, u64)>,
    /// Times that a frame takes in the engine, in microseconds, taken in turn.
    delays: Vec<u64>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let streams = prop::collection::vec((1..40_u64, 0..400_u64), 1..9);
    (1..9_u32, 1..4_usize, streams, prop::collection::vec(0..300_u64, 1..20))
        .prop_map(|(batch, lanes, streams, delays)| Drawn { batch, lanes, streams, delays })
}

fn push_all(depot: &Depot, lane: usize, frames: u64, pause: Duration) {
    for number in 0..frames {
        let frame = Arc::new(frame(&format!("cam{lane}"), number));
        let stats = Box::new(PictureStats::measure(&frame.picture));
        let work = Work {
            number,
            captured_at: None,
            source: None,
            arrived: Instant::now(),
            part: None,
            picture: Sight::Frame(frame, stats),
        };
        depot.push(lane, Box::new(work), || true);
        std::thread::sleep(pause);
    }
    depot.end(lane);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the batch, the lanes and the delays: each frame gets its own answer, once, and in order within its stream.
    #[test]
    fn answers_stay_with_their_frames_in_batches_in_flight(drawn in drawn()) {
        let delays = drawn.delays.clone();
        let script = move |call: u64, frame: &Frame, answer: &mut CannedAnswer| {
            answer.candidates.clear();
            answer.candidates.push(identity_box(&frame.stream, frame.number));
            answer.delay = Duration::from_micros(delays[call as usize % delays.len()]);
        };
        let engine = CannedEngine::scripted(&["part"], SizePx::new(64, 64), Box::new(script))
            .with_batch(drawn.batch)
            .with_lanes(drawn.lanes);
        let limit = Duration::from_secs(20);
        let mut host = Host::start(Box::new(move || Ok(Box::new(engine))), limit, &|| {}).unwrap();
        let depot = Arc::new(Depot::new(&vec![Delivery::Every; drawn.streams.len()]));
        let nudged = Arc::clone(&depot);
        host.rings(Arc::new(move || nudged.nudge(0)));
        let mut next_number = vec![0; drawn.streams.len()];
        std::thread::scope(|scope| {
            for (lane, &(frames, pause)) in drawn.streams.iter().enumerate() {
                let depot = &depot;
                scope.spawn(move || push_all(depot, lane, frames, Duration::from_micros(pause)));
            }
            let mut flights: VecDeque<(u64, Batch)> = VecDeque::new();
            let mut batch = Batch::new();
            loop {
                let most = if host.has_room() { host.batch() } else { 0 };
                let wanted = Wanted { most, wait: Duration::from_micros(200), busy: !flights.is_empty() };
                match depot.next(0, wanted, Duration::from_millis(50), &mut batch) {
                    Next::Batch(_) => {
                        let taken = std::mem::take(&mut batch);
                        assert!(taken.len() <= drawn.batch as usize);
                        let frames = taken.iter().map(|(_, work)| match &work.picture {
                            Sight::Frame(frame, _) => Arc::clone(frame),
                            other => panic!("{other:?}"),
                        });
                        let ticket = host.submit(frames.collect()).unwrap();
                        flights.push_back((ticket, taken));
                    }
                    Next::Over => break,
                    Next::Nudged | Next::Nothing => {}
                }
                while let Some(answered) = host.collect(limit) {
                    let (ticket, taken) = flights.pop_front().unwrap();
                    assert_eq!((answered.ticket, answered.answers.len()), (ticket, taken.len()));
                    for ((lane, work), answer) in taken.into_iter().zip(answered.answers) {
                        let answer = answer.unwrap();
                        let stream = format!("cam{lane}");
                        assert_eq!((&*answer.tag.stream, answer.tag.number), (stream.as_str(), work.number));
                        assert_eq!(answer.candidates.boxes, [identity_box(&stream, work.number)]);
                        assert_eq!(work.number, next_number[lane], "{stream}");
                        next_number[lane] += 1;
                    }
                }
            }
        });
        let expected: Vec<u64> = drawn.streams.iter().map(|(frames, _)| *frames).collect();
        prop_assert_eq!(next_number, expected);
    }
}
