//! Letterbox and decode + NMS on one core: `cargo bench --bench engine`. `tools/bench_letterbox.py` times OpenCV and NumPy.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench program")]

use criterion::{Criterion, criterion_group, criterion_main};
use edge_trt::detections::{Detector, Thresholds};
use edge_trt::engine::candidates::{CAP, Elements, RawTensor, Scratch, Wanted, extract};
use edge_trt::engine::letterbox::Filler;
use edge_trt::engine::{Candidates, Layout, Letterbox};
use edge_trt::frame::{Picture, PixelFormat};
use edge_trt::units::SizePx;
use std::hint::black_box;

const INPUT: SizePx = SizePx::new(640, 640);

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn letterbox(criterion: &mut Criterion) {
    let size = SizePx::new(1920, 1080);
    let mut target = vec![0.0_f32; 3 * INPUT.pixels()];
    for format in [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Nv12, PixelFormat::Yuyv] {
        let stride_bytes = format.row_bytes(size.width_px);
        let pixels = noise(format.picture_bytes(size, stride_bytes)).into();
        let picture = Picture { size, stride_bytes, format, pixels };
        let letterbox = Letterbox::fit(size, INPUT);
        let mut filler = Filler::new();
        criterion.bench_function(&format!("letterbox 1920x1080 {format:?}"), |bencher| {
            bencher.iter(|| filler.fill(black_box(&picture), &letterbox, 3, &mut target).unwrap());
        });
    }
}

/// `[1, 84, 8400]` with `boxes` anchors above 0.25, in clusters of overlapping boxes.
fn head(boxes: usize) -> Vec<f32> {
    let random = noise(84 * 8400);
    let mut values: Vec<f32> = random.iter().map(|&byte| f32::from(byte) / 2550.0).collect();
    for (anchor, seed) in (0..8400).zip(&random) {
        let cluster = anchor * 31 % 40;
        values[anchor] = (cluster % 8) as f32 * 80.0 + f32::from(*seed) / 32.0;
        values[8400 + anchor] = (cluster / 8) as f32 * 120.0 + f32::from(*seed) / 64.0;
        values[2 * 8400 + anchor] = 40.0;
        values[3 * 8400 + anchor] = 40.0;
    }
    for at in 0..boxes {
        values[(4 + at % 80) * 8400 + at * 8400 / boxes.max(1)] = 0.3 + 0.6 * at as f32 / boxes as f32;
    }
    values
}

fn decode_and_nms(criterion: &mut Criterion) {
    let layout = Layout::Raw { output: "output0".into(), classes: 80, anchors: 8400 };
    let names: Vec<String> = (0..80).map(|class| format!("c{class}")).collect();
    let letterbox = Letterbox::fit(SizePx::new(1920, 1080), INPUT);
    for boxes in [0, 100, 1000, 8400] {
        let values = head(boxes);
        let mut detector = Detector::new(&Thresholds::default(), &names).unwrap();
        let (mut scratch, mut candidates, mut detections) = (Scratch::default(), Candidates::default(), Vec::new());
        criterion.bench_function(&format!("decode + NMS [1, 84, 8400], {boxes} candidates"), |bencher| {
            bencher.iter(|| {
                let tensor = RawTensor { name: "output0", shape: &[1, 84, 8400], elements: Elements::F32(&values) };
                let wanted = Wanted { picture: 0, floor: 0.25, cap: CAP };
                let stats = extract(&[black_box(tensor)], &layout, wanted, &mut scratch, &mut candidates).unwrap();
                detector.detect(&candidates, &letterbox, &layout, &mut detections);
                (stats.boxes_before_nms, detections.len())
            });
        });
    }
}

criterion_group!(benches, letterbox, decode_and_nms);
criterion_main!(benches);
