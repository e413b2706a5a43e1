use super::*;
use crate::onnx::node::make;
use crate::onnx::samples::{Sample, value};
use crate::onnx::tensor::{DataType, from_f32, from_i64};
use onnx_protobuf::{NodeProto, TensorProto};

/// The fact of `y` in a graph with input `images` of `input` and these nodes and weights.
fn y(input: &[i64], nodes: Vec<NodeProto>, weights: Vec<TensorProto>) -> Result<Fact> {
    let sample = Sample { weights, ..Sample::new(input, nodes, vec![value("y", DataType::F32, &[])]) };
    infer(&sample.model()).map(|shapes| shapes.fact("y").clone())
}

fn text(shape: &Result<Fact>) -> String {
    match shape {
        Ok(fact) => fact.to_string(),
        Err(error) => format!("error: {}", error.message()),
    }
}

fn op(op_type: &str, inputs: &[&str], attributes: Vec<onnx_protobuf::AttributeProto>) -> Vec<NodeProto> {
    vec![make::node(op_type, "n", inputs, &["y"], attributes)]
}

fn ints(name: &str, values: &[i64]) -> TensorProto {
    from_i64(name, &[i64::try_from(values.len()).unwrap()], values)
}

#[test]
fn single_operators_give_the_shapes_of_the_standard() {
    let weight = |shape: &[i64]| {
        let count = usize::try_from(shape.iter().product::<i64>()).unwrap();
        from_f32("w", shape, &vec![0.0; count])
    };
    let conv = |stride: i64, pad: i64| vec![make::ints("strides", &[stride, stride]), make::ints("pads", &[pad; 4])];
    let rows: Vec<(&str, Vec<NodeProto>, Vec<TensorProto>, &str)> = vec![
        ("relu", op("Relu", &["images"], vec![]), vec![], "f32 [1, 3, 8, 6]"),
        ("conv", op("Conv", &["images", "w"], conv(2, 1)), vec![weight(&[16, 3, 3, 3])], "f32 [1, 16, 4, 3]"),
        (
            "conv does not fit",
            op("Conv", &["images", "w"], conv(1, 0)),
            vec![weight(&[16, 4, 1, 1])],
            "error: found input [1, 3, 8, 6], expected 4 dimensions and 4 channels",
        ),
        (
            "deconv",
            op("ConvTranspose", &["images", "w"], vec![make::ints("strides", &[2, 2])]),
            vec![weight(&[3, 5, 2, 2])],
            "f32 [1, 5, 16, 12]",
        ),
        (
            "pool",
            op("MaxPool", &["images"], vec![make::ints("kernel_shape", &[5, 5]), make::ints("pads", &[2, 2, 2, 2])]),
            vec![],
            "f32 [1, 3, 8, 6]",
        ),
        (
            "pool, rounded up",
            op(
                "MaxPool",
                &["images"],
                vec![make::ints("kernel_shape", &[3, 3]), make::ints("strides", &[2, 2]), make::int("ceil_mode", 1)],
            ),
            vec![],
            "f32 [1, 3, 4, 3]",
        ),
        ("add", op("Add", &["images", "w"], vec![]), vec![weight(&[3, 1, 1])], "f32 [1, 3, 8, 6]"),
        (
            "add does not fit",
            op("Add", &["images", "w"], vec![]),
            vec![weight(&[5])],
            "error: found shapes that do not fit each other: [1, 3, 8, 6] and [5]",
        ),
        ("compare", op("Less", &["images", "w"], vec![]), vec![weight(&[1])], "bool [1, 3, 8, 6]"),
        ("reshape", op("Reshape", &["images", "s"], vec![]), vec![ints("s", &[0, -1, 4])], "f32 [1, 36, 4]"),
        (
            "reshape does not fit",
            op("Reshape", &["images", "s"], vec![]),
            vec![ints("s", &[7, -1])],
            "error: found [1, 3, 8, 6] with 144 elements, expected them to fit into [7, -1]",
        ),
        (
            "transpose",
            op("Transpose", &["images"], vec![make::ints("perm", &[0, 2, 3, 1])]),
            vec![],
            "f32 [1, 8, 6, 3]",
        ),
        ("concat", op("Concat", &["images", "images"], vec![make::int("axis", -2)]), vec![], "f32 [1, 3, 16, 6]"),
        (
            "slice",
            op("Slice", &["images", "a", "b", "c", "d"], vec![]),
            vec![ints("a", &[1, -1]), ints("b", &[i64::MAX, i64::MIN]), ints("c", &[2, 3]), ints("d", &[3, -2])],
            "f32 [1, 3, 3, 3]",
        ),
        (
            "gather",
            op("Gather", &["images", "s"], vec![make::int("axis", 1)]),
            vec![from_i64("s", &[], &[0])],
            "f32 [1, 8, 6]",
        ),
        (
            "resize",
            op("Resize", &["images", "", "w"], vec![]),
            vec![from_f32("w", &[4], &[1.0, 1.0, 2.0, 2.0])],
            "f32 [1, 3, 16, 12]",
        ),
        (
            "resize to sizes",
            op("Resize", &["images", "", "", "s"], vec![]),
            vec![ints("s", &[1, 3, 5, 7])],
            "f32 [1, 3, 5, 7]",
        ),
        ("pad", op("Pad", &["images", "s"], vec![]), vec![ints("s", &[0, 0, 1, 1, 0, 0, 2, 2])], "f32 [1, 3, 11, 9]"),
        (
            "mean",
            op("ReduceMean", &["images"], vec![make::ints("axes", &[-1]), make::int("keepdims", 0)]),
            vec![],
            "f32 [1, 3, 8]",
        ),
        ("mean over all", op("ReduceMean", &["images"], vec![make::int("keepdims", 0)]), vec![], "f32 []"),
        ("arg max", op("ArgMax", &["images"], vec![make::int("axis", 1)]), vec![], "i64 [1, 1, 8, 6]"),
        ("top k", op("TopK", &["images", "s"], vec![]), vec![ints("s", &[2])], "f32 [1, 3, 8, 2]"),
        (
            "top k of too few",
            op("TopK", &["images", "s"], vec![]),
            vec![ints("s", &[7])],
            "error: found 6 elements, expected at least the 7 asked for",
        ),
        ("product", op("MatMul", &["images", "w"], vec![]), vec![weight(&[6, 4])], "f32 [1, 3, 8, 4]"),
        (
            "product does not fit",
            op("MatMul", &["images", "w"], vec![]),
            vec![weight(&[5, 4])],
            "error: found matrices with inner lengths 6 and 5, expected equal ones",
        ),
        ("unsqueeze", op("Unsqueeze", &["images", "s"], vec![]), vec![ints("s", &[0, -1])], "f32 [1, 1, 3, 8, 6, 1]"),
        ("squeeze", op("Squeeze", &["images"], vec![]), vec![], "f32 [3, 8, 6]"),
        (
            "squeeze of 3",
            op("Squeeze", &["images", "s"], vec![]),
            vec![ints("s", &[1])],
            "error: found [1, 3, 8, 6], expected length 1 on axis 1",
        ),
        ("expand", op("Expand", &["images", "s"], vec![]), vec![ints("s", &[2, 1, 1, 1])], "f32 [2, 3, 8, 6]"),
        ("tile", op("Tile", &["images", "s"], vec![]), vec![ints("s", &[1, 2, 1, 1])], "f32 [1, 6, 8, 6]"),
        ("flatten", op("Flatten", &["images"], vec![]), vec![], "f32 [1, 144]"),
        (
            "space to depth",
            op("SpaceToDepth", &["images"], vec![make::int("blocksize", 2)]),
            vec![],
            "f32 [1, 12, 4, 3]",
        ),
        (
            "depth to space",
            op("DepthToSpace", &["images"], vec![make::int("blocksize", 2)]),
            vec![],
            "error: found length 3, expected a multiple of 4",
        ),
        ("quantise", op("QuantizeLinear", &["images", "w"], vec![]), vec![weight(&[1])], "u8 [1, 3, 8, 6]"),
        ("boxes", op("NonMaxSuppression", &["images", "images"], vec![]), vec![], "i64 [?, 3]"),
        ("unknown", op("Einsum", &["images"], vec![]), vec![], "undefined of unknown rank"),
    ];
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|(name, nodes, weights, wanted)| {
            let found = text(&y(&[1, 3, 8, 6], nodes, weights));
            (found != wanted).then(|| format!("{name}: found {found}, expected {wanted}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn split_gives_each_part_its_length() {
    let nodes = vec![make::node("Split", "s", &["images", "p"], &["a", "y"], vec![make::int("axis", 1)])];
    assert_eq!(text(&y(&[1, 6, 4], nodes.clone(), vec![ints("p", &[2, 4])])), "f32 [1, 4, 4]");
    assert!(text(&y(&[1, 6, 4], nodes, vec![ints("p", &[2, 3])])).starts_with("error: found parts"));
    let even = vec![make::node("Split", "s", &["images"], &["a", "b", "c", "y"], vec![make::int("axis", 1)])];
    assert_eq!(text(&y(&[1, 7, 4], even, vec![])), "f32 [1, 1, 4]");
}

/// The head of a dynamic export: batch and grid are read from tensors, combined and used as a target shape.
fn dynamic_head() -> (Vec<NodeProto>, Vec<TensorProto>) {
    let nodes = vec![
        make::node("Shape", "", &["images"], &["shape"], vec![]),
        make::node("Gather", "", &["shape", "zero"], &["batch"], vec![]),
        make::node("Slice", "", &["shape", "two", "four"], &["grid"], vec![]),
        make::node("ReduceProd", "", &["grid"], &["cells"], vec![make::int("keepdims", 1)]),
        make::node("Cast", "", &["cells"], &["cells_f"], vec![make::int("to", 1)]),
        make::node("Div", "", &["cells_f", "half"], &["halved"], vec![]),
        make::node("Floor", "", &["halved"], &["floor"], vec![]),
        make::node("Cast", "", &["floor"], &["columns"], vec![make::int("to", 7)]),
        make::node("Unsqueeze", "", &["batch", "axis"], &["batch1"], vec![]),
        make::node("Concat", "", &["batch1", "open", "columns"], &["mixed"], vec![make::int("axis", 0)]),
        make::node("Equal", "", &["mixed", "open"], &["is_open"], vec![]),
        make::node("ConstantOfShape", "", &["three"], &["zeros"], vec![]),
        make::node("Cast", "", &["zeros"], &["zeros_i"], vec![make::int("to", 7)]),
        make::node("Add", "", &["zeros_i", "open"], &["minus"], vec![]),
        make::node("Where", "", &["is_open", "minus", "mixed"], &["target"], vec![]),
        make::node("Reshape", "", &["images", "target"], &["y"], vec![]),
    ];
    let weights = vec![
        from_i64("zero", &[], &[0]),
        ints("two", &[2]),
        ints("four", &[4]),
        from_f32("half", &[], &[2.0]),
        ints("axis", &[0]),
        ints("open", &[-1]),
        ints("three", &[3]),
    ];
    (nodes, weights)
}

#[test]
fn shape_arithmetic_of_dynamic_exports_resolves_once_the_input_is_pinned() {
    let (nodes, weights) = dynamic_head();
    assert_eq!(text(&y(&[2, 3, 4, 6], nodes.clone(), weights.clone())), "f32 [2, 6, 12]");
    assert_eq!(text(&y(&[-1, 3, -1, 6], nodes, weights)), "f32 [?, ?, ?]");
}

#[test]
fn unknown_operators_are_listed_and_never_guessed() {
    let nodes = vec![
        make::node("Einsum", "strange", &["images"], &["x"], vec![]),
        make::node("Relu", "after", &["x"], &["y"], vec![]),
        make::node("NonZero", "count", &["images"], &["z"], vec![]),
    ];
    let shapes = infer(&Sample::new(&[1, 3], nodes, vec![value("y", DataType::F32, &[])]).model()).unwrap();
    let places: Vec<&str> = shapes.unknown.iter().map(|unknown| unknown.place.as_str()).collect();
    assert_eq!(places, ["node `strange` (Einsum)", "node `count` (NonZero)"]);
    assert_eq!(shapes.fact("y").shape, None);
}

#[test]
fn contradictions_name_their_node() {
    let error = y(&[1, 3, 8, 6], op("Reshape", &["images", "s"], vec![]), vec![ints("s", &[-1, -1])]).unwrap_err();
    assert_eq!(error.place(), Some("node `n` (Reshape)"));
}
