//! R05, the whole line: camera, lanes, guard, parts, self-tests, sinks. `EDGE_FULL=1` runs 10⁶ frames, else 10⁵.

use crate::counting::live_bytes;
use crate::line::{CannedSource, Line};
use edge_trt::camera::Camera;
use edge_trt::engine::Engine;
use edge_trt::run::depot::Delivery;
use edge_trt::run::source::EngineSource;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Notes the live bytes of this process at every thousandth frame.
struct Weighed {
    inner: CannedSource,
    weights: Arc<Mutex<Vec<i64>>>,
}

struct WeighedCamera {
    inner: Box<dyn Camera>,
    frames: u64,
    weights: Arc<Mutex<Vec<i64>>>,
}

impl Camera for WeighedCamera {
    fn info(&self) -> edge_trt::camera::SourceInfo {
        self.inner.info()
    }

    fn next(&mut self, patience: Duration) -> edge_trt::Result<edge_trt::camera::Capture> {
        self.frames += 1;
        if self.frames.is_multiple_of(1000) {
            self.weights.lock().unwrap().push(live_bytes());
        }
        self.inner.next(patience)
    }
}

impl EngineSource for Weighed {
    fn load(
        &self,
        bundle: &edge_trt::bundle::Bundle,
        score_floor: f32,
        device: usize,
    ) -> edge_trt::Result<Box<dyn Engine>> {
        self.inner.load(bundle, score_floor, device)
    }

    fn fit_camera(&self, stream: &str, camera: Box<dyn Camera>) -> Box<dyn Camera> {
        let inner = self.inner.fit_camera(stream, camera);
        Box::new(WeighedCamera { inner, frames: 0, weights: Arc::clone(&self.weights) })
    }
}

/// In a process of its own, so that no other test's memory is weighed.
#[test]
fn a_long_run_of_the_whole_line_does_not_grow() {
    let own = std::env::current_exe().unwrap();
    let arguments = ["--exact", "r05_whole_line::the_long_run", "--ignored", "--nocapture"];
    let ran = std::process::Command::new(own).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && text.contains("1 passed"), "{text}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{}", text.lines().find(|line| line.contains("least live bytes")).unwrap());
}

#[test]
#[ignore = "run by the test above"]
fn the_long_run() {
    let frames = if std::env::var_os("EDGE_FULL").is_some() { 1_000_000 } else { 100_000 };
    let mut line = Line::new();
    line.options.frames = Some(frames);
    line.options.duration = None;
    line.options.output.file = None;
    line.options.streams[0].delivery = Some(Delivery::Every);
    // The call limit of the other tests is too tight for a machine that does other work for minutes.
    line.options.service.call_limit = Some(Duration::from_secs(20));
    line.options.service.proofs.every = Duration::from_millis(50);
    let weights = Arc::new(Mutex::new(Vec::new()));
    let inner = CannedSource { period: Duration::ZERO, ..CannedSource::new() };
    let outcome = line.run(Arc::new(Weighed { inner, weights: Arc::clone(&weights) })).unwrap();
    assert_eq!(outcome.incidents, []);
    assert_eq!(outcome.results.values().sum::<u64>(), frames);
    let weights = weights.lock().unwrap();
    // The ledger between two self-tests and the waiting rows go up and down; their least level must not rise.
    let quarter = weights.len() / 4;
    let least = |part: usize| *weights[part * quarter..(part + 1) * quarter].iter().min().unwrap();
    let (early, late) = (least(1), least(3));
    println!("{frames} frames: least live bytes {early} in the second quarter, {late} in the last");
    assert!(late - early < 64 * 1024, "{early} → {late} bytes, by thousands of frames: {weights:?}");
}
