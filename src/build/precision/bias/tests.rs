//! A head with boxes and two classes, whose scores have sunk.

use super::*;
use crate::build::pictures::pixel_hash;
use crate::build::precision::usable::{Usable, UsablePicture};
use crate::build::watcher::Silent;
use crate::engine::cpu::{CpuBackend, CpuOptions};
use crate::engine::{ElementType, InputSpec, Layout};
use crate::onnx::node::make;
use crate::onnx::samples::{Sample, value};
use crate::onnx::shapes;
use crate::onnx::tensor::DataType;
use crate::units::SizePx;

const SIZE: SizePx = SizePx::new(8, 8);
const CLASS_BIAS: [f32; 2] = [-0.5, -1.0];

/// picture → stem → boxes (`box_channels`) and scores (2), side by side → boxes and the sigmoid of scores.
fn network(batch: i64, box_channels: i64, class_bias: [f32; 2]) -> Model {
    let conv = |name: &str, inputs: &[&str], output: &str| {
        let attributes =
            vec![make::ints("dilations", &[1, 1]), make::ints("pads", &[0, 0, 0, 0]), make::ints("strides", &[1, 1])];
        make::node("Conv", name, inputs, &[output], attributes)
    };
    let nodes = vec![
        conv("stem", &["images", "stem_weight"], "stem_out"),
        conv("boxes", &["stem_out", "boxes_weight"], "boxes_out"),
        conv("scores", &["stem_out", "scores_weight", "scores_bias"], "scores_out"),
        make::node("Concat", "all", &["boxes_out", "scores_out"], &["all_out"], vec![make::int("axis", 1)]),
        make::node("Split", "parts", &["all_out", "sizes"], &["box_part", "score_part"], vec![make::int("axis", 1)]),
        make::node("Sigmoid", "sigmoid", &["score_part"], &["score"], vec![]),
        make::node("Concat", "answer", &["box_part", "score"], &["output0"], vec![make::int("axis", 1)]),
    ];
    let out = [batch, box_channels + 2, 8, 8];
    let mut sample = Sample::new(&[batch, 3, 8, 8], nodes, vec![value("output0", DataType::F32, &out)]);
    let boxes = vec![0.5; usize::try_from(box_channels).unwrap() * 2];
    sample.weights = vec![
        tensor::from_f32("stem_weight", &[2, 3, 1, 1], &[0.5, 0.2, 0.1, -0.2, 0.5, 0.4]),
        tensor::from_f32("boxes_weight", &[box_channels, 2, 1, 1], &boxes),
        tensor::from_f32("scores_weight", &[2, 2, 1, 1], &[1.0, 0.5, -0.5, 1.0]),
        tensor::from_f32("scores_bias", &[2], &class_bias),
        tensor::from_i64("sizes", &[2], &[box_channels, 2]),
    ];
    sample.model()
}

fn pictures(folder: &std::path::Path) -> Usable {
    let one = |shade: u8| {
        let path = folder.join(format!("{shade}.png"));
        let pixel = |x: u32, y: u32| image::Rgb([shade, u8::try_from(x * 30).unwrap(), u8::try_from(y * 30).unwrap()]);
        image::RgbImage::from_fn(8, 8, pixel).save(&path).unwrap();
        let picture = crate::build::pictures::decode(&path).unwrap();
        UsablePicture { path, hash: pixel_hash(&picture), size: picture.size }
    };
    Usable { pictures: [50, 120, 200, 250].map(one).to_vec() }
}

fn corrected(export: &Model, sunk: &Model, batch: u32, pictures: &Usable) -> (Model, Corrected) {
    let shapes = shapes::infer(export).unwrap();
    let input = InputSpec { name: "images".into(), batch, channels: 3, size: SIZE, element: ElementType::F32 };
    let layout = Layout::Raw { output: "output0".into(), classes: 2, anchors: 64 };
    let options = CpuOptions { backend: CpuBackend::Rten, threads: Some(1), emulate_half: false };
    let observation =
        Observation { model: export, shapes: &shapes, input: &input, layout: &layout, options: &options, pictures };
    let mut model = sunk.clone();
    let told = correct(&mut model, &observation, &mut Silent).unwrap();
    (model, told)
}

fn bias(model: &Model, layer: &str) -> Option<Vec<f32>> {
    let index = GraphIndex::new(model.graph());
    let node = model.graph().node.iter().find(|node| node.name == layer).unwrap();
    node.input.get(2).map(|name| tensor::f32_data(index.initializer(name).unwrap()).unwrap())
}

#[test]
fn scores_that_sank_come_back_and_nothing_else_moves() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = pictures(folder.path());
    for batch in [1_u32, 2, 3] {
        let export = network(i64::from(batch), 4, CLASS_BIAS);
        let sunk = network(i64::from(batch), 4, CLASS_BIAS.map(|bias| bias - 0.3));
        let (model, told) = corrected(&export, &sunk, batch, &pictures);
        let back = bias(&model, "scores").unwrap();
        assert!(back.iter().zip(CLASS_BIAS).all(|(back, exact)| (back - exact).abs() < 1e-5), "{batch}: {back:?}");
        assert_eq!((bias(&model, "boxes"), bias(&model, "stem")), (None, None));
        let [shift] = told.layers.as_slice() else { panic!("{told:?}") };
        assert!(shift.layer == "scores" && (shift.largest - 0.3).abs() < 1e-5 && shift.seen >= 100, "{shift:?}");
        assert!(told.sentences()[0].contains("+0.300"), "{:?}", told.sentences());
        let again = corrected(&export, &sunk, batch, &pictures).0;
        assert!(model.to_bytes().unwrap() == again.to_bytes().unwrap());
    }
}

#[test]
fn without_scores_to_see_nothing_is_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = pictures(folder.path());
    let (export, sunk) = (network(1, 4, [-9.0; 2]), network(1, 4, [-9.3; 2]));
    let (model, told) = corrected(&export, &sunk, 1, &pictures);
    assert!(model.to_bytes().unwrap() == sunk.to_bytes().unwrap());
    assert_eq!((told.layers.len(), told.too_few), (0, Some(0)));
    assert!(told.sentences()[0].contains("0 lie above 0.1"), "{:?}", told.sentences());
    let few = Usable { pictures: pictures.pictures[..1].to_vec() };
    let (export, sunk) = (network(1, 4, [-0.5, -9.0]), network(1, 4, [-0.8, -9.3]));
    let (model, told) = corrected(&export, &sunk, 1, &few);
    assert!(model.to_bytes().unwrap() == sunk.to_bytes().unwrap());
    assert!(told.too_few.is_some_and(|seen| (1..LEAST_SEEN).contains(&seen)), "{told:?}");
    assert!(told.sentences()[0].contains("add pictures that show what is to be found"));
}

/// As many box values as classes, and nothing tells one from the other.
#[test]
fn layers_that_could_be_boxes_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let (export, sunk) = (network(1, 2, CLASS_BIAS), network(1, 2, [-0.8, -1.3]));
    let (model, told) = corrected(&export, &sunk, 1, &pictures(folder.path()));
    assert!(model.to_bytes().unwrap() == sunk.to_bytes().unwrap());
    assert_eq!(told, Corrected::default());
}

#[test]
fn background_and_what_is_not_finite_do_not_count() {
    let mut sums = Sums::default();
    for (exact, found) in
        [(-8.0, -9.0), (f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, 1.0), (1.0, f32::NEG_INFINITY)]
    {
        sums.add(exact, found);
    }
    assert_eq!(sums, Sums::default());
    // Chance alone moves scores both ways: seen by either network, it comes out as none.
    for at in 0..1000_u16 {
        let noise = if at % 2 == 0 { 0.5 } else { -0.5 };
        let score = f32::from(at) / 100.0 - 6.0;
        sums.add(score + noise, score);
        sums.add(score, score + noise);
    }
    assert!(sums.seen > 500 && sums.mean().abs() < 1e-3, "{sums:?}");
}

#[test]
fn a_class_that_is_seen_little_follows_its_layer() {
    let of = |seen: u64, mean: f64| Sums { seen, weights: float64(seen), shifts: mean * float64(seen) };
    assert_eq!(shifts(&[of(60, 0.3), of(39, 0.3)]), None);
    let found = shifts(&[of(2000, 0.1), of(0, 0.0), of(200, 1.2)]).unwrap();
    assert!(
        (found[0] - 0.109).abs() < 0.001 && (found[1] - 0.2).abs() < 1e-9 && (found[2] - 0.7).abs() < 1e-9,
        "{found:?}"
    );
}

#[test]
fn what_is_not_finite_gets_into_no_bias() {
    let mut model = network(1, 4, CLASS_BIAS);
    let before = model.to_bytes().unwrap();
    let layer = model.graph().node.iter().find(|node| node.name == "scores").unwrap().clone();
    for wrong in [f64::NAN, f64::INFINITY, 1e39] {
        assert_eq!(apply(&layer, &[0.0, wrong], &mut model).unwrap(), None);
    }
    assert_eq!(apply(&layer, &[0.1; 3], &mut model).unwrap(), None);
    assert!(model.to_bytes().unwrap() == before);
    assert_eq!(apply(&layer, &[0.5, -1.5], &mut model).unwrap(), Some(-1.5));
    assert_eq!(bias(&model, "scores"), Some(vec![0.0, -2.5]));
    let boxes = model.graph().node.iter().find(|node| node.name == "boxes").unwrap().clone();
    assert_eq!(apply(&boxes, &[0.1, 0.2, 0.3, 0.4], &mut model).unwrap(), Some(0.4));
    assert_eq!(bias(&model, "boxes"), Some(vec![0.1, 0.2, 0.3, 0.4]));
}
