//! R05: memory grows over hours. After the first frames nothing is allocated between the picture and its detections.

use crate::counting::allocations;
use edge_trt::detections::{Detector, Thresholds};
use edge_trt::engine::candidates::{CAP, Elements, RawTensor, Scratch, Wanted, extract};
use edge_trt::engine::canned::{CannedEngine, identity_box};
use edge_trt::engine::letterbox::Filler;
use edge_trt::engine::{Candidates, Engine, Layout, Letterbox};
use edge_trt::frame::{Frame, Picture};
use edge_trt::units::SizePx;

fn frame(number: u64, size: SizePx) -> Frame {
    Frame::new("cam0", number, Picture::rgb(size, vec![100; 3 * size.pixels()]))
}

#[test]
fn a_hundred_thousand_frames_allocate_nothing() {
    let boxes = (0..20).map(|number| identity_box("cam0", number)).collect();
    let mut engine = CannedEngine::fixed(&["part"], SizePx::new(64, 64), boxes);
    let mut detector = Detector::new(&Thresholds::default(), &["part".to_owned()]).unwrap();
    let mut frame = frame(0, SizePx::new(2, 2));
    let (mut answers, mut detections) = (Vec::new(), Vec::new());
    let mut after_warmup = 0;
    for number in 0..100_000 {
        frame.number = number;
        engine.infer(&[&frame], &mut answers).unwrap();
        let answer = answers.pop().unwrap();
        detector.detect(&answer.candidates, &answer.letterbox, &engine.info().layout, &mut detections);
        assert_eq!(answer.tag.number, number);
        engine.recycle(answer);
        if number == 10 {
            after_warmup = allocations();
        }
    }
    assert_eq!(allocations(), after_warmup);
}

#[test]
fn letterbox_and_candidates_allocate_nothing() {
    let frame = frame(0, SizePx::new(96, 54));
    let letterbox = Letterbox::fit(frame.picture.size, SizePx::new(64, 64));
    let layout = Layout::Raw { output: "output0".into(), classes: 2, anchors: 84 };
    let mut target = vec![0.0_f32; 3 * 64 * 64];
    let mut filler = Filler::new();
    let (mut scratch, mut candidates) = (Scratch::default(), Candidates::default());
    let values = vec![0.5; 6 * 84];
    let mut after_warmup = 0;
    for round in 0..100 {
        filler.fill(&frame.picture, &letterbox, 3, &mut target).unwrap();
        let tensor = RawTensor { name: "output0", shape: &[1, 6, 84], elements: Elements::F32(&values) };
        let wanted = Wanted { picture: 0, floor: 0.25, cap: CAP };
        extract(&[tensor], &layout, wanted, &mut scratch, &mut candidates).unwrap();
        if round == 1 {
            after_warmup = allocations();
        }
    }
    assert_eq!(allocations(), after_warmup);
}
