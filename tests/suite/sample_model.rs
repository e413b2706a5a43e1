//! The sample model on the simulated line: what it is sold as must be true on frames that it has never seen.
//! `EDGE_FULL=1` looks at 1,000 frames and 1,000 parts instead of 200 and 100.

use crate::common::score::Score;
use edge_trt::build::{Options, prepare};
use edge_trt::camera::sim::{FrameTruth, Line, SimOptions};
use edge_trt::config::Recipe;
use edge_trt::detections::{Detection, Detector};
use edge_trt::engine::cpu::{self, CpuBackend, CpuOptions};
use edge_trt::engine::{Engine, Inference, Letterbox};
use edge_trt::frame::{Frame, Picture};
use edge_trt::onnx::Model;
use std::path::Path;

struct Sample {
    recipe: Recipe,
    engine: Box<dyn Engine>,
    detector: Detector,
    answers: Vec<Inference>,
    network_ms: f64,
    runs: f64,
}

impl Sample {
    fn load() -> Sample {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sample");
        let recipe = Recipe::read(&folder).unwrap();
        let prepared = prepare(Model::read(&recipe.model).unwrap(), &Options::default()).unwrap();
        let options = CpuOptions { backend: CpuBackend::Rten, threads: Some(1), ..CpuOptions::default() };
        let engine = cpu::load(
            &prepared.model_bytes,
            &prepared.input,
            &prepared.layout,
            prepared.classes.clone().into(),
            recipe.thresholds.lowest_score(),
            &options,
        )
        .unwrap();
        let detector = Detector::new(&recipe.thresholds, &prepared.classes).unwrap();
        assert_eq!(prepared.classes, edge_trt::camera::sim::CLASSES);
        Sample { recipe, engine, detector, answers: Vec::new(), network_ms: 0.0, runs: 0.0 }
    }

    fn look(&mut self, options: &SimOptions, truth: &FrameTruth, pixels: Vec<u8>) -> Vec<Detection> {
        let frame = Frame::new("line", truth.frame, Picture::rgb(options.size, pixels));
        self.answers.clear();
        self.engine.infer(&[&frame], &mut self.answers).unwrap();
        let layout = self.engine.info().layout.clone();
        let letterbox = Letterbox::fit(options.size, self.engine.info().input.size);
        let answer = &self.answers[0];
        self.network_ms += answer.timings.preprocess_ms + answer.timings.inference_ms + answer.timings.postprocess_ms;
        self.runs += 1.0;
        let mut found = Vec::new();
        self.detector.detect(&answer.candidates, &letterbox, &layout, &mut found);
        found
    }
}

fn full() -> bool {
    std::env::var("EDGE_FULL").is_ok_and(|value| value == "1")
}

#[test]
fn finds_what_is_there_on_frames_it_has_never_seen() {
    let mut sample = Sample::load();
    let options = SimOptions::parse("sim:?seed=90001&script=training").unwrap();
    let mut line = Line::new(&options).unwrap();
    let mut score = Score::default();
    for _ in 0..if full() { 1000 } else { 200 } {
        let mut truth = line.advance();
        for _ in 1..23 {
            truth = line.advance();
        }
        let mut pixels = vec![0; line.picture_bytes()];
        line.picture(&mut pixels);
        let found = sample.look(&options, &truth, pixels);
        score.add(&truth, &found);
    }
    eprintln!(
        "{} right, {} missed, {} wrong: precision {:.4}, recall {:.4}; {:.1} ms a frame on one thread",
        score.right,
        score.missed,
        score.wrong,
        score.precision(),
        score.recall(),
        sample.network_ms / sample.runs
    );
    let mistakes = || score.mistakes.join("\n");
    assert!(score.precision() >= 0.95, "precision {:.4}\n{}", score.precision(), mistakes());
    assert!(score.recall() >= 0.95, "recall {:.4}\n{}", score.recall(), mistakes());
}

#[test]
fn parts_of_both_products_are_told_apart_in_full_and_in_fading_light() {
    let mut sample = Sample::load();
    let rejecting: Vec<String> = sample.recipe.decision.as_ref().unwrap().reject.keys().cloned().collect();
    let script = std::env::temp_dir().join(format!("edge-sample-{}.toml", std::process::id()));
    std::fs::write(
        &script,
        "name = 'both'\nproduct = 'mixed'\ndefects = 0.3\nrepeat_after_s = 120\n\
         [[event]]\nkind = 'light_down'\nat_s = 20\nfor_s = 100\nto = 0.8\n",
    )
    .unwrap();
    let options = SimOptions::parse(&format!("sim:?seed=90002&script={}", script.display())).unwrap();
    std::fs::remove_file(&script).unwrap();
    let mut line = Line::new(&options).unwrap();
    let (mut good, mut bad, mut good_rejected, mut bad_passed) = (0u32, 0u32, Vec::new(), Vec::new());
    while good + bad < if full() { 1000 } else { 100 } {
        let truth = line.advance();
        let Some(part) = truth.part.clone() else { continue };
        let mut pixels = vec![0; line.picture_bytes()];
        line.picture(&mut pixels);
        let found = sample.look(&options, &truth, pixels);
        let classes = edge_trt::camera::sim::CLASSES;
        let rejected = found.iter().any(|found| rejecting.iter().any(|name| name == classes[found.class_id as usize]));
        *(if part.defective { &mut bad } else { &mut good }) += 1;
        match (part.defective, rejected) {
            (true, false) => bad_passed.push(format!("{part:?} {found:?}")),
            (false, true) => good_rejected.push(format!("{part:?} {found:?}")),
            _ => {}
        }
    }
    eprintln!("{good} good parts, {} rejected; {bad} bad parts, {} passed", good_rejected.len(), bad_passed.len());
    assert!(bad >= 20 && good >= 20);
    assert!(bad_passed.len() as f64 <= 0.05 * f64::from(bad), "{}", bad_passed.join("\n"));
    assert!(good_rejected.len() as f64 <= 0.05 * f64::from(good), "{}", good_rejected.join("\n"));
}
