//! Weights that are no numbers.

use crate::error::{Error, Result};
use crate::onnx::index::GraphIndex;
use crate::onnx::{Model, node, tensor};
use onnx_protobuf::{NodeProto, TensorProto};

/// Refuses NaN anywhere and infinities in weights. Infinite limits and masks, which compare and never multiply, are noted.
pub(super) fn check(model: &Model, decided: &mut Vec<String>) -> Result<()> {
    let index = GraphIndex::new(model.graph());
    for weight in &model.graph().initializer {
        one(weight, &index, decided)?;
    }
    for constant in model.graph().node.iter().filter(|node| node.op_type == "Constant") {
        if let Some(value) = node::constant(constant)? {
            one(&value, &index, decided)?;
        }
    }
    Ok(())
}

fn one(weight: &TensorProto, index: &GraphIndex<'_>, decided: &mut Vec<String>) -> Result<()> {
    if !tensor::data_type(weight).is_float() {
        return Ok(());
    }
    let values = tensor::f32_data(weight)?;
    let nan = values.iter().filter(|value| value.is_nan()).count();
    let infinite = values.iter().filter(|value| value.is_infinite()).count();
    if nan == 0 && infinite == 0 {
        return Ok(());
    }
    let limits_only = index.consumers(&weight.name).all(|user| is_limit(user, &weight.name));
    if nan == 0 && limits_only && !index.graph().output.iter().any(|output| output.name == weight.name) {
        decided
            .push(format!("initialiser `{}` holds {infinite} infinite limits, used for comparison only", weight.name));
        return Ok(());
    }
    Err(Error::refused(format!(
        "found {nan} values that are no number and {infinite} infinite ones among {}, expected finite weights",
        values.len()
    ))
    .at(format!("initialiser `{}`", weight.name))
    .hint("the training diverged or the file is damaged: export from an earlier checkpoint"))
}

fn is_limit(user: &NodeProto, name: &str) -> bool {
    match user.op_type.as_str() {
        "Clip" => user.input.first().is_none_or(|data| data != name),
        "Where" => user.input.first().is_none_or(|condition| condition != name),
        "Pad" => user.input.first().is_none_or(|data| data != name),
        "Max" | "Min" | "Equal" | "Less" | "Greater" | "LessOrEqual" | "GreaterOrEqual" => true,
        _ => false,
    }
}
