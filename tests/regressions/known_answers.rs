//! Issue 6, proofs of the second level across restarts: what the engine answered at its first good proof on this machine binds
//! it at every later start, and a file that is damaged is set aside, never fatal and never believed.

use crate::line::{CannedSource, Line, engine};
use edge_trt::bundle::Bundle;
use edge_trt::camera::Camera;
use edge_trt::engine::Engine;
use edge_trt::error::{ErrorKind, Result};
use edge_trt::run::source::EngineSource;
use std::path::PathBuf;
use std::sync::Arc;

/// Engines that answer `by_px` beside those of the bundle: far within the build's own tolerance of 5 px.
struct Drifted {
    inner: CannedSource,
    by_px: f32,
}

impl EngineSource for Drifted {
    fn load(&self, _bundle: &Bundle, score_floor: f32, _device: usize) -> Result<Box<dyn Engine>> {
        let mut engine = engine(self.by_px);
        engine.set_score_floor(score_floor);
        Ok(Box::new(engine))
    }

    fn fit_camera(&self, stream: &str, camera: Box<dyn Camera>) -> Box<dyn Camera> {
        self.inner.fit_camera(stream, camera)
    }
}

fn run(line: &Line, by_px: f32) -> Result<()> {
    line.run(Arc::new(Drifted { inner: CannedSource::new(), by_px })).map(drop)
}

fn known(line: &Line) -> Vec<PathBuf> {
    let files = std::fs::read_dir(line.path("state/known")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn an_engine_that_has_drifted_between_two_starts_is_refused_until_a_person_removes_the_file() {
    let mut line = Line::new();
    line.options.frames = Some(20);
    run(&line, 0.0).unwrap();
    let first = known(&line);
    assert_eq!(first.len(), 1);
    let kept = std::fs::read(&first[0]).unwrap();
    // The same engine, and one that differs by less than half a pixel.
    run(&line, 0.0).unwrap();
    run(&line, 0.4).unwrap();
    assert_eq!(std::fs::read(&first[0]).unwrap(), kept, "the first answers stay the measure");
    for by_px in [0.6, 1.0, 3.0] {
        let error = run(&line, by_px).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let text = error.to_string();
        assert!(text.contains("this machine's own first answer") && text.contains("remove "), "{text}");
    }
    std::fs::remove_file(&first[0]).unwrap();
    run(&line, 1.0).unwrap();
    assert!(run(&line, 0.0).is_err(), "now the other one is the measure");
    // Without a state folder nothing binds.
    line.options.service.state = None;
    run(&line, 0.0).unwrap();
}

#[test]
fn a_damaged_file_is_set_aside_and_the_answers_are_learnt_anew() {
    let mut line = Line::new();
    line.options.frames = Some(20);
    run(&line, 0.0).unwrap();
    let path = known(&line).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for damaged in [&whole[..whole.len() / 2], &flipped, b""] {
        std::fs::write(&path, damaged).unwrap();
        // Never believed: an engine that would fail against the whole file starts, held to the build's answers alone.
        run(&line, 1.0).unwrap();
        let files = known(&line);
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(files[1].to_string_lossy().ends_with(".json.aside"), "{files:?}");
        assert!(run(&line, 0.0).is_err(), "its answers are the measure now");
        std::fs::remove_file(&files[1]).unwrap();
    }
}
