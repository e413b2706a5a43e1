//! Small models for unit tests.

use super::node::make;
use super::{Model, tensor};
use onnx_protobuf::tensor_shape_proto::Dimension;
use onnx_protobuf::tensor_shape_proto::dimension::Value as DimensionValue;
use onnx_protobuf::type_proto::{Tensor, Value};
use onnx_protobuf::{
    GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use onnx_protobuf::{TensorShapeProto, TypeProto, ValueInfoProto};

/// A declared tensor; a negative dimension is written as the name `d`.
pub(crate) fn value(name: &str, kind: tensor::DataType, shape: &[i64]) -> ValueInfoProto {
    let dim = shape
        .iter()
        .map(|&dim| Dimension {
            value: Some(if dim < 0 { DimensionValue::DimParam("d".to_owned()) } else { DimensionValue::DimValue(dim) }),
            ..Dimension::default()
        })
        .collect();
    let kind = Tensor {
        elem_type: kind.code(),
        shape: Some(TensorShapeProto { dim, ..TensorShapeProto::default() }).into(),
        ..Tensor::default()
    };
    let kind = TypeProto { value: Some(Value::TensorType(kind)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), type_: Some(kind).into(), ..ValueInfoProto::default() }
}

/// A model with one opset and the given parts.
pub(crate) struct Sample {
    pub(crate) opset: i64,
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) weights: Vec<TensorProto>,
    pub(crate) inputs: Vec<ValueInfoProto>,
    pub(crate) outputs: Vec<ValueInfoProto>,
    pub(crate) metadata: Vec<(&'static str, String)>,
}

impl Sample {
    /// An input `images` of `input_shape` and `nodes` that lead to the outputs.
    pub(crate) fn new(input_shape: &[i64], nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> Self {
        Sample {
            opset: 17,
            nodes,
            weights: Vec::new(),
            inputs: vec![value("images", tensor::DataType::F32, input_shape)],
            outputs,
            metadata: Vec::new(),
        }
    }

    /// A model with one output of `shape` from `images`, as a detector would have, without its weights.
    pub(crate) fn constant_output(input_shape: &[i64], outputs: &[(&str, tensor::DataType, &[i64])]) -> Self {
        let mut nodes = vec![make::node("ReduceMean", "mean", &["images"], &["mean"], vec![make::int("keepdims", 0)])];
        let mut weights = Vec::new();
        let mut infos = Vec::new();
        for &(name, kind, shape) in outputs {
            let count = usize::try_from(shape.iter().product::<i64>()).unwrap();
            let (weight, float) = (format!("{name}_c"), format!("{name}_f"));
            weights.push(tensor::from_f32(&weight, shape, &vec![0.0; count]));
            nodes.push(make::node("Add", "", &[&weight, "mean"], &[&float], vec![]));
            nodes.push(make::node("Cast", "", &[&float], &[name], vec![make::int("to", i64::from(kind.code()))]));
            infos.push(value(name, kind, shape));
        }
        Sample { weights, ..Sample::new(input_shape, nodes, infos) }
    }

    /// The file.
    pub(crate) fn proto(&self) -> ModelProto {
        let graph = GraphProto {
            name: "sample".to_owned(),
            node: self.nodes.clone(),
            initializer: self.weights.clone(),
            input: self.inputs.clone(),
            output: self.outputs.clone(),
            ..GraphProto::default()
        };
        let opset = OperatorSetIdProto { version: self.opset, ..OperatorSetIdProto::default() };
        let metadata_props = self
            .metadata
            .iter()
            .map(|(key, value)| StringStringEntryProto {
                key: (*key).to_owned(),
                value: value.clone(),
                ..StringStringEntryProto::default()
            })
            .collect();
        ModelProto {
            ir_version: 8,
            opset_import: vec![opset],
            graph: Some(graph).into(),
            metadata_props,
            ..ModelProto::default()
        }
    }

    /// The file's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.proto().write_to_bytes().unwrap()
    }

    /// The model.
    pub(crate) fn model(&self) -> Model {
        Model::from_bytes(&self.bytes()).unwrap()
    }
}
