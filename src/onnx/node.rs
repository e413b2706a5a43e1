//! Nodes and their attributes, read with their types checked.

use super::tensor::{self, DataType};
use crate::error::{Error, Result};
use onnx_protobuf::attribute_proto::AttributeType;
use onnx_protobuf::{AttributeProto, NodeProto, TensorProto};

/// What people call a node: its name, else its operator and first output.
pub fn label(node: &NodeProto) -> String {
    if node.name.is_empty() {
        format!("{} → {}", node.op_type, node.output.first().map_or("", String::as_str))
    } else {
        node.name.clone()
    }
}

/// The steps of a name: `/model.10/cv1/conv/Conv` has four.
pub fn steps(name: &str) -> impl Iterator<Item = &str> {
    name.split('/').filter(|step| !step.is_empty())
}

/// Whether `name` begins with `wanted`, step by step; every name begins with no step at all.
pub fn begins_with<'a>(name: &str, mut wanted: impl Iterator<Item = &'a str>) -> bool {
    let mut found = steps(name);
    wanted.all(|step| found.next() == Some(step))
}

/// Place of an error: `node `/model.0/conv` (Conv)`.
pub fn place(node: &NodeProto) -> String {
    format!("node `{}` ({})", label(node), node.op_type)
}

/// Whether the node holds most of the arithmetic of a network: a convolution or a matrix product.
pub fn is_heavy(node: &NodeProto) -> bool {
    matches!(node.op_type.as_str(), "Conv" | "ConvTranspose" | "MatMul" | "Gemm")
}

/// Whether the node belongs to the standard domain of ONNX.
pub fn is_default_domain(node: &NodeProto) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx")
}

/// The attribute `name` of `node`.
pub fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

/// The integer attribute `name`.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] when the attribute is of another type; the same holds for the getters below.
pub fn int(node: &NodeProto, name: &str) -> Result<Option<i64>> {
    typed(node, name, AttributeType::INT).map(|found| found.map(|attribute| attribute.i))
}

/// The integer attribute `name`, or `default` when absent.
///
/// # Errors
/// As [`int`].
pub fn int_or(node: &NodeProto, name: &str, default: i64) -> Result<i64> {
    int(node, name).map(|found| found.unwrap_or(default))
}

/// The float attribute `name`.
///
/// # Errors
/// As [`int`].
pub fn float(node: &NodeProto, name: &str) -> Result<Option<f32>> {
    typed(node, name, AttributeType::FLOAT).map(|found| found.map(|attribute| attribute.f))
}

/// The list of integers `name`.
///
/// # Errors
/// As [`int`].
pub fn ints<'a>(node: &'a NodeProto, name: &str) -> Result<Option<&'a [i64]>> {
    typed(node, name, AttributeType::INTS).map(|found| found.map(|attribute| attribute.ints.as_slice()))
}

/// The list of floats `name`.
///
/// # Errors
/// As [`int`].
pub fn floats<'a>(node: &'a NodeProto, name: &str) -> Result<Option<&'a [f32]>> {
    typed(node, name, AttributeType::FLOATS).map(|found| found.map(|attribute| attribute.floats.as_slice()))
}

/// The text attribute `name`; bytes that are no UTF-8 are an error.
///
/// # Errors
/// As [`int`].
pub fn text<'a>(node: &'a NodeProto, name: &str) -> Result<Option<&'a str>> {
    let Some(attribute) = typed(node, name, AttributeType::STRING)? else { return Ok(None) };
    std::str::from_utf8(&attribute.s)
        .map(Some)
        .map_err(|_| Error::refused(format!("attribute `{name}` is no UTF-8 text")).at(place(node)))
}

/// The tensor attribute `name`.
///
/// # Errors
/// As [`int`].
pub fn tensor<'a>(node: &'a NodeProto, name: &str) -> Result<Option<&'a TensorProto>> {
    typed(node, name, AttributeType::TENSOR).map(|found| found.and_then(|attribute| attribute.t.as_ref()))
}

fn typed<'a>(node: &'a NodeProto, name: &str, wanted: AttributeType) -> Result<Option<&'a AttributeProto>> {
    let Some(attribute) = attribute(node, name) else { return Ok(None) };
    let unset = attribute.type_.enum_value() == Ok(AttributeType::UNDEFINED);
    if unset || attribute.type_.enum_value() == Ok(wanted) {
        return Ok(Some(attribute));
    }
    Err(Error::refused(format!("found attribute `{name}` of type {:?}, expected {wanted:?}", attribute.type_))
        .at(place(node)))
}

/// The value of a `Constant` node as a tensor named after its output, whichever attribute holds it.
///
/// Gives `None` for strings and sparse tensors.
///
/// # Errors
/// As [`int`].
pub fn constant(node: &NodeProto) -> Result<Option<TensorProto>> {
    let name = node.output.first().map_or("", String::as_str);
    let mut found = None;
    if let Some(value) = tensor(node, "value")? {
        found = Some(value.clone());
    } else if let Some(value) = int(node, "value_int")? {
        found = Some(tensor::from_i64(name, &[], &[value]));
    } else if let Some(values) = ints(node, "value_ints")? {
        found = Some(tensor::from_i64(name, &[length(values)], values));
    } else if let Some(value) = float(node, "value_float")? {
        found = Some(tensor::from_f32(name, &[], &[value]));
    } else if let Some(values) = floats(node, "value_floats")? {
        found = Some(tensor::from_f32(name, &[length(values)], values));
    }
    if let Some(tensor) = &mut found {
        tensor.name = name.to_owned();
    }
    Ok(found)
}

fn length<T>(values: &[T]) -> i64 {
    i64::try_from(values.len()).unwrap_or(i64::MAX)
}

/// The element type a `Cast` casts to.
///
/// # Errors
/// As [`int`].
pub fn cast_target(node: &NodeProto) -> Result<DataType> {
    Ok(int(node, "to")?.and_then(|code| i32::try_from(code).ok()).map_or(DataType::Undefined, DataType::from_code))
}

/// Builders for graph passes.
pub mod make {
    use super::{AttributeProto, AttributeType, NodeProto};

    /// A node of the standard domain.
    pub fn node(
        op_type: &str,
        name: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> NodeProto {
        NodeProto {
            op_type: op_type.to_owned(),
            name: name.to_owned(),
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: outputs.iter().map(|&output| output.to_owned()).collect(),
            attribute: attributes,
            ..NodeProto::default()
        }
    }

    /// An integer attribute.
    pub fn int(name: &str, value: i64) -> AttributeProto {
        AttributeProto {
            name: name.to_owned(),
            type_: AttributeType::INT.into(),
            i: value,
            ..AttributeProto::default()
        }
    }

    /// A list of integers.
    pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
        AttributeProto {
            name: name.to_owned(),
            type_: AttributeType::INTS.into(),
            ints: values.to_vec(),
            ..AttributeProto::default()
        }
    }

    /// A float attribute.
    pub fn float(name: &str, value: f32) -> AttributeProto {
        AttributeProto {
            name: name.to_owned(),
            type_: AttributeType::FLOAT.into(),
            f: value,
            ..AttributeProto::default()
        }
    }
}
