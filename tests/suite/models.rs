//! Trained networks: every backend gives the same detections.

use crate::backends::{all, open};
use crate::cases::frame;
use crate::common::shared;
use edge_trt::camera::pictures::decode;
use edge_trt::engine::{Candidate, ElementType, InputSpec, Layout};
use edge_trt::units::SizePx;
use std::path::Path;

const CLASSES: [&str; 6] = ["open", "short", "mousebite", "spur", "copper", "pin-hole"];

fn candidates(model: &[u8], backend: &crate::backends::Backend, pictures: &[&Path]) -> Vec<Vec<Candidate>> {
    let size = SizePx::new(640, 640);
    let input = InputSpec { name: "images".into(), batch: 1, channels: 3, size, element: ElementType::F32 };
    let layout = Layout::Raw { output: "output0".into(), classes: 6, anchors: 8400 };
    let mut engine = open(model, &input, &layout, &CLASSES, backend.cpu).unwrap();
    let mut answers = Vec::new();
    for (number, picture) in (0..).zip(pictures) {
        engine.infer(&[&frame(number, decode(picture).unwrap())], &mut answers).unwrap();
    }
    answers.into_iter().map(|answer| answer.candidates.boxes).collect()
}

#[test]
fn backends_agree_on_trained_networks() {
    let Some(shared) = shared() else { return };
    let backends = all();
    let images = shared.join("data/pcb/val/images");
    let pictures = [images.join("00041200.jpg"), images.join("00041201.jpg")];
    let pictures: Vec<&Path> = pictures.iter().map(AsRef::as_ref).collect();
    for name in ["pcb-yolov8n", "pcb-yolo11n", "pcb-yolo26n", "pcb-yolov10n"] {
        let model = std::fs::read(shared.join(format!("models/{name}.onnx"))).unwrap();
        let answers: Vec<_> = backends.iter().map(|backend| candidates(&model, backend, &pictures)).collect();
        assert!(answers[0].iter().all(|boxes| !boxes.is_empty()), "{name}: no candidate at all");
        for (backend, other) in backends.iter().zip(&answers).skip(1) {
            for (mine, theirs) in answers[0].iter().zip(other) {
                let mut by_anchor: Vec<&Candidate> = theirs.iter().collect();
                by_anchor.sort_by_key(|candidate| candidate.anchor);
                for candidate in mine.iter().filter(|candidate| candidate.score >= 0.05) {
                    let at = by_anchor.binary_search_by_key(&candidate.anchor, |other| other.anchor);
                    let twin = by_anchor[at.unwrap_or_else(|_| panic!("{name}: {candidate:?} is missing"))];
                    let apart = (candidate.score - twin.score).abs();
                    assert!(apart <= backend.network_score, "{name}: {candidate:?} {twin:?}");
                    let edges = <[f32; 4]>::from(candidate.edges).into_iter().zip(<[f32; 4]>::from(twin.edges));
                    for (mine, theirs) in edges {
                        assert!((mine - theirs).abs() <= backend.network_edge_px, "{name}: {candidate:?} {twin:?}");
                    }
                }
            }
        }
    }
}
