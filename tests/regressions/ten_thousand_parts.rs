//! Exactly one decision a part through the whole run (threads, lanes, deadlines, recovery, file of results), with a healthy
//! engine and with one that fails in every way. `EDGE_FULL=1`: 10,000 parts each instead of 500.

use crate::line::{CannedSource, Line, fault, write_bundle};
use edge_trt::bundle::Bundle;
use edge_trt::camera::{Camera, Capture, SourceInfo, SourceKind};
use edge_trt::decision::{DecisionRule, RejectRule};
use edge_trt::engine::Engine;
use edge_trt::error::Result;
use edge_trt::frame::{Frame, PartTag, Picture, StreamName};
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::EngineSource;
use edge_trt::units::SizePx;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Canned engines, and a camera with a light barrier: every second picture is of a part.
struct PartSource {
    engines: CannedSource,
    parts: u64,
}

impl EngineSource for PartSource {
    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        self.engines.load(bundle, score_floor, device)
    }

    fn fit_camera(&self, stream: &str, _camera: Box<dyn Camera>) -> Box<dyn Camera> {
        Box::new(PartCamera { stream: stream.into(), number: 0, parts: self.parts })
    }
}

struct PartCamera {
    stream: StreamName,
    number: u64,
    parts: u64,
}

impl Camera for PartCamera {
    fn info(&self) -> SourceInfo {
        SourceInfo {
            description: "a camera with a light barrier".into(),
            kind: SourceKind::Live,
            related_frames: true,
            triggers: true,
            frames: Some(2 * self.parts),
        }
    }

    fn next(&mut self, _patience: Duration) -> Result<Capture> {
        if self.number == 2 * self.parts {
            return Ok(Capture::End);
        }
        std::thread::sleep(Duration::from_micros(if self.number.is_multiple_of(400) { 50_000 } else { 1_000 }));
        let size = SizePx::new(32, 24);
        let seed = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pixels = (0..3 * 32 * 24_u64).map(|at| 40 + (at % 96) as u8 + (seed.rotate_left(at as u32) & 63) as u8);
        let part = self.number.is_multiple_of(2).then(|| format!("part-{}", self.number / 2));
        let frame = Frame {
            stream: Arc::clone(&self.stream),
            number: self.number,
            captured_at: Some(SystemTime::now()),
            arrived: Instant::now(),
            source: None,
            part: part.map(|id| PartTag { id: id.into(), deadline: None }),
            picture: Picture::rgb(size, pixels.collect()),
        };
        self.number += 1;
        Ok(Capture::Frame(Arc::new(frame)))
    }
}

/// Runs `parts` parts with these faults; decision → parts, after checking that every part has exactly one.
fn run(parts: u64, faults: Vec<Fault>) -> BTreeMap<String, u64> {
    let mut line = Line::new();
    let rule = DecisionRule {
        reject: BTreeMap::from([("hole".to_owned(), RejectRule::default())]),
        deadline_ms: Some(250.0),
        ..DecisionRule::default()
    };
    write_bundle(&line.options.bundle, 0.0, |manifest| manifest.decision = Some(rule));
    line.options.frames = None;
    line.options.streams[0].triggered = true;
    line.options.duration = Some(Duration::from_secs(400));
    let injector = Injector::new(Plan { faults });
    let source = PartSource { engines: CannedSource::new(), parts };
    line.run(Injected::over(Arc::new(source), injector)).unwrap();

    let mut decisions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in line.rows() {
        match (row["part"].as_str(), row["decision"].as_str()) {
            (Some(part), Some(decision)) => {
                assert!(row["trust"] != "fault" || decision == "not_inspected", "{row}");
                decisions.entry(part.to_owned()).or_default().push(decision.to_owned());
            }
            (None, None) => {}
            _ => panic!("a part without a decision, or a decision without a part: {row}"),
        }
    }
    let several: Vec<_> = decisions.iter().filter(|(_, seen)| seen.len() != 1).collect();
    assert!(several.is_empty(), "decided more than once: {several:?}");
    let missing: Vec<_> = (0..parts).filter(|part| !decisions.contains_key(&format!("part-{part}"))).collect();
    assert!(missing.is_empty(), "{} parts were never decided: {:?}", missing.len(), &missing[..missing.len().min(20)]);
    assert_eq!(u64::try_from(decisions.len()).unwrap(), parts);
    let mut counts = BTreeMap::new();
    for seen in decisions.into_values() {
        *counts.entry(seen[0].clone()).or_insert(0) += 1;
    }
    counts
}

fn parts() -> u64 {
    if std::env::var_os("EDGE_FULL").is_some() { 10_000 } else { 500 }
}

#[test]
fn every_part_is_decided_exactly_once() {
    let counts = run(parts(), Vec::new());
    eprintln!("{} parts: {counts:?}", parts());
    assert!(counts.keys().all(|decision| decision == "reject" || decision == "not_inspected"), "{counts:?}");
    assert!(counts["reject"] > parts() / 2, "{counts:?}");
}

#[test]
fn every_part_is_decided_exactly_once_while_faults_are_injected() {
    let at = |share: u64| 2 * parts() * share / 100;
    let faults = vec![
        Fault { at: at(5), frames: 1, ..fault(FaultKind::Nan, 1.0, Until::Frames) },
        Fault { at: at(20), frames: 1, ..fault(FaultKind::Swapped, 1.0, Until::Frames) },
        Fault { at: at(30), ..fault(FaultKind::Error, 1.0, Until::Load) },
        Fault { at: at(45), ..fault(FaultKind::OutOfMemory, 1.0, Until::Open) },
        Fault { at: at(55), frames: 30, ..fault(FaultKind::Slow, 0.02, Until::Frames) },
    ];
    let counts = run(parts(), faults);
    eprintln!("{} parts under faults: {counts:?}", parts());
    assert!(counts["reject"] > parts() / 10 && counts["not_inspected"] > 0, "{counts:?}");
}
