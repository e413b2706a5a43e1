//! Graphs of constants: types, shapes and values at the border of the network.

use crate::backends::{Backend, all, open};
use crate::common::graphs::{self, Output, Type};
use edge_trt::engine::cpu::CpuBackend;
use edge_trt::engine::{Candidate, ElementType, Inference, InputSpec, Layout};
use edge_trt::frame::{Frame, Picture, PixelFormat};
use edge_trt::units::{BoxPx, SizePx};
use edge_trt::{ErrorKind, Result};

/// A frame with this picture.
pub(crate) fn frame(number: u64, picture: Picture) -> Frame {
    Frame::new("cam0", number, picture)
}

fn input(element: ElementType, side_px: u32) -> InputSpec {
    InputSpec { name: "images".into(), batch: 1, channels: 3, size: SizePx::new(side_px, side_px), element }
}

/// What [`graphs::tiles`] takes and gives.
pub(crate) fn tiles_spec() -> (InputSpec, Layout) {
    (input(ElementType::F32, 64), Layout::Raw { output: "output0".into(), classes: 1, anchors: 16 })
}

fn raw_layout(classes: u32, anchors: u32) -> Layout {
    Layout::Raw { output: "output0".into(), classes, anchors }
}

fn gray_frame(side_px: u32) -> Frame {
    let size = SizePx::new(side_px, side_px);
    frame(7, Picture::rgb(size, vec![90; 3 * size.pixels()]))
}

fn answer(backend: &Backend, model: &[u8], input: &InputSpec, layout: &Layout, classes: &[&str]) -> Result<Inference> {
    let mut engine = open(model, input, layout, classes, backend.cpu)?;
    let mut answers = Vec::new();
    engine.infer(&[&gray_frame(64)], &mut answers)?;
    assert_eq!(answers.len(), 1);
    Ok(answers.remove(0))
}

fn assert_box(backend: &Backend, found: &[Candidate], expected: Candidate) {
    assert_eq!(found.len(), 1, "{backend:?}");
    assert_eq!((found[0].anchor, found[0].class_id), (expected.anchor, expected.class_id), "{backend:?}");
    assert!((found[0].score - expected.score).abs() <= backend.score, "{backend:?}: {found:?}");
    for (found, expected) in <[f32; 4]>::from(found[0].edges).into_iter().zip(<[f32; 4]>::from(expected.edges)) {
        assert!((found - expected).abs() <= backend.edge_px, "{backend:?}: {found} {expected}");
    }
}

const BOX: [f32; 6] = [32.0, 32.0, 10.0, 6.0, 0.9, 1.0];

fn the_box() -> Candidate {
    Candidate { anchor: 0, class_id: 1, score: 0.9, edges: BoxPx::new(27.0, 29.0, 37.0, 35.0) }
}

#[test]
fn a_box_comes_through() {
    let model = graphs::constant(Type::F32, [1, 3, 64, 64], vec![graphs::raw_head(2, 84, &[BOX])]);
    for backend in all() {
        let found = answer(&backend, &model, &input(ElementType::F32, 64), &raw_layout(2, 84), &["a", "b"]).unwrap();
        assert_box(&backend, &found.candidates.boxes, the_box());
        assert_eq!(found.tag.number, 7);
        assert_eq!((found.stats.values, found.stats.nan), (6 * 84, 0));
    }
}

#[test]
fn sixteen_bit_borders_are_read_as_such() {
    let head = graphs::raw_head(2, 84, &[BOX]).of(Type::F16);
    let model = graphs::constant(Type::F16, [1, 3, 64, 64], vec![head]);
    for backend in all() {
        let loose = Backend { score: 3e-4, ..backend };
        let found = answer(&backend, &model, &input(ElementType::F16, 64), &raw_layout(2, 84), &["a", "b"]).unwrap();
        assert_box(&loose, &found.candidates.boxes, the_box());
    }
}

#[test]
fn eight_bit_input_is_fed_with_bytes() {
    let model = graphs::constant(Type::U8, [1, 3, 64, 64], vec![graphs::raw_head(2, 84, &[BOX])]);
    for backend in all() {
        let found = answer(&backend, &model, &input(ElementType::U8, 64), &raw_layout(2, 84), &["a", "b"]).unwrap();
        assert_box(&backend, &found.candidates.boxes, the_box());
    }
}

#[test]
fn a_type_or_shape_other_than_the_bundles_is_refused_at_load() {
    let half = graphs::constant(Type::F16, [1, 3, 64, 64], vec![graphs::raw_head(2, 84, &[BOX])]);
    let full = graphs::constant(Type::F32, [1, 3, 64, 64], vec![graphs::raw_head(2, 84, &[BOX])]);
    let cases: [(&[u8], ElementType, Layout, &[&str]); 5] = [
        (&half, ElementType::F32, raw_layout(2, 84), &["a", "b"]),
        (&full, ElementType::U8, raw_layout(2, 84), &["a", "b"]),
        (&full, ElementType::F32, raw_layout(3, 84), &["a", "b", "c"]),
        (&full, ElementType::F32, raw_layout(2, 8400), &["a", "b"]),
        (&full, ElementType::F32, raw_layout(2, 84), &["a"]),
    ];
    for backend in all() {
        for (model, element, layout, classes) in &cases {
            let refused = open(model, &input(*element, 64), layout, classes, backend.cpu);
            assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Refused), "{layout:?}");
        }
        let other_size = open(&full, &input(ElementType::F32, 96), &raw_layout(2, 84), &["a", "b"], backend.cpu);
        assert!(other_size.is_err());
    }
}

#[test]
fn not_a_number_and_infinity_are_counted() {
    let mut head = graphs::raw_head(2, 84, &[BOX]);
    head.values[4 * 84 + 9] = f32::NAN;
    head.values[2 * 84 + 3] = f32::INFINITY;
    head.values[4 * 84 + 3] = 0.9;
    let model = graphs::constant(Type::F32, [1, 3, 64, 64], vec![head]);
    for backend in all() {
        let found = answer(&backend, &model, &input(ElementType::F32, 64), &raw_layout(2, 84), &["a", "b"]).unwrap();
        assert_eq!((found.stats.nan, found.stats.infinite), (1, 1), "{backend:?}");
        assert_box(&backend, &found.candidates.boxes, the_box());
    }
}

#[test]
fn end_to_end_rows() {
    let mut rows = vec![0.0; 6 * 300];
    rows[..6].copy_from_slice(&[10.0, 20.0, 30.0, 40.0, 0.9, 1.0]);
    let layout = Layout::EndToEnd { output: "output0".into(), classes: 2, rows: 300 };
    for (class, boxes, bad) in [(1.0, 1, 0), (399.01, 0, 1)] {
        rows[5] = class;
        let output = Output::new("output0", &[1, 300, 6], rows.clone());
        let model = graphs::constant(Type::F32, [1, 3, 64, 64], vec![output]);
        for backend in all() {
            let found = answer(&backend, &model, &input(ElementType::F32, 64), &layout, &["a", "b"]).unwrap();
            assert_eq!(found.candidates.boxes.len(), boxes, "{backend:?}");
            assert_eq!(found.stats.class_ids_out_of_range, bad, "{backend:?}");
            assert!(!found.stats.all_zero);
        }
    }
}

#[test]
fn the_plugins_four_outputs() {
    let outputs = vec![
        Output::new("num_dets", &[1, 1], vec![3.0]).of(Type::I32),
        Output::new("det_boxes", &[1, 100, 4], vec![50.0; 400]),
        Output::new("det_scores", &[1, 100], vec![0.8; 100]),
        Output::new("det_classes", &[1, 100], vec![0.0; 100]).of(Type::I32),
    ];
    let model = graphs::constant(Type::F32, [1, 3, 64, 64], outputs);
    let layout = Layout::NmsPlugin {
        count: "num_dets".into(),
        boxes: "det_boxes".into(),
        scores: "det_scores".into(),
        class_ids: "det_classes".into(),
        classes: 2,
        rows: 100,
    };
    for backend in all() {
        let found = answer(&backend, &model, &input(ElementType::F32, 64), &layout, &["a", "b"]).unwrap();
        assert_eq!(found.candidates.boxes.len(), 3, "{backend:?}");
        assert_eq!(found.stats.counts_out_of_range, 0);
    }
}

/// A picture whose tiles have known red levels, in every pixel format, plain and quantised.
#[test]
fn the_picture_reaches_the_network() {
    let size = SizePx::new(64, 64);
    let level = |x: usize, y: usize| (16 * (y / 16 * 4 + x / 16)) as u8;
    let rgb = (0..64 * 64).flat_map(|at| [level(at % 64, at / 64), 1, 2]).collect();
    let bgr = (0..64 * 64).flat_map(|at| [2, 1, level(at % 64, at / 64)]).collect::<Vec<u8>>();
    let pictures =
        [Picture::rgb(size, rgb), Picture { size, stride_bytes: 192, format: PixelFormat::Bgr8, pixels: bgr.into() }];
    let (input, layout) = tiles_spec();
    for backend in all() {
        for quantised in [false, true] {
            let mut engine = open(&graphs::tiles(quantised), &input, &layout, &["a"], backend.cpu).unwrap();
            engine.set_score_floor(0.0);
            for picture in &pictures {
                let copy = Picture { pixels: picture.pixels.as_slice().to_vec().into(), ..*picture };
                let mut answers = Vec::new();
                engine.infer(&[&frame(0, copy)], &mut answers).unwrap();
                let boxes = &answers[0].candidates.boxes;
                assert_eq!(boxes.len(), 16);
                for candidate in boxes {
                    let exact = 16.0 * candidate.anchor as f32 / 255.0;
                    let step = if quantised { 0.5 / 127.0 } else { 0.0 };
                    assert!((candidate.score - exact).abs() <= step + 1e-5, "{backend:?}: {candidate:?} {exact}");
                }
            }
        }
    }
}

#[test]
fn runs_repeat_exactly_and_threads_change_nothing() {
    let (input, layout) = tiles_spec();
    for backend in all() {
        let mut engine = open(&graphs::tiles(false), &input, &layout, &["a"], backend.cpu).unwrap();
        let mut answers = Vec::new();
        for _ in 0..3 {
            engine.infer(&[&gray_frame(64)], &mut answers).unwrap();
            let spent = answers[0].clone();
            engine.recycle(spent);
        }
        assert!(answers.iter().all(|answer| answer.candidates == answers[0].candidates));
    }
}

#[test]
fn a_torn_picture_is_refused_and_the_next_one_answered() {
    let (input, layout) = tiles_spec();
    for backend in all() {
        let mut engine = open(&graphs::tiles(false), &input, &layout, &["a"], backend.cpu).unwrap();
        let mut torn = gray_frame(64);
        torn.picture.pixels = vec![0; 100].into();
        let mut answers = Vec::new();
        let error = engine.infer(&[&torn], &mut answers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("cam0"), "{error}");
        assert!(answers.is_empty());
        engine.infer(&[&gray_frame(64)], &mut answers).unwrap();
        assert_eq!(answers.len(), 1);
    }
}

#[test]
fn a_model_that_loads_and_cannot_run_is_refused_at_load() {
    let (input, layout) = tiles_spec();
    for backend in all() {
        let refused = open(&graphs::tiles_reshaped(false, 17), &input, &layout, &["a"], backend.cpu);
        assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Refused), "{backend:?}");
    }
}

#[test]
fn damaged_models_are_errors() {
    let model = graphs::tiles(true);
    let (input, layout) = tiles_spec();
    for backend in all() {
        for length in (0..model.len()).step_by(37) {
            let _ = open(&model[..length], &input, &layout, &["a"], backend.cpu).err().unwrap();
        }
    }
}

#[test]
fn auto_takes_what_is_there() {
    let (input, layout) = tiles_spec();
    let engine = open(&graphs::tiles(false), &input, &layout, &["a"], CpuBackend::Auto).unwrap();
    let expected = if all().len() > 1 { "onnxruntime" } else { "rten" };
    assert!(engine.info().backend.starts_with(expected), "{}", engine.info().backend);
    assert!(engine.memory().allocated.0 > 0);
}

/// ONNX Runtime refuses half scales around a concatenation (seen with 1.32): rten runs the graph where either may.
#[test]
fn auto_falls_back_to_rten_for_half_scales_around_a_concatenation() {
    let model = graphs::half_scales_around_a_concatenation();
    let (input, layout) = (input(ElementType::F32, 64), raw_layout(2, 84));
    let scores = |backend: CpuBackend| {
        let mut engine = open(&model, &input, &layout, &["a", "b"], backend).unwrap();
        let mut answers = Vec::new();
        engine.infer(&[&gray_frame(64)], &mut answers).unwrap();
        let boxes = &answers[0].candidates.boxes;
        assert!(!boxes.is_empty(), "the picture itself is the answer");
        (engine.info().backend.clone(), boxes.iter().map(|found| found.score).fold(0.0, f32::max))
    };
    let (name, score) = scores(CpuBackend::Auto);
    assert!((score - 90.0 / 255.0).abs() < 0.01, "{score}");
    if all().len() > 1 {
        let refused = open(&model, &input, &layout, &["a", "b"], CpuBackend::OnnxRuntime);
        match refused {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Refused);
                assert!(error.to_string().contains("QLinearConcat"), "{error}");
                assert!(name.starts_with("rten"), "{name}");
                assert_eq!(scores(CpuBackend::Rten), (name, score));
            }
            // A version that takes it must answer alike.
            Ok(_) => assert!((scores(CpuBackend::OnnxRuntime).1 - score).abs() < 0.01),
        }
    }
}
