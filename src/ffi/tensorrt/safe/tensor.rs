//! Inputs and outputs: names, sizes, types.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::CString;

/// Type of a tensor's elements. The numbers are the same in every family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataType {
    /// 32-bit floating point.
    Float,
    /// IEEE 16-bit floating point.
    Half,
    /// Signed 8-bit integer, a quantised value.
    Int8,
    /// Signed 32-bit integer.
    Int32,
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    Uint8,
    /// 8-bit floating point.
    Fp8,
    /// Brain 16-bit floating point.
    Bfloat16,
    /// Signed 64-bit integer.
    Int64,
    /// Two signed 4-bit integers a byte.
    Int4,
    /// Two 4-bit floating-point numbers a byte.
    Fp4,
    /// 8-bit exponent of a block scale.
    E8m0,
}

impl DataType {
    const ALL: [DataType; 12] = [
        DataType::Float,
        DataType::Half,
        DataType::Int8,
        DataType::Int32,
        DataType::Bool,
        DataType::Uint8,
        DataType::Fp8,
        DataType::Bfloat16,
        DataType::Int64,
        DataType::Int4,
        DataType::Fp4,
        DataType::E8m0,
    ];

    /// The type with TensorRT's number.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a number that is not known.
    pub(super) fn of(value: i32) -> Result<DataType> {
        usize::try_from(value).ok().and_then(|index| DataType::ALL.get(index).copied()).ok_or_else(|| {
            Error::refused(format!(
                "found tensor type {value}, expected one of TensorRT's 0 to {}",
                DataType::ALL.len() - 1
            ))
        })
    }

    /// TensorRT's number.
    pub(super) fn value(self) -> i32 {
        DataType::ALL
            .iter()
            .position(|&data_type| data_type == self)
            .and_then(|index| i32::try_from(index).ok())
            .unwrap_or(-1)
    }

    /// Whether layers compute in this type, rather than carry it (indices, shapes, masks).
    pub fn computes(self) -> bool {
        matches!(self, DataType::Float | DataType::Half | DataType::Int8 | DataType::Fp8 | DataType::Bfloat16)
    }

    /// Bits of one element.
    pub fn bits(self) -> u64 {
        match self {
            DataType::Float | DataType::Int32 => 32,
            DataType::Half | DataType::Bfloat16 => 16,
            DataType::Int8 | DataType::Bool | DataType::Uint8 | DataType::Fp8 | DataType::E8m0 => 8,
            DataType::Int64 => 64,
            DataType::Int4 | DataType::Fp4 => 4,
        }
    }
}

/// An input or output of a network or an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorFacts {
    /// Name in the graph.
    pub name: String,
    /// Sizes, outermost first; -1 where one is dynamic.
    pub sizes: Vec<i64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// Input, else output.
    pub input: bool,
}

impl TensorFacts {
    pub(super) fn new(name: CString, sizes: Vec<i64>, data_type: i32, input: bool) -> Result<TensorFacts> {
        let name = name.to_string_lossy().into_owned();
        let data_type = DataType::of(data_type).map_err(|error| error.at(format!("tensor `{name}`")))?;
        Ok(TensorFacts { name, sizes, data_type, input })
    }

    /// Length in bytes, dense; `None` when a size is dynamic or the product overflows.
    pub fn bytes(&self) -> Option<u64> {
        let elements =
            self.sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(u64::try_from(size).ok()?))?;
        elements.checked_mul(self.data_type.bits()).map(|bits| bits.div_ceil(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_tensor_count_bits_and_refuse_dynamic_sizes() {
        let tensor =
            |sizes: &[i64], data_type| TensorFacts { name: "t".into(), sizes: sizes.into(), data_type, input: true };
        assert_eq!(tensor(&[1, 3, 640, 640], DataType::Half).bytes(), Some(2 * 3 * 640 * 640));
        assert_eq!(tensor(&[3], DataType::Int4).bytes(), Some(2));
        assert_eq!(tensor(&[], DataType::Float).bytes(), Some(4));
        assert_eq!(tensor(&[-1, 3], DataType::Float).bytes(), None);
        assert_eq!(tensor(&[i64::MAX, i64::MAX], DataType::Float).bytes(), None);
        for (number, data_type) in (0..).zip(DataType::ALL) {
            assert_eq!(data_type.value(), number);
            assert_eq!(DataType::of(number).unwrap(), data_type);
        }
        assert!(DataType::of(12).is_err() && DataType::of(-1).is_err());
    }
}
