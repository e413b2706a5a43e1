//! What can be known about a tensor before it runs.

use crate::onnx::tensor::{self, DataType};
use onnx_protobuf::tensor_shape_proto::Dimension;
use onnx_protobuf::tensor_shape_proto::dimension::Value as DimensionValue;
use onnx_protobuf::type_proto::Value;
use onnx_protobuf::{TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto};
use std::fmt;

/// Longest dimension that is computed with, so that no sum or product of two overflows; longer ones count as unknown.
const LONGEST: i64 = 1 << 31;

/// One dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// A fixed length, not negative.
    Known(i64),
    /// Any length.
    Unknown,
}

impl Dim {
    /// The length when known.
    pub fn known(self) -> Option<i64> {
        match self {
            Dim::Known(length) => Some(length),
            Dim::Unknown => None,
        }
    }
}

impl From<Option<i64>> for Dim {
    fn from(length: Option<i64>) -> Self {
        length.filter(|length| (0..=LONGEST).contains(length)).map_or(Dim::Unknown, Dim::Known)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(length) => write!(f, "{length}"),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// The values of a small constant, row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Integers and Booleans.
    Ints(Vec<i64>),
    /// Floats of any width.
    Floats(Vec<f32>),
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Ints(values) => values.len(),
            Values::Floats(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values at `positions`; `None` when one lies outside.
    pub(super) fn pick(&self, positions: &[usize]) -> Option<Values> {
        Some(match self {
            Values::Ints(values) => {
                Values::Ints(positions.iter().map(|&at| values.get(at).copied()).collect::<Option<_>>()?)
            }
            Values::Floats(values) => {
                Values::Floats(positions.iter().map(|&at| values.get(at).copied()).collect::<Option<_>>()?)
            }
        })
    }
}

/// Element type, shape and, for small constants, values of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Element type; [`DataType::Undefined`] when unknown.
    pub element: DataType,
    /// Shape; `None` when even the rank is unknown.
    pub shape: Option<Vec<Dim>>,
    /// Values of a small constant.
    pub values: Option<Values>,
}

impl Fact {
    /// Nothing is known.
    pub const NOTHING: Fact = Fact { element: DataType::Undefined, shape: None, values: None };

    /// A tensor of this type and shape.
    pub fn new(element: DataType, shape: Option<Vec<Dim>>) -> Self {
        Fact { element, shape, values: None }
    }

    /// A tensor of this type whose dimensions are all known.
    pub fn with_fixed_shape(element: DataType, shape: &[i64]) -> Self {
        Fact::new(element, Some(shape.iter().map(|&length| Some(length).into()).collect()))
    }

    /// The same with its values, if they are as many as the shape says and not too many to compute with.
    #[must_use]
    pub fn with_values(mut self, values: Option<Values>) -> Self {
        let wanted = self.fixed().and_then(|shape| volume(&shape));
        self.values = values.filter(|values| Some(values.len()) == wanted && values.len() <= super::MAX_VALUES);
        self
    }

    /// The shape when every dimension is known.
    pub fn fixed(&self) -> Option<Vec<i64>> {
        self.shape.as_ref()?.iter().map(|dim| dim.known()).collect()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> Option<usize> {
        self.shape.as_ref().map(Vec::len)
    }

    /// The values when they are integers.
    pub fn ints(&self) -> Option<&[i64]> {
        match &self.values {
            Some(Values::Ints(values)) => Some(values),
            _ => None,
        }
    }

    /// The values when they are floats.
    pub fn floats(&self) -> Option<&[f32]> {
        match &self.values {
            Some(Values::Floats(values)) => Some(values),
            _ => None,
        }
    }

    /// What a declared value says.
    pub fn declared(info: &ValueInfoProto) -> Self {
        let Some(Value::TensorType(kind)) = info.type_.as_ref().and_then(|kind| kind.value.as_ref()) else {
            return Fact::NOTHING;
        };
        let shape =
            kind.shape.as_ref().map(|shape| shape.dim.iter().take(super::MAX_RANK + 1).map(declared_dim).collect());
        Fact::new(DataType::from_code(kind.elem_type), shape)
    }

    /// Type, shape and small values of a constant.
    pub fn of_tensor(weight: &TensorProto) -> Self {
        let element = tensor::data_type(weight);
        let fact = Fact::with_fixed_shape(element, &weight.dims);
        if !super::is_small(weight) {
            return fact;
        }
        let values = if element.is_float() {
            tensor::f32_data(weight).ok().map(Values::Floats)
        } else {
            tensor::i64_data(weight).ok().map(Values::Ints)
        };
        fact.with_values(values)
    }

    /// This as a declared value named `name`; unknown dimensions are left open.
    pub fn declare(&self, name: &str) -> ValueInfoProto {
        let shape = self.shape.as_ref().map(|shape| TensorShapeProto {
            dim: shape
                .iter()
                .map(|dim| Dimension { value: dim.known().map(DimensionValue::DimValue), ..Dimension::default() })
                .collect(),
            ..TensorShapeProto::default()
        });
        let kind =
            type_proto::Tensor { elem_type: self.element.code(), shape: shape.into(), ..type_proto::Tensor::default() };
        let kind = TypeProto { value: Some(Value::TensorType(kind)), ..TypeProto::default() };
        ValueInfoProto { name: name.to_owned(), type_: Some(kind).into(), ..ValueInfoProto::default() }
    }
}

/// As in `f32 [1, 84, ?]`.
impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.element, shape_text(self.shape.as_deref()))
    }
}

/// As in `[1, 84, ?]`.
pub(super) fn shape_text(shape: Option<&[Dim]>) -> String {
    match shape {
        Some(shape) => format!("[{}]", shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")),
        None => "of unknown rank".to_owned(),
    }
}

fn declared_dim(dim: &Dimension) -> Dim {
    match dim.value {
        Some(DimensionValue::DimValue(length)) if length > 0 => Some(length).into(),
        _ => Dim::Unknown,
    }
}

/// Number of elements of a fixed shape; `None` when it does not fit.
pub(super) fn volume(shape: &[i64]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, &length| product.checked_mul(usize::try_from(length).ok()?))
}
