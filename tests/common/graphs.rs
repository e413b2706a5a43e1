//! Small ONNX graphs whose outputs are constants, whatever the picture: they test types, shapes and values, not accuracy.

use onnx_protobuf::{
    Message, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
    attribute_proto, tensor_shape_proto, type_proto,
};

/// `TensorProto.DataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    F32 = 1,
    U8 = 2,
    I8 = 3,
    I32 = 6,
    I64 = 7,
    F16 = 10,
}

/// One constant output.
pub(crate) struct Output {
    pub(crate) name: &'static str,
    pub(crate) element: Type,
    pub(crate) shape: Vec<i64>,
    pub(crate) values: Vec<f32>,
}

impl Output {
    pub(crate) fn new(name: &'static str, shape: &[i64], values: Vec<f32>) -> Self {
        assert_eq!(shape.iter().product::<i64>(), values.len() as i64);
        Output { name, element: Type::F32, shape: shape.to_vec(), values }
    }

    pub(crate) fn of(mut self, element: Type) -> Self {
        self.element = element;
        self
    }
}

/// The head of an anchor-free detector, `[1, 4 + classes, anchors]`, from `[cx, cy, w, h, score, class]`.
pub(crate) fn raw_head(classes: usize, anchors: usize, boxes: &[[f32; 6]]) -> Output {
    let mut values = vec![0.0; (4 + classes) * anchors];
    for (anchor, fields) in boxes.iter().enumerate() {
        for (row, &field) in fields[..4].iter().enumerate() {
            values[row * anchors + anchor] = field;
        }
        values[(4 + fields[5] as usize) * anchors + anchor] = fields[4];
    }
    Output::new("output0", &[1, 4 + classes as i64, anchors as i64], values)
}

/// A model whose graph holds nothing yet.
fn empty(ir_version: i64, opset_version: i64) -> ModelProto {
    let mut model = ModelProto::new();
    model.ir_version = ir_version;
    let mut opset = OperatorSetIdProto::new();
    opset.version = opset_version;
    model.opset_import.push(opset);
    model.graph.mut_or_insert_default().name = "main_graph".into();
    model
}

/// A graph with input `images` and these outputs: each is its constant + 0 × mean(images), so that nothing folds away.
pub(crate) fn constant(input: Type, input_shape: [i64; 4], outputs: Vec<Output>) -> Vec<u8> {
    let mut model = empty(8, 17);
    let graph = model.graph.mut_or_insert_default();
    graph.input.push(value_info("images", input, &input_shape));
    let mut source = "images";
    if input != Type::F32 {
        graph.node.push(cast("images", "images_f32", Type::F32));
        source = "images_f32";
    }
    let mut mean = node("ReduceMean", &[source], &["mean"]);
    mean.attribute.push(int_attribute("keepdims", 0));
    graph.node.push(mean);
    graph.node.push(node("Mul", &["mean", "zero"], &["nothing"]));
    graph.initializer.push(tensor("zero", &[], &[0.0]));
    for output in outputs {
        let (constant, sum) = (format!("{}_constant", output.name), format!("{}_sum", output.name));
        graph.initializer.push(tensor(&constant, &output.shape, &output.values));
        let direct = output.element == Type::F32;
        let target = if direct { output.name } else { &sum };
        graph.node.push(node("Add", &[&constant, "nothing"], &[target]));
        if !direct {
            graph.node.push(cast(&sum, output.name, output.element));
        }
        graph.output.push(value_info(output.name, output.element, &output.shape));
    }
    model.write_to_bytes().unwrap()
}

/// A graph that answers from the picture: 16 anchors of one class, each scored with the red mean of its tile of a
/// 64 × 64 input, quantised to int8 and back when `quantised`.
pub(crate) fn tiles(quantised: bool) -> Vec<u8> {
    tiles_reshaped(quantised, 16)
}

/// As [`tiles`], but its scores are reshaped to `anchors`: anything but 16 loads and cannot run.
pub(crate) fn tiles_reshaped(quantised: bool, anchors: i64) -> Vec<u8> {
    let mut model = empty(8, 17);
    let graph = model.graph.mut_or_insert_default();
    graph.input.push(value_info("images", Type::F32, &[1, 3, 64, 64]));
    let mut source = "images";
    if quantised {
        graph.initializer.push(tensor("scale", &[], &[1.0 / 127.0]));
        graph.initializer.push(int8_zero("zero_point"));
        graph.node.push(node("QuantizeLinear", &["images", "scale", "zero_point"], &["quantised"]));
        graph.node.push(node("DequantizeLinear", &["quantised", "scale", "zero_point"], &["dequantised"]));
        source = "dequantised";
    }
    let mut pool = node("AveragePool", &[source], &["pooled"]);
    pool.attribute.push(ints_attribute("kernel_shape", &[16, 16]));
    pool.attribute.push(ints_attribute("strides", &[16, 16]));
    pool.attribute.push(ints_attribute("pads", &[0, 0, 0, 0]));
    graph.node.push(pool);
    graph.initializer.push(tensor("red", &[1, 3, 1, 1], &[1.0, 0.0, 0.0]));
    let mut weigh = node("Conv", &["pooled", "red"], &["scores"]);
    weigh.attribute.push(ints_attribute("strides", &[1, 1]));
    weigh.attribute.push(ints_attribute("dilations", &[1, 1]));
    weigh.attribute.push(ints_attribute("pads", &[0, 0, 0, 0]));
    graph.node.push(weigh);
    graph.initializer.push(integers("flat", &[1, 1, anchors]));
    graph.node.push(node("Reshape", &["scores", "flat"], &["flat_scores"]));
    let geometry: Vec<f32> = (0..64)
        .map(|at| match at / 16 {
            0 => (at % 4) as f32 * 16.0 + 8.0,
            1 => (at % 16 / 4) as f32 * 16.0 + 8.0,
            _ => 16.0,
        })
        .collect();
    graph.initializer.push(tensor("geometry", &[1, 4, 16], &geometry));
    let mut join = node("Concat", &["geometry", "flat_scores"], &["output0"]);
    join.attribute.push(int_attribute("axis", 1));
    graph.node.push(join);
    graph.output.push(value_info("output0", Type::F32, &[1, 5, 16]));
    model.write_to_bytes().unwrap()
}

fn node(kind: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let mut node = NodeProto::new();
    node.op_type = kind.into();
    node.name = format!("{kind}_{}", outputs[0]);
    node.input = inputs.iter().map(|&name| name.into()).collect();
    node.output = outputs.iter().map(|&name| name.into()).collect();
    node
}

fn cast(from: &str, to: &str, element: Type) -> NodeProto {
    let mut node = node("Cast", &[from], &[to]);
    node.attribute.push(int_attribute("to", element as i64));
    node
}

/// The graph of [`constant`] with three convolutions between the picture and its mean: the second can be stored in 8 bits.
pub(crate) fn with_convolutions(model: &[u8]) -> Vec<u8> {
    let mut model = ModelProto::parse_from_bytes(model).unwrap();
    let graph = model.graph.mut_or_insert_default();
    let mut source = "images".to_owned();
    for (at, name) in ["first", "second", "third"].iter().enumerate() {
        let (weight, output) = (format!("{name}_weight"), format!("{name}_output"));
        graph.initializer.push(tensor(&weight, &[3, 3, 1, 1], &[0.5, -0.25, 0.125, 0.3, 0.2, 0.1, -0.4, 0.6, 0.01]));
        let mut convolution = node("Conv", &[&source, &weight], &[&output]);
        convolution.name = (*name).into();
        for (attribute, values) in [("dilations", vec![1, 1]), ("pads", vec![0; 4]), ("strides", vec![1, 1])] {
            convolution.attribute.push(ints_attribute(attribute, &values));
        }
        graph.node.insert(at, convolution);
        source = output;
    }
    let mean = graph.node.iter_mut().find(|node| node.op_type == "ReduceMean").unwrap();
    mean.input[0] = source;
    model.write_to_bytes().unwrap()
}

/// A concatenation between quantisations whose scales are halves, as INT8 for a GPU has them: the first 84 pixels
/// of the picture, twice, as `[1, 6, 84]`.
/// ONNX Runtime 1.32 joins the three to one operator that takes no half scales, and refuses its own graph.
pub(crate) fn half_scales_around_a_concatenation() -> Vec<u8> {
    let mut model = empty(9, 19);
    let graph = model.graph.mut_or_insert_default();
    graph.input.push(value_info("images", Type::F32, &[1, 3, 64, 64]));
    let mut scale = tensor("scale", &[], &[]);
    scale.data_type = Type::F16 as i32;
    scale.raw_data = half::f16::from_f32(1.0 / 127.0).to_le_bytes().to_vec();
    graph.initializer.push(scale);
    graph.initializer.push(int8_zero("zero_point"));
    graph.initializer.push(integers("flat", &[1, 6, 4096]));
    graph.node.push(cast("images", "left", Type::F16));
    graph.node.push(node("Relu", &["left"], &["right"]));
    let quantise = |graph: &mut onnx_protobuf::GraphProto, name: &str| {
        let (low, back) = (format!("{name}_low"), format!("{name}_back"));
        graph.node.push(node("QuantizeLinear", &[name, "scale", "zero_point"], &[&low]));
        graph.node.push(node("DequantizeLinear", &[&low, "scale", "zero_point"], &[&back]));
    };
    quantise(graph, "left");
    quantise(graph, "right");
    let mut join = node("Concat", &["left_back", "right_back"], &["joined"]);
    join.attribute.push(int_attribute("axis", 1));
    graph.node.push(join);
    quantise(graph, "joined");
    graph.node.push(cast("joined_back", "float", Type::F32));
    graph.node.push(node("Reshape", &["float", "flat"], &["pixels"]));
    for (name, value) in [("first", 0), ("end", 84), ("axis", 2)] {
        graph.initializer.push(integers(name, &[value]));
    }
    graph.node.push(node("Slice", &["pixels", "first", "end", "axis"], &["output0"]));
    graph.output.push(value_info("output0", Type::F32, &[1, 6, 84]));
    model.write_to_bytes().unwrap()
}

fn int_attribute(name: &str, value: i64) -> onnx_protobuf::AttributeProto {
    let mut attribute = onnx_protobuf::AttributeProto::new();
    attribute.name = name.into();
    attribute.i = value;
    attribute.type_ = attribute_proto::AttributeType::INT.into();
    attribute
}

fn ints_attribute(name: &str, values: &[i64]) -> onnx_protobuf::AttributeProto {
    let mut attribute = onnx_protobuf::AttributeProto::new();
    attribute.name = name.into();
    attribute.ints = values.to_vec();
    attribute.type_ = attribute_proto::AttributeType::INTS.into();
    attribute
}

fn tensor(name: &str, shape: &[i64], values: &[f32]) -> TensorProto {
    let mut tensor = TensorProto::new();
    tensor.name = name.into();
    tensor.data_type = Type::F32 as i32;
    tensor.dims = shape.to_vec();
    tensor.raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor
}

fn integers(name: &str, values: &[i64]) -> TensorProto {
    let mut tensor = TensorProto::new();
    tensor.name = name.into();
    tensor.data_type = Type::I64 as i32;
    tensor.dims = vec![values.len() as i64];
    tensor.raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor
}

fn int8_zero(name: &str) -> TensorProto {
    let mut tensor = TensorProto::new();
    tensor.name = name.into();
    tensor.data_type = Type::I8 as i32;
    tensor.raw_data = vec![0];
    tensor
}

fn value_info(name: &str, element: Type, shape: &[i64]) -> ValueInfoProto {
    let dimension = |&size: &i64| {
        let mut dimension = tensor_shape_proto::Dimension::new();
        dimension.value = Some(tensor_shape_proto::dimension::Value::DimValue(size));
        dimension
    };
    let mut tensor = type_proto::Tensor::new();
    tensor.elem_type = element as i32;
    let mut dimensions = TensorShapeProto::new();
    dimensions.dim = shape.iter().map(dimension).collect();
    tensor.shape = Some(dimensions).into();
    let mut kind = TypeProto::new();
    kind.value = Some(type_proto::Value::TensorType(tensor));
    let mut info = ValueInfoProto::new();
    info.name = name.into();
    info.type_ = Some(kind).into();
    info
}
