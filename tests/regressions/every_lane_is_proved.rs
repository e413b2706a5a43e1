//! An engine with two runs in flight: a fault in one lane alone is found at the start, and by the next self-test in service.

use crate::line::{Line, engine, small_pictures};
use edge_trt::bundle::Bundle;
use edge_trt::camera::Camera;
use edge_trt::engine::canned::CannedEngine;
use edge_trt::engine::{Engine, EngineInfo, Inference, MemoryFigures};
use edge_trt::error::Result;
use edge_trt::frame::Frame;
use edge_trt::run::ledger;
use edge_trt::run::source::EngineSource;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const LANES: usize = 2;
/// The lane that moves its boxes by 3 px once `drifts` is set.
const BAD: usize = 1;

struct LaneDrifts {
    engine: CannedEngine,
    drifts: Arc<AtomicBool>,
    /// Live frames until `drifts` sets itself.
    after: Arc<AtomicU64>,
}

impl Engine for LaneDrifts {
    fn info(&self) -> &EngineInfo {
        self.engine.info()
    }
    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        self.engine.infer(frames, answers)
    }
    fn lanes(&self) -> usize {
        LANES
    }
    fn begin(&mut self, lane: usize, frames: &[&Frame]) -> Result<()> {
        if &*frames[0].stream != "golden" && self.after.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.drifts.store(true, Ordering::SeqCst);
        }
        self.engine.begin(lane, frames)
    }
    fn finish(&mut self, lane: usize, answers: &mut Vec<Inference>) -> Result<()> {
        self.engine.finish(lane, answers)?;
        if lane == BAD && self.drifts.load(Ordering::SeqCst) {
            for candidate in answers.iter_mut().flat_map(|answer| &mut answer.candidates.boxes) {
                candidate.edges.left_px += 3.0;
                candidate.edges.right_px += 3.0;
            }
        }
        Ok(())
    }
    fn memory(&self) -> MemoryFigures {
        self.engine.memory()
    }
    fn set_score_floor(&mut self, score_floor: f32) {
        self.engine.set_score_floor(score_floor);
    }
}

struct Lanes {
    drifts: Arc<AtomicBool>,
    after: Arc<AtomicU64>,
}

impl Lanes {
    fn drifting(from_the_start: bool, after: u64) -> Arc<Self> {
        Arc::new(Lanes { drifts: Arc::new(from_the_start.into()), after: Arc::new(after.into()) })
    }
}

impl EngineSource for Lanes {
    fn load(&self, _bundle: &Bundle, score_floor: f32, _device: usize) -> Result<Box<dyn Engine>> {
        let mut engine = engine(0.0).with_lanes(LANES);
        engine.set_score_floor(score_floor);
        let (drifts, after) = (Arc::clone(&self.drifts), Arc::clone(&self.after));
        Ok(Box::new(LaneDrifts { engine, drifts, after }))
    }

    fn fit_camera(&self, stream: &str, _camera: Box<dyn Camera>) -> Box<dyn Camera> {
        small_pictures(stream, Duration::from_millis(1))
    }
}

fn line() -> Line {
    let mut line = Line::new();
    line.options.service.echo_every = 0;
    line.options.service.proofs.every = Duration::from_millis(100);
    line
}

#[test]
fn a_lane_that_lies_from_the_start_never_serves() {
    let error = line().run(Lanes::drifting(true, u64::MAX)).unwrap_err();
    assert!(error.to_string().contains("known answer"), "{error}");
}

#[test]
fn a_lane_that_drifts_in_service_is_found_by_the_next_self_test() {
    let mut line = line();
    line.options.frames = Some(20_000);
    line.options.duration = None;
    // Drifts for good: whatever the ladder brings up is refused, and the line ends.
    let ended = line.run(Lanes::drifting(false, 50));
    assert!(ended.is_err(), "{ended:?}");
    let (incidents, _) = ledger::read(&line.path("state")).unwrap();
    let first = &incidents[0];
    assert!(first.why.contains("known answer"), "{}", first.why);
    assert!(!first.results.is_empty());
    let last = line.rows().iter().rposition(|row| row["trust"] == "trusted").unwrap();
    assert!(last < 15_000, "found within the interval, not at the end: {last}");
}
