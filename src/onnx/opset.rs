//! Raising a graph to a newer operator set without a change of meaning.

use super::node::{self, make};
use super::{Model, tensor};
use crate::error::Result;

/// Oldest opset from which a graph is raised: before it, soft-max and others read their axis differently.
const OLDEST: i64 = 13;
/// Reductions whose axes became an input in opset 18; those of `ReduceSum` did in 13.
const AXES_AS_INPUT_SINCE_18: &[&str] = &[
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
];
/// Operators whose defaults changed on the way.
const CHANGED: &[&str] = &["RoiAlign", "BatchNormalization", "AveragePool", "Loop", "If", "Scan"];

/// Raises the standard domain of `model` to `opset`, at most 19; gives whether it could. A graph of that opset or newer stays as it is.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for an attribute of the wrong type.
pub fn raise(model: &mut Model, opset: i64) -> Result<bool> {
    if model.opset >= opset {
        return Ok(true);
    }
    let changed = |node: &onnx_protobuf::NodeProto| {
        node::is_default_domain(node)
            && CHANGED.contains(&node.op_type.as_str())
            // An inference node of one output means the same in every version.
            && !(node.op_type == "BatchNormalization" && node.output.len() == 1)
            && !(node.op_type == "AveragePool" && matches!(node::int_or(node, "ceil_mode", 0), Ok(0)))
    };
    if model.opset < OLDEST || opset > 19 || model.graph().node.iter().any(changed) {
        return Ok(false);
    }
    if model.opset < 18 && opset >= 18 {
        let mut axes = Vec::new();
        for (position, node) in model.graph_mut().node.iter_mut().enumerate() {
            if !node::is_default_domain(node) {
                continue;
            }
            if AXES_AS_INPUT_SINCE_18.contains(&node.op_type.as_str())
                && let Some(values) = node::ints(node, "axes")?.map(<[i64]>::to_vec)
            {
                let name = format!("opset18_axes_{position}");
                axes.push(tensor::from_i64(&name, &[i64::try_from(values.len()).unwrap_or(0)], &values));
                node.attribute.retain(|attribute| attribute.name != "axes");
                node.input.push(name);
            }
            if node.op_type == "Split" && node.input.get(1).is_none_or(String::is_empty) {
                let outputs = i64::try_from(node.output.len()).unwrap_or(1);
                node.attribute.push(make::int("num_outputs", outputs));
            }
        }
        model.graph_mut().initializer.extend(axes);
    }
    declare(model, opset);
    Ok(true)
}

/// Says opset 17 again where a graph was raised only for the scales of its Q/DQ pairs, and no operator needs more: parsers of
/// TensorRT 8 know no newer one.
pub fn lower(model: &mut Model) {
    let newer = |node: &onnx_protobuf::NodeProto| {
        AXES_AS_INPUT_SINCE_18.contains(&node.op_type.as_str()) || node::attribute(node, "num_outputs").is_some()
    };
    if model.opset == 19 && !model.graph().node.iter().any(newer) {
        declare(model, 17);
    }
}

fn declare(model: &mut Model, opset: i64) {
    for set in model.proto.opset_import.iter_mut().filter(|set| matches!(set.domain.as_str(), "" | "ai.onnx")) {
        set.version = opset;
    }
    // The file format that the standard pairs with opset 19.
    model.proto.ir_version = if opset >= 19 { model.proto.ir_version.max(9) } else { model.proto.ir_version.min(8) };
    model.opset = opset;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::shapes;
    use crate::onnx::tensor::DataType;

    fn sample() -> Model {
        let nodes = vec![
            make::node("Split", "split", &["images"], &["left", "right"], vec![make::int("axis", 2)]),
            make::node("ReduceMax", "most", &["left"], &["output0"], vec![make::ints("axes", &[1])]),
            make::node("Relu", "other", &["right"], &["output1"], vec![]),
        ];
        let outputs =
            vec![value("output0", DataType::F32, &[1, 1, 2, 4]), value("output1", DataType::F32, &[1, 3, 2, 4])];
        Sample::new(&[1, 3, 4, 4], nodes, outputs).model()
    }

    #[test]
    fn axes_become_an_input_and_splits_say_how_many() {
        let mut model = sample();
        let before = shapes::infer(&model).unwrap();
        assert!(raise(&mut model, 19).unwrap());
        assert_eq!((model.opset(), model.proto().ir_version), (19, 9));
        let again = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
        let after = shapes::infer(&again).unwrap();
        for name in ["left", "output0", "output1"] {
            assert_eq!(before.fixed(name), after.fixed(name), "{name}");
        }
        assert!(node::int(&again.graph().node[0], "num_outputs").unwrap() == Some(2));
        lower(&mut model);
        assert_eq!(model.opset(), 19, "its operators need the newer one");
    }

    #[test]
    fn what_changed_its_meaning_is_not_raised() {
        let mut model = sample();
        "RoiAlign".clone_into(&mut model.graph_mut().node[2].op_type);
        assert!(!raise(&mut model, 19).unwrap());
        assert_eq!(model.opset(), 17);
    }
}
