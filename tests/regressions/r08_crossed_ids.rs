//! R08: answers never belong to another stream's frame. The engine encodes each frame's identity in its answer.

use edge_trt::engine::Engine;
use edge_trt::engine::canned::{CannedEngine, identity_box};
use edge_trt::frame::{Frame, Picture};
use edge_trt::units::SizePx;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

fn frame(stream: &str, number: u64) -> Frame {
    Frame {
        stream: stream.into(),
        number,
        captured_at: None,
        arrived: Instant::now(),
        source: None,
        part: None,
        picture: Picture::rgb(SizePx::new(2, 2), vec![0; 12]),
    }
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
