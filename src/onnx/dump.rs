//! A graph as text, for golden files and for people: one line a node, shapes and small constants included.

use super::index::GraphIndex;
use super::{Model, node, tensor};
use onnx_protobuf::attribute_proto::AttributeType;
use onnx_protobuf::tensor_shape_proto::dimension::Value as Dimension;
use onnx_protobuf::type_proto::Value;
use onnx_protobuf::{AttributeProto, NodeProto, TensorProto, ValueInfoProto};
use std::fmt::Write;

/// Longest list of numbers that is printed in full.
const SHOWN_VALUES: usize = 8;

/// The graph of `model` as text. Equal graphs give equal texts; weights are shown by type, shape and a checksum.
pub fn graph(model: &Model) -> String {
    let graph = model.graph();
    let index = GraphIndex::new(graph);
    let mut text = String::new();
    let _ = writeln!(text, "opset {}", model.opset());
    for input in index.inputs() {
        let _ = writeln!(text, "input {}", value_info(input));
    }
    for tensor in &graph.initializer {
        let _ = writeln!(text, "weight {} {}", tensor.name, constant(tensor));
    }
    for node in &graph.node {
        let _ = writeln!(text, "{}", line(node));
    }
    for output in &graph.output {
        let _ = writeln!(text, "output {}", value_info(output));
    }
    text
}

/// A node as one line: `a, b = Op(c, d) {attribute = value} name`.
pub fn line(node: &NodeProto) -> String {
    let mut text = format!("{} = ", node.output.join(", "));
    if !node::is_default_domain(node) {
        let _ = write!(text, "{}.", node.domain);
    }
    let _ = write!(text, "{}({})", node.op_type, node.input.join(", "));
    if !node.attribute.is_empty() {
        let mut attributes: Vec<String> = node.attribute.iter().map(attribute).collect();
        attributes.sort();
        let _ = write!(text, " {{{}}}", attributes.join(", "));
    }
    text
}

fn value_info(info: &ValueInfoProto) -> String {
    let (kind, shape) = declared(info);
    format!("{} {kind} {shape}", info.name)
}

/// Element type and shape of a declared value, as in `f32` and `[1, 3, height, 640]`; `?` for what is not stated.
pub fn declared(info: &ValueInfoProto) -> (String, String) {
    let Some(Value::TensorType(kind)) = info.type_.as_ref().and_then(|kind| kind.value.as_ref()) else {
        return ("?".to_owned(), "?".to_owned());
    };
    let shape = kind.shape.as_ref().map_or("?".to_owned(), |shape| {
        let dims: Vec<String> = shape
            .dim
            .iter()
            .map(|dim| match &dim.value {
                Some(Dimension::DimValue(value)) => value.to_string(),
                Some(Dimension::DimParam(name)) => name.clone(),
                _ => "?".to_owned(),
            })
            .collect();
        format!("[{}]", dims.join(", "))
    });
    (tensor::DataType::from_code(kind.elem_type).to_string(), shape)
}

fn constant(tensor: &TensorProto) -> String {
    let kind = tensor::data_type(tensor);
    let head = format!("{kind} {:?}", tensor.dims);
    if tensor::element_count(tensor).is_ok_and(|count| count <= crate::units::count(SHOWN_VALUES)) {
        if let Ok(values) = tensor::i64_data(tensor) {
            return format!("{head} = {values:?}");
        }
        if let Ok(values) = tensor::f32_data(tensor) {
            return format!("{head} = {values:?}");
        }
    }
    format!("{head} # {:08x}", checksum(tensor))
}

/// FNV-1a over the data, so that a changed weight changes the text.
fn checksum(tensor: &TensorProto) -> u32 {
    let mut sum = 0x811c_9dc5_u32;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            sum = (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    };
    add(&tensor.raw_data);
    tensor.float_data.iter().for_each(|value| add(&value.to_le_bytes()));
    tensor.int32_data.iter().for_each(|value| add(&value.to_le_bytes()));
    tensor.int64_data.iter().for_each(|value| add(&value.to_le_bytes()));
    sum
}

fn attribute(attribute: &AttributeProto) -> String {
    let value = match attribute.type_.enum_value() {
        Ok(AttributeType::FLOAT) => attribute.f.to_string(),
        Ok(AttributeType::INT) => attribute.i.to_string(),
        Ok(AttributeType::STRING) => format!("{:?}", String::from_utf8_lossy(&attribute.s)),
        Ok(AttributeType::FLOATS) => shortened(&attribute.floats),
        Ok(AttributeType::INTS) => shortened(&attribute.ints),
        Ok(AttributeType::TENSOR) => constant(attribute.t.get_or_default()),
        Ok(AttributeType::GRAPH) => format!("graph of {} nodes", attribute.g.node.len()),
        _ => "…".to_owned(),
    };
    format!("{} = {value}", attribute.name)
}

fn shortened<T: std::fmt::Debug>(values: &[T]) -> String {
    match values.get(..SHOWN_VALUES) {
        Some(first) if values.len() > SHOWN_VALUES => format!("{first:?} and {} more", values.len() - SHOWN_VALUES),
        _ => format!("{values:?}"),
    }
}
