//! A small network with everything that placement decides about, converted and compared with golden graphs.

use super::fp16::{self, Ranges};
use super::{ActivationScale, Rules, build_int8, decide};
use crate::config::precision::Int8Rules;
use crate::engine::ElementType;
use crate::engine::candidates::Elements;
use crate::engine::cpu::probe::Probe;
use crate::engine::cpu::{CpuBackend, CpuOptions};
use crate::engine::{InputSpec, Layout};
use crate::frame::Picture;
use crate::onnx::node::make;
use crate::onnx::samples::{Sample, value};
use crate::onnx::tensor::DataType;
use crate::onnx::twin::{self, Rounding};
use crate::onnx::{Model, dump, shapes, tensor};
use crate::units::SizePx;
use onnx_protobuf::NodeProto;
use std::collections::BTreeMap;

/// What a recipe gets that says nothing, for a CPU.
fn usual() -> Rules<'static> {
    static NOTHING: std::sync::LazyLock<Int8Rules> = std::sync::LazyLock::new(Int8Rules::default);
    Rules {
        first: false,
        few_channels: 0,
        depthwise: true,
        attention: true,
        sums: false,
        head_inputs: false,
        ..Rules::of(&NOTHING, false)
    }
}

fn conv(name: &str, input: &str, output: &str) -> NodeProto {
    let weight = format!("{name}_weight");
    let attributes =
        vec![make::ints("dilations", &[1, 1]), make::ints("pads", &[0, 0, 0, 0]), make::ints("strides", &[1, 1])];
    make::node("Conv", name, &[input, &weight], &[output], attributes)
}

fn weight(name: &str, shape: [i64; 4]) -> onnx_protobuf::TensorProto {
    let count: i64 = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at * 37 % 101) as f32 - 50.0) / 100.0).collect();
    tensor::from_f32(&format!("{name}_weight"), &shape, &values)
}

/// picture → stem → act → left, right (split) → body → residual sum → concat with max-pool → last layer → boxes by a DFL.
fn network() -> Model {
    let axis = || vec![make::int("axis", 1)];
    let nodes = vec![
        conv("stem", "images", "stem_out"),
        make::node("Relu", "act", &["stem_out"], &["act_out"], vec![]),
        make::node("Split", "split", &["act_out", "halves"], &["left", "right"], axis()),
        conv("body", "right", "body_out"),
        make::node("Add", "sum", &["right", "body_out"], &["sum_out"], vec![]),
        make::node(
            "MaxPool",
            "pool",
            &["left"],
            &["pool_out"],
            vec![make::ints("kernel_shape", &[1, 1]), make::ints("strides", &[1, 1])],
        ),
        make::node("Concat", "concat", &["pool_out", "sum_out"], &["concat_out"], axis()),
        conv("neck", "concat_out", "neck_out"),
        conv("last", "neck_out", "last_out"),
        make::node("Softmax", "dfl", &["last_out"], &["dfl_out"], axis()),
        conv("expectation", "dfl_out", "distance"),
        make::node("Mul", "stride", &["distance", "strides"], &["output0"], vec![]),
    ];
    let mut sample = Sample::new(&[1, 3, 8, 8], nodes, vec![value("output0", DataType::F32, &[1, 1, 8, 8])]);
    sample.weights = vec![
        weight("stem", [4, 3, 1, 1]),
        weight("body", [2, 2, 1, 1]),
        weight("neck", [4, 4, 1, 1]),
        weight("last", [4, 4, 1, 1]),
        tensor::from_f32("expectation_weight", &[1, 4, 1, 1], &[0.0, 1.0, 2.0, 3.0]),
        tensor::from_f32("strides", &[1], &[8.0]),
        tensor::from_i64("halves", &[2], &[2, 2]),
    ];
    sample.model()
}

fn look(model: Model, name: &str, backend: CpuBackend) -> Vec<f32> {
    let input =
        InputSpec { name: "images".into(), batch: 1, channels: 3, size: SizePx::new(8, 8), element: ElementType::F32 };
    let layout = Layout::Raw { output: "output0".into(), classes: 1, anchors: 1 };
    let options = CpuOptions { backend, threads: Some(1), emulate_half: false };
    let mut probe = Probe::open(model, &[name.to_owned()], &input, &layout, &options).unwrap();
    let pixels = (0..8 * 8 * 3_u8).map(|at| at.wrapping_mul(53)).collect();
    let mut seen = Vec::new();
    let visit = &mut |tensors: &[crate::engine::candidates::RawTensor<'_>]| {
        if let Some(Elements::F32(values)) = tensors.first().map(|tensor| tensor.elements) {
            seen.extend_from_slice(values);
        }
        Ok(())
    };
    probe.run(&Picture::rgb(SizePx::new(8, 8), pixels), visit).unwrap();
    seen
}

fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

#[test]
fn half_is_the_golden_graph() {
    let mut model = network();
    let report = fp16::convert(&mut model, None, ElementType::F32).unwrap();
    assert_eq!(report.halves, 9);
    insta::assert_snapshot!(dump::graph(&model));
}

#[test]
fn half_borders_are_the_golden_graph() {
    let mut model = network();
    fp16::convert(&mut model, None, ElementType::F16).unwrap();
    insta::assert_snapshot!(dump::graph(&model));
    let shapes = shapes::infer(&model).unwrap();
    assert_eq!(shapes.fact("output0").element, DataType::F16);
    assert!(shapes.unknown.is_empty());
}

#[test]
fn the_twin_of_a_half_graph_is_close_and_not_equal() {
    let exact = look(network(), "output0", CpuBackend::Rten);
    let mut model = network();
    fp16::convert(&mut model, None, ElementType::F32).unwrap();
    twin::make_twin(&mut model, Rounding::Arithmetic).unwrap();
    let difference = largest_difference(&exact, &look(model, "output0", CpuBackend::Rten));
    assert!(difference > 0.0 && difference < 0.05, "{difference}");
}

/// N02: fine in float, infinite in half; calibration keeps it in float.
#[test]
fn values_beyond_half_are_infinite_in_the_twin_and_stay_in_float_once_seen() {
    let overflow = || {
        let nodes = vec![
            conv("big", "images", "big_out"),
            make::node("Relu", "relu", &["big_out"], &["relu_out"], vec![]),
            conv("back", "relu_out", "output0"),
        ];
        let mut sample = Sample::new(&[1, 3, 8, 8], nodes, vec![value("output0", DataType::F32, &[1, 1, 8, 8])]);
        sample.weights = vec![
            tensor::from_f32("big_weight", &[1, 3, 1, 1], &[4e4; 3]),
            tensor::from_f32("back_weight", &[1, 1, 1, 1], &[1.0 / 1.2e5]),
        ];
        sample.model()
    };
    let exact = look(overflow(), "output0", CpuBackend::Rten);
    assert!(exact.iter().all(|value| value.is_finite()));

    let mut blind = overflow();
    fp16::convert(&mut blind, None, ElementType::F32).unwrap();
    twin::make_twin(&mut blind, Rounding::Arithmetic).unwrap();
    assert!(look(blind, "output0", CpuBackend::Rten).iter().any(|value| value.is_infinite()));

    let ranges =
        Ranges::from([("big_out".to_owned(), 1.1e5), ("relu_out".to_owned(), 1.1e5), ("output0".to_owned(), 1.0)]);
    let mut seen = overflow();
    let report = fp16::convert(&mut seen, Some(&ranges), ElementType::F32).unwrap();
    assert_eq!(report.halves, 0, "{report:?}");
    assert!(report.exceptions.keys().any(|reason| reason.contains("110000")), "{report:?}");
    twin::make_twin(&mut seen, Rounding::Arithmetic).unwrap();
    assert!(largest_difference(&exact, &look(seen, "output0", CpuBackend::Rten)) < 1e-3);
}

fn ranges(model: &Model) -> BTreeMap<String, ActivationScale> {
    let sources = decide(model, &shapes::infer(model).unwrap(), &BTreeMap::new(), &usual()).unwrap().sources;
    let cut = |name: &str| {
        let largest = look(network(), name, CpuBackend::Rten).iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        ActivationScale { largest, cut: largest }
    };
    sources.keys().map(|name| (name.clone(), cut(name))).collect()
}

#[test]
fn int8_is_the_golden_graph() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let built = build_int8(&model, &shapes, &ranges(&model), &BTreeMap::new(), &usual()).unwrap();
    let float: Vec<(&str, &str)> = built
        .placement
        .layers
        .iter()
        .filter_map(|layer| Some((layer.name.as_str(), layer.float.as_deref()?)))
        .collect();
    assert_eq!(
        float,
        [
            ("stem", "reads the picture itself"),
            ("last", "output convolution of the head"),
            ("expectation", "DFL and box arithmetic")
        ]
    );
    let groups = &built.placement.group_of;
    let shared: Vec<usize> =
        ["act_out", "left", "right", "pool_out", "sum_out", "concat_out"].iter().map(|name| groups[*name]).collect();
    assert!(shared.iter().all(|group| *group == shared[0]), "{groups:?}");
    insta::assert_snapshot!(dump::graph(&built.model));
}

/// The standard's defaults are spelt out for rten, which knows none (seen with `fp16overflow` of the field cases).
#[test]
fn a_convolution_without_attributes_runs_in_rten() {
    let bare = || {
        let mut model = network();
        model.graph_mut().node.iter_mut().for_each(|node| {
            node.attribute.retain(|attribute| !matches!(attribute.name.as_str(), "strides" | "dilations" | "pads"));
        });
        model
    };
    assert_eq!(look(bare(), "output0", CpuBackend::Rten), look(network(), "output0", CpuBackend::Rten));
}

/// INT8 with the rest in half: scales are halves between halves, the tail stays float, TensorRT 8 gets the float graph back.
#[test]
fn int8_with_halves_is_the_golden_graph() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let built = build_int8(&model, &shapes, &ranges(&model), &BTreeMap::new(), &usual()).unwrap();
    let mut mixed = built.model.clone();
    let report = fp16::convert(&mut mixed, None, ElementType::F32).unwrap();
    assert_eq!(mixed.opset(), 19);
    assert_eq!(report.exceptions.values().flatten().count(), 3, "{report:?}");
    insta::assert_snapshot!(dump::graph(&mixed));
    let inferred = shapes::infer(&mixed).unwrap();
    assert!(inferred.unknown.is_empty());
    let counts = super::count(&mixed, &inferred);
    assert_eq!(counts, BTreeMap::from([("int8".into(), 2), ("f16".into(), 2), ("f32".into(), 1)]));

    let mut wide = mixed.clone();
    twin::widen_all(&mut wide).unwrap();
    crate::onnx::opset::lower(&mut wide);
    assert_eq!(wide.opset(), 17);
    let ops = |model: &Model| model.graph().node.iter().map(|node| node.op_type.clone()).collect::<Vec<_>>();
    assert_eq!(ops(&wide), ops(&built.model));

    let float = look(built.model, "output0", CpuBackend::Rten);
    twin::make_twin(&mut mixed, Rounding::Arithmetic).unwrap();
    let difference = largest_difference(&float, &look(mixed, "output0", CpuBackend::Rten));
    assert!(difference > 0.0 && difference < 0.1, "{difference}");
}

/// A range beyond half keeps the pair in float, though its scale would fit.
#[test]
fn quantised_tensors_beyond_half_are_dequantised_to_float() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let mut ranges = ranges(&model);
    let wide: Ranges = ["act_out", "left", "right", "pool_out", "sum_out", "concat_out"]
        .into_iter()
        .map(|name| (name.to_owned(), 3e4))
        .collect();
    ranges.values_mut().for_each(|range| *range = ActivationScale { largest: 3e4, cut: 3e4 });
    let mut mixed = build_int8(&model, &shapes, &ranges, &BTreeMap::new(), &usual()).unwrap().model;
    fp16::convert(&mut mixed, Some(&wide), ElementType::F32).unwrap();
    let shapes = shapes::infer(&mixed).unwrap();
    for name in ["act_out_dequantized", "concat_out_dequantized"] {
        assert_eq!(shapes.fact(name).element, DataType::F32, "{name}");
    }
}

/// N05: what the last layers and the boxes need stays in float, and the answer stays close.
#[test]
fn int8_answers_stay_close() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let built = build_int8(&model, &shapes, &ranges(&model), &BTreeMap::new(), &usual()).unwrap();
    let exact = look(network(), "output0", CpuBackend::Rten);
    let stored = Model::from_bytes(&built.model.to_bytes().unwrap()).unwrap();
    let difference = largest_difference(&exact, &look(stored, "output0", CpuBackend::Rten));
    assert!(difference > 0.0 && difference < 0.5, "{difference} of {exact:?}");
}

#[test]
fn layers_that_are_put_back_take_their_tensors_with_them() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let kept = BTreeMap::from([("body".to_owned(), "test".to_owned()), ("neck".to_owned(), "test".to_owned())]);
    let built = build_int8(&model, &shapes, &ranges(&model), &kept, &usual()).unwrap();
    assert_eq!(built.placement.quantised(), 0);
    let left = built.model.graph().node.iter().filter(|node| node.op_type.ends_with("QuantizeLinear")).count();
    assert_eq!(left, 0);
}

#[test]
fn the_written_int8_graph_is_one_that_prepare_takes() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let built = build_int8(&model, &shapes, &ranges(&model), &BTreeMap::new(), &usual()).unwrap();
    let mut decided = Vec::new();
    crate::build::quantized::check(&built.model, &mut decided).unwrap();
}

mod rules;
