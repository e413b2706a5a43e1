//! The pages with made-up streams, to look at them without a camera: `cargo run --example pages_demo [ADDRESS]`.
//!
//! Five stations: one that passes and rejects, one suspect, one in fault, one whose camera is lost, one with a hostile name.

use edge_trt::decision::Decision;
use edge_trt::detections::Detection;
use edge_trt::engine::{EngineTimings, MemoryFigures};
use edge_trt::frame::{Frame, Picture};
use edge_trt::guard::{Reason, Trust};
use edge_trt::sinks::Sink;
use edge_trt::sinks::http::{Board, HttpOptions, Phase, Server, StreamSetup};
use edge_trt::sinks::row::{EngineStamp, Row};
use edge_trt::telemetry::{Labels, Metric, Telemetry};
use edge_trt::units::{BoxPx, Bytes, SizePx};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const SIZE: SizePx = SizePx::new(960, 540);

fn main() -> edge_trt::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned()).parse()?;
    let only: Option<usize> = arguments.next().and_then(|count| count.parse().ok());
    let names = ["press-left", "press-right", "paint-1", "weld-3", "<b>\"lab\"</b> & 实验"];
    let names = &names[..only.unwrap_or(names.len()).min(names.len())];
    let setup = |name: &&str| StreamSetup { name: (*name).into(), continuous: true, has_rule: !name.starts_with('<') };
    let board = Board::new(names.iter().map(setup).collect());
    let telemetry = Telemetry::new();
    let options = HttpOptions { listen, ..HttpOptions::default() };
    let server = Server::start(options, Arc::clone(&board), Arc::clone(&telemetry))?;
    for line in server.iter().flat_map(Server::start_lines) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    let started = Instant::now();
    let mut sink = board.sink();
    for number in 0.. {
        board.heartbeat();
        board.set_phase(if started.elapsed() < Duration::from_secs(1) { Phase::Proving } else { Phase::Ready });
        for (station, name) in names.iter().enumerate() {
            if station == 3 && number > 10 {
                board.source_lost(name, "/dev/video3: no such device");
                continue;
            }
            board.frame_arrived(name);
            sink.put(&row(name, station, number))?;
            if number % 37 == 0 {
                telemetry.count(Metric::FramesDropped, Labels::stream(name).because("newer"));
            }
        }
        std::thread::sleep(Duration::from_millis(66));
    }
    Ok(())
}

fn row(name: &str, station: usize, number: u64) -> Row {
    let offset = (number * 7 % 480) as f32;
    let plate = BoxPx::new(120.0 + offset, 135.0, 390.0 + offset, 405.0);
    let scratch = BoxPx::new(225.0 + offset, 248.0, 270.0 + offset, 293.0);
    let bad = number / 40 % 4 == 3;
    let (trust, reasons) = match station {
        1 => (Trust::Suspect, vec![Reason::Blurred, Reason::Shifted]),
        2 => (Trust::Fault, vec![Reason::Nan]),
        _ => (Trust::Trusted, vec![]),
    };
    let decision = match (station, bad) {
        (4, _) => None,
        (0 | 3, false) => Some(Decision::Pass),
        (0 | 3, true) => Some(Decision::Reject),
        _ => Some(Decision::NotInspected),
    };
    let mut detections = vec![found(0, 0.94, plate)];
    if bad || station == 1 {
        detections.push(found(1, 0.71, scratch));
    }
    let frame = Frame {
        stream: name.into(),
        number,
        captured_at: Some(SystemTime::now()),
        arrived: Instant::now(),
        source: None,
        part: None,
        picture: picture(plate, (bad || station == 1).then_some(scratch)),
    };
    Row {
        stream: name.into(),
        number: Some(number),
        captured_at: frame.captured_at,
        source: None,
        trust,
        reasons,
        observed: if station == 4 { vec![Reason::LowContrast] } else { vec![] },
        standing: Default::default(),
        decision,
        part: Some(format!("P{:05}", number / 40).into()),
        proved_at: Some(SystemTime::now() - Duration::from_secs(95)),
        detections: Some(detections),
        boxes_before_nms: 41,
        timings: EngineTimings { preprocess_ms: 3.1, transfer_ms: 0.0, inference_ms: 41.7, postprocess_ms: 0.6 },
        age_ms: 47.0 + (number % 9) as f64,
        memory: MemoryFigures { allocated: Bytes::mib(61), peak: Bytes::mib(64), reserved: Bytes::mib(72) },
        engine: Arc::new(EngineStamp {
            bundle: "plates".to_owned(),
            sha256: "5f1c9e0a77b24c1d".repeat(4),
            backend: "rten 0.27.0".to_owned(),
            classes: vec!["plate".to_owned(), "scratch".to_owned()].into(),
            device: None,
            product: None,
            label: None,
        }),
        frame: Some(Arc::new(frame)),
    }
}

fn found(class_id: u32, score: f32, edges: BoxPx) -> Detection {
    Detection { class_id, score, edges, unclipped: edges }
}

/// A grey belt with a steel plate, and a scratch where there is one.
fn picture(plate: BoxPx, scratch: Option<BoxPx>) -> Picture {
    let mut pixels = vec![0; SIZE.pixels() * 3];
    for (position, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((position % 960) as f32, (position / 960) as f32);
        let inside = |area: &BoxPx| x > area.left_px && x < area.right_px && y > area.top_px && y < area.bottom_px;
        let belt = 52 + ((x as u32 / 30) % 2 * 4) as u8;
        let color = match (scratch.as_ref().is_some_and(inside), inside(&plate)) {
            (true, _) if ((x - y) as i32).rem_euclid(18) < 4 => [70, 62, 60],
            (_, true) => [150 + (y as u32 / 18 % 8) as u8, 156, 162],
            _ => [belt, belt, belt + 4],
        };
        pixel.copy_from_slice(&color);
    }
    Picture::rgb(SIZE, pixels)
}
