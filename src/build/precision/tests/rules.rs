//! Where INT8 goes when the rules ask for it.

use super::super::{PICTURE, Placement, count};
use super::*;
use crate::onnx::index::GraphIndex;

fn operators(model: &Model, name: &str) -> usize {
    model.graph().node.iter().filter(|node| node.op_type == name).count()
}

/// Whether some node reads `tensor`.
fn is_read(model: &Model, tensor: &str) -> bool {
    model.graph().node.iter().any(|node| node.input.iter().any(|input| input == tensor))
}

#[test]
fn the_first_convolution_reads_the_picture_in_8_bits_when_asked() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    let rules = Rules { first: true, ..usual() };
    let mut ranges = ranges(&model);
    ranges.insert("images".to_owned(), PICTURE);
    let built = build_int8(&model, &shapes, &ranges, &BTreeMap::new(), &rules).unwrap();
    assert_eq!(built.placement.quantised(), 3);
    let stem = built.model.graph().node.iter().find(|node| node.name == "stem").unwrap();
    assert_eq!(stem.input, ["images_dequantized", "stem_weight_dequantized"]);
    let group = built.placement.group_of["images"];
    let scale = format!("int8_group{group}_scale");
    let scale = built.model.graph().initializer.iter().find(|weight| weight.name == scale).unwrap();
    let scale = tensor::f32_data(scale).unwrap()[0];
    assert!((scale * 127.0 - 1.0).abs() < 1e-3, "{scale}");
    assert!(built.placement.group_of.iter().all(|(name, other)| (*other == group) == (name == "images")));
    let exact = look(network(), "output0", CpuBackend::Rten);
    let difference = largest_difference(&exact, &look(built.model.clone(), "output0", CpuBackend::Rten));
    assert!(difference > 0.0 && difference < 0.5, "{difference}");
    let mut mixed = built.model;
    fp16::convert(&mut mixed, None, ElementType::F16).unwrap();
    let inferred = shapes::infer(&mixed).unwrap();
    assert!(inferred.unknown.is_empty(), "{:?}", inferred.unknown);
    assert_eq!(count(&mixed, &inferred)["int8"], 3);
}

/// One that stays in float behind a split reads what the split passes on in 8 bits: the split runs once, and nothing is lost.
#[test]
fn a_convolution_that_is_kept_reads_what_its_part_has_stored() {
    // As in a C2f: the concatenation takes both halves of the split and the sum.
    let mut model = network();
    let graph = model.graph_mut();
    let concat = graph.node.iter_mut().find(|node| node.name == "concat").unwrap();
    concat.input.push("right".to_owned());
    graph.initializer.retain(|weight| weight.name != "neck_weight");
    graph.initializer.push(weight("neck", [4, 6, 1, 1]));
    graph.value_info.clear();
    let shapes = shapes::infer(&model).unwrap();
    let keep = ["body".to_owned()];
    let rules = Rules { keep: &keep, ..usual() };
    let built = build_int8(&model, &shapes, &ranges(&model), &BTreeMap::new(), &rules).unwrap();
    let body = built.placement.layers.iter().find(|layer| layer.name == "body").unwrap();
    assert_eq!(body.float.as_deref(), Some("kept by the recipe"));
    let body = built.model.graph().node.iter().find(|node| node.name == "body").unwrap();
    assert_eq!(body.input, ["right_dequantized", "body_weight"]);
    assert!(!is_read(&built.model, "body_weight_dequantized"));
    let inferred = shapes::infer(&built.model).unwrap();
    assert_eq!(count(&built.model, &inferred)["int8"], 1);
    // The sum and the concatenation read the same tensors in 8 bits as before.
    let sum = built.model.graph().node.iter().find(|node| node.name == "sum").unwrap();
    assert_eq!(sum.input, ["right_dequantized", "body_out"]);
    let raw = ["left", "right", "sum_out", "pool_out", "concat_out"];
    for name in raw {
        let readers = built.model.graph().node.iter().filter(|node| node.input.iter().any(|input| input == name));
        assert!(readers.clone().all(|node| node.op_type == "QuantizeLinear"), "{name}");
    }
}

/// Every pair that is written is read: where the last convolution that reads a tensor in 8 bits is kept, its pair goes.
#[test]
fn kept_convolutions_leave_no_pair_behind() {
    let model = network();
    let shapes = shapes::infer(&model).unwrap();
    for keep in [vec!["neck"], vec!["body"], vec!["neck", "body"]] {
        let keep: Vec<String> = keep.into_iter().map(str::to_owned).collect();
        let rules = Rules { keep: &keep, ..usual() };
        let built = build_int8(&model, &shapes, &ranges(&model), &BTreeMap::new(), &rules).unwrap().model;
        for node in built.graph().node.iter().filter(|node| node.op_type.ends_with("QuantizeLinear")) {
            assert!(is_read(&built, &node.output[0]), "{keep:?}: nobody reads {}", node.output[0]);
        }
        assert_eq!(operators(&built, "QuantizeLinear") == 0, keep.len() == 2, "{keep:?}");
    }
}

#[test]
fn a_pattern_that_means_nothing_is_a_usage_error_with_the_closest() {
    let mut model = network();
    let names =
        [("stem", "/model.0/conv/Conv"), ("body", "/model.1/m.0/cv1/conv/Conv"), ("neck", "/model.10/conv/Conv")];
    for node in &mut model.graph_mut().node {
        if let Some((_, name)) = names.iter().find(|(old, _)| *old == node.name) {
            (*name).clone_into(&mut node.name);
        }
    }
    let index = crate::onnx::index::GraphIndex::new(model.graph());
    let check = |pattern: &str| {
        let keep = ["last".to_owned(), pattern.to_owned()];
        Rules { keep: &keep, ..usual() }.check(&index)
    };
    for known in ["model.10", "/model.1/m.0/cv1/conv/Conv", "model.1/m.0"] {
        assert!(check(known).is_ok(), "{known}");
    }
    // `act` is a node, but no convolution.
    for (typed, closest) in [
        ("modle.10", "model.10"),
        ("model.1/m0", "model.1/m.0"),
        ("/model.1/m.0/cv1/con/Conv", "model.1/m.0/cv1/conv/Conv"),
        ("act", "last"),
    ] {
        let error = check(typed).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Usage);
        let text = error.to_string();
        assert!(text.contains(&format!("`{typed}`")) && text.contains(&format!("closest is `{closest}`")), "{text}");
    }
}

/// [`network`] with a ReLU behind the convolution `name`, whose output keeps its name.
fn activated(name: &str) -> Model {
    let mut model = network();
    let graph = model.graph_mut();
    let at = graph.node.iter().position(|node| node.name == name).unwrap();
    let raw = format!("{name}_raw");
    let out = std::mem::replace(&mut graph.node[at].output[0], raw.clone());
    graph.node.insert(at + 1, make::node("Relu", &format!("{name}_act"), &[&raw], &[&out], vec![]));
    model
}

fn inputs_of<'a>(model: &'a Model, name: &str) -> &'a [String] {
    &model.graph().node.iter().find(|node| node.name == name).unwrap().input
}

/// The convolution of a branch writes 8 bits, and the sum reads 8 bits on both sides; where the branch is kept, the sum is as it was.
#[test]
fn residual_sums_read_8_bits_on_both_sides_when_asked() {
    let model = activated("body");
    let shapes = shapes::infer(&model).unwrap();
    let keep = ["body".to_owned()];
    let rules = Rules { sums: true, ..usual() };
    let build = |rules: &Rules<'_>| {
        let mut ranges = ranges(&model);
        ranges.insert("body_out".to_owned(), ActivationScale { largest: 1.0, cut: 1.0 });
        build_int8(&model, &shapes, &ranges, &BTreeMap::new(), rules).unwrap()
    };
    let built = build(&rules);
    assert_eq!(inputs_of(&built.model, "sum"), ["right_dequantized", "body_out_dequantized"]);
    assert_eq!(built.placement.quantised(), 2);
    let groups = &built.placement.group_of;
    let alone = groups.values().filter(|group| **group == groups["body_out"]).count();
    assert_eq!(alone, 1, "what is added keeps a scale of its own: {groups:?}");
    assert_eq!(built.placement.sums.len(), 1);
    let without = build(&usual());
    assert_eq!(inputs_of(&without.model, "sum"), ["right_dequantized", "body_out"]);
    assert!(without.placement.sums.is_empty());
    let kept = build(&Rules { keep: &keep, ..rules });
    assert_eq!(inputs_of(&kept.model, "sum"), ["right", "body_out"]);
    assert!(kept.placement.sums.is_empty());
    let exact = look(activated("body"), "output0", CpuBackend::Rten);
    let difference = largest_difference(&exact, &look(built.model, "output0", CpuBackend::Rten));
    assert!(difference > 0.0 && difference < 0.5, "{difference}");

    // Without an activation TensorRT joins the convolution with the sum: attention ends so.
    let bare = network();
    let built = build_int8(&bare, &shapes::infer(&bare).unwrap(), &ranges(&bare), &BTreeMap::new(), &rules).unwrap();
    assert_eq!(inputs_of(&built.model, "sum"), ["right_dequantized", "body_out"]);
}

#[test]
fn the_head_reads_8_bits_and_keeps_its_weights_when_asked() {
    let model = activated("neck");
    let shapes = shapes::infer(&model).unwrap();
    let keep = ["neck".to_owned()];
    let rules = Rules { head_inputs: true, ..usual() };
    let build = |rules: &Rules<'_>| {
        let mut ranges = ranges(&model);
        ranges.insert("neck_out".to_owned(), ActivationScale { largest: 1.0, cut: 1.0 });
        build_int8(&model, &shapes, &ranges, &BTreeMap::new(), rules).unwrap()
    };
    let built = build(&rules);
    assert_eq!(inputs_of(&built.model, "last"), ["neck_out_dequantized", "last_weight"]);
    assert_eq!(built.placement.quantised(), 2);
    assert_eq!(inputs_of(&build(&Rules { keep: &keep, ..rules }).model, "last"), ["neck_out", "last_weight"]);
    let mut mixed = built.model;
    fp16::convert(&mut mixed, None, ElementType::F32).unwrap();
    let inferred = shapes::infer(&mixed).unwrap();
    assert!(inferred.unknown.is_empty());
    assert_eq!(count(&mixed, &inferred)["int8"], 2);
}

/// One whose kind keeps it out reads 8 bits, so that the convolution before it writes them; one that is kept for accuracy does not.
#[test]
fn a_convolution_that_is_out_by_its_kind_reads_8_bits() {
    // neck → activation → a depthwise one → last.
    let mut model = activated("neck");
    let graph = model.graph_mut();
    let last = graph.node.iter().position(|node| node.name == "last").unwrap();
    let mut deep = conv("deep", "neck_out", "deep_out");
    deep.attribute.push(make::int("group", 4));
    graph.node.insert(last, deep);
    graph.node[last + 1].input[0] = "deep_out".to_owned();
    graph.initializer.push(weight("deep", [4, 1, 1, 1]));
    let shapes = shapes::infer(&model).unwrap();
    let keep = ["deep".to_owned()];
    let build = |rules: &Rules<'_>, kept: &[&str]| {
        let mut ranges = ranges(&model);
        ranges.insert("neck_out".to_owned(), ActivationScale { largest: 1.0, cut: 1.0 });
        let kept = kept.iter().map(|name| ((*name).to_owned(), "test".to_owned())).collect();
        build_int8(&model, &shapes, &ranges, &kept, rules).unwrap()
    };
    let depthwise = Rules { depthwise: false, ..usual() };
    let built = build(&depthwise, &[]);
    assert_eq!(inputs_of(&built.model, "deep"), ["neck_out_dequantized", "deep_weight"]);
    assert_eq!((built.placement.quantised(), built.placement.readers.len()), (2, 1));
    for (rules, kept) in [(Rules { keep: &keep, ..depthwise }, &[][..]), (depthwise, &["deep"]), (depthwise, &["neck"])]
    {
        assert_eq!(inputs_of(&build(&rules, kept).model, "deep"), ["neck_out", "deep_weight"], "{rules:?} {kept:?}");
    }
    assert_eq!(inputs_of(&build(&usual(), &[]).model, "deep")[1], "deep_weight_dequantized");
}

/// As the first part of older exports does: what passes the picture on connects the network's input itself to a convolution.
#[test]
fn a_picture_that_is_passed_on_to_a_convolution_is_stored_at_the_input() {
    let mut model = network();
    let graph = model.graph_mut();
    let ones = vec![make::ints("kernel_shape", &[1, 1]), make::ints("strides", &[1, 1])];
    graph.node.insert(0, make::node("MaxPool", "passing", &["images"], &["passed"], ones));
    graph.node[1].input[0] = "passed".to_owned();
    let shapes = shapes::infer(&model).unwrap();
    let mut ranges = ranges(&network());
    ranges.insert("images".to_owned(), PICTURE);
    let built = build_int8(&model, &shapes, &ranges, &BTreeMap::new(), &usual()).unwrap();
    assert_eq!(inputs_of(&built.model, "passing"), ["images_dequantized"]);
    assert_eq!(inputs_of(&built.model, "stem"), ["passed_dequantized", "stem_weight_dequantized"]);
    let exact = look(network(), "output0", CpuBackend::Rten);
    let difference = largest_difference(&exact, &look(built.model, "output0", CpuBackend::Rten));
    assert!(difference > 0.0 && difference < 0.5, "{difference}");
}

/// A GPU gets attention in half, with the reason; what stands around it is in INT8.
#[test]
fn attention_stays_out_on_a_gpu() {
    let model = crate::build::attention::sample("MatMul");
    let shapes = shapes::infer(&model).unwrap();
    let index = GraphIndex::new(model.graph());
    let out = |rules: &Rules<'_>| -> Vec<String> {
        let layers = Placement::decide(&index, &shapes, &BTreeMap::new(), rules).unwrap().layers;
        layers.into_iter().filter(|layer| layer.float.as_deref() == Some("attention")).map(|layer| layer.name).collect()
    };
    let nothing = Int8Rules::default();
    assert_eq!(out(&Rules { few_channels: 0, ..Rules::of(&nothing, true) }), ["qkv", "pe", "proj"]);
    let asked = Int8Rules { attention: Some(true), ..Int8Rules::default() };
    assert!(out(&Rules { few_channels: 0, ..Rules::of(&asked, true) }).is_empty());
    assert!(out(&Rules::of(&nothing, false)).is_empty(), "CPU engines take it");
}
