//! N01: a 16-bit or 8-bit border read as 32-bit floats gives absurd boxes. Types come from the model; the suite repeats
//! this for every backend.

use crate::common::graphs::{Type, constant, raw_head};
use edge_trt::engine::cpu::{CpuBackend, CpuOptions, load};
use edge_trt::engine::{ElementType, Inference, InputSpec, Layout};
use edge_trt::frame::{Frame, Picture};
use edge_trt::units::SizePx;

fn answer(graph: Type, output: Type, element: ElementType) -> Inference {
    let head = raw_head(2, 84, &[[32.0, 32.0, 10.0, 6.0, 0.875, 1.0]]).of(output);
    let model = constant(graph, [1, 3, 64, 64], vec![head]);
    let size = SizePx::new(64, 64);
    let input = InputSpec { name: "images".into(), batch: 1, channels: 3, size, element };
    let layout = Layout::Raw { output: "output0".into(), classes: 2, anchors: 84 };
    let options = CpuOptions { backend: CpuBackend::Rten, threads: Some(1), ..CpuOptions::default() };
    let classes = ["a".to_owned(), "b".to_owned()].into();
    let mut engine = load(&model, &input, &layout, classes, 0.25, &options).unwrap();
    let frame = Frame::new("cam0", 0, Picture::rgb(size, vec![200; 3 * size.pixels()]));
    let mut answers = Vec::new();
    engine.infer(&[&frame], &mut answers).unwrap();
    answers.remove(0)
}

#[test]
fn every_border_type_gives_the_same_box() {
    let expected = answer(Type::F32, Type::F32, ElementType::F32);
    assert_eq!(expected.candidates.boxes.len(), 1);
    for (graph, output, element) in [(Type::F16, Type::F16, ElementType::F16), (Type::U8, Type::F32, ElementType::U8)] {
        let found = answer(graph, output, element);
        assert_eq!(found.candidates, expected.candidates, "{element:?}");
        assert_eq!(found.stats, expected.stats, "{element:?}");
    }
}
