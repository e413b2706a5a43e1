//! Q/DQ pairs: symmetric INT8 is taken, everything else is explained (case P01, the same for every target).
//!
//! | found | decision |
//! | --- | --- |
//! | `i8`, zero point 0 or absent, finite scale above 0 | taken |
//! | `i32` dequantisation of a bias, zero point 0 | taken |
//! | zero point other than 0 | refused: TensorRT's INT8 is symmetric |
//! | `u8`, zero point 0 or absent | refused: TensorRT reads it as `i8`, and values above 127 × scale would saturate |
//! | scale 0, negative, NaN or infinite | refused |
//! | zero point or scale that is not constant | refused |
//! | 16-bit, 4-bit and 8-bit float types | refused |

use crate::error::{Error, Result};
use crate::onnx::index::GraphIndex;
use crate::onnx::shapes::{self, Shapes};
use crate::onnx::tensor::DataType;
use crate::onnx::{Model, node, tensor};
use onnx_protobuf::NodeProto;

const WAY_OUT: &str = "quantise again with symmetric INT8 activations and weights (ONNX Runtime: \
    `activation_type=QuantType.QInt8`, `extra_options={\"ActivationSymmetric\": True, \"WeightSymmetric\": True}`), or give the \
    float export";
/// Most nodes that an error lists.
const LISTED: usize = 8;

/// Refuses Q/DQ nodes that TensorRT cannot take or would compute differently.
pub(super) fn check(model: &Model, decided: &mut Vec<String>) -> Result<()> {
    let nodes: Vec<&NodeProto> = model
        .graph()
        .node
        .iter()
        .filter(|node| matches!(node.op_type.as_str(), "QuantizeLinear" | "DequantizeLinear"))
        .collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let index = GraphIndex::new(model.graph());
    let shapes = shapes::infer(model)?;
    let mut problems = Vec::new();
    let mut biases = 0_usize;
    for node in nodes {
        let element = element(node, &index, &shapes);
        match problem(node, element, &index)? {
            Some(problem) => problems.push(format!("node `{}` ({}): {problem}", node::label(node), node.op_type)),
            None if element == DataType::I32 => biases += 1,
            None => {}
        }
    }
    if biases > 0 {
        decided.push(format!("{biases} biases are stored as `i32` and dequantised, as exported"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    let total = problems.len();
    problems.truncate(LISTED);
    let more = if total > LISTED { format!("; {} more", total - LISTED) } else { String::new() };
    Err(Error::refused(format!("found quantisation that is not symmetric INT8: {}{more}", problems.join("; ")))
        .hint(WAY_OUT))
}

/// The integer type of a Q/DQ node by the ONNX standard.
fn element(node: &NodeProto, index: &GraphIndex<'_>, shapes: &Shapes) -> DataType {
    let input = |position: usize| node.input.get(position).filter(|name| !name.is_empty());
    if let Some(zero_point) = input(2) {
        return match index.initializer(zero_point) {
            Some(tensor) => tensor::data_type(tensor),
            None => shapes.fact(zero_point).element,
        };
    }
    match node.op_type.as_str() {
        "QuantizeLinear" => node.output.first().map_or(DataType::Undefined, |output| shapes.fact(output).element),
        _ => input(0).map_or(DataType::Undefined, |data| shapes.fact(data).element),
    }
}

fn problem(node: &NodeProto, element: DataType, index: &GraphIndex<'_>) -> Result<Option<String>> {
    let given = |position: usize| node.input.get(position).filter(|name| !name.is_empty());
    let Some(scale) = given(1) else { return Ok(Some("no scale".to_owned())) };
    let Some(scale) = index.constant(scale)? else {
        return Ok(Some(format!("scale `{scale}` is computed at run time, expected a constant")));
    };
    if let Some(bad) = tensor::f32_data(&scale)?.into_iter().find(|scale| !(scale.is_finite() && *scale > 0.0)) {
        return Ok(Some(format!("scale {bad}, expected a finite number above 0")));
    }
    let mut zero_point = 0;
    if let Some(name) = given(2) {
        let Some(tensor) = index.constant(name)? else {
            return Ok(Some(format!("zero point `{name}` is computed at run time, expected a constant")));
        };
        if tensor::data_type(&tensor).is_integer() {
            zero_point = tensor::i64_data(&tensor)?.into_iter().find(|&value| value != 0).unwrap_or(0);
        }
    }
    Ok(match element {
        _ if zero_point != 0 => Some(format!("zero point {zero_point} of type `{element}`, expected 0")),
        DataType::I8 => None,
        DataType::I32 if node.op_type == "DequantizeLinear" => None,
        DataType::U8 => Some(
            "type `u8` with zero point 0, expected `i8`: TensorRT would read it as `i8`, and values above 127 × scale would saturate"
                .to_owned(),
        ),
        other => Some(format!("type `{other}`, expected `i8`")),
    })
}
