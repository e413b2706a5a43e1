//! Tensors of a model: element types, sizes, and the data behind them wherever the file keeps it.

use crate::error::{Error, Result};
use crate::units;
use half::{bf16, f16};
use onnx_protobuf::TensorProto;
use std::fmt;

/// Element type of a tensor, as ONNX numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum DataType {
    /// Not stated.
    Undefined,
    F32,
    U8,
    I8,
    U16,
    I16,
    I32,
    I64,
    String,
    Bool,
    F16,
    F64,
    U32,
    U64,
    Complex64,
    Complex128,
    BF16,
    F8E4M3,
    F8E4M3Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    U4,
    I4,
    F4E2M1,
    /// A number this program does not know.
    Other(i32),
}

impl DataType {
    /// The type that ONNX writes as `code`.
    pub fn from_code(code: i32) -> Self {
        match code {
            0 => DataType::Undefined,
            1 => DataType::F32,
            2 => DataType::U8,
            3 => DataType::I8,
            4 => DataType::U16,
            5 => DataType::I16,
            6 => DataType::I32,
            7 => DataType::I64,
            8 => DataType::String,
            9 => DataType::Bool,
            10 => DataType::F16,
            11 => DataType::F64,
            12 => DataType::U32,
            13 => DataType::U64,
            14 => DataType::Complex64,
            15 => DataType::Complex128,
            16 => DataType::BF16,
            17 => DataType::F8E4M3,
            18 => DataType::F8E4M3Fnuz,
            19 => DataType::F8E5M2,
            20 => DataType::F8E5M2Fnuz,
            21 => DataType::U4,
            22 => DataType::I4,
            23 => DataType::F4E2M1,
            other => DataType::Other(other),
        }
    }

    /// The number ONNX writes for this type.
    pub fn code(self) -> i32 {
        match self {
            DataType::Undefined => 0,
            DataType::F32 => 1,
            DataType::U8 => 2,
            DataType::I8 => 3,
            DataType::U16 => 4,
            DataType::I16 => 5,
            DataType::I32 => 6,
            DataType::I64 => 7,
            DataType::String => 8,
            DataType::Bool => 9,
            DataType::F16 => 10,
            DataType::F64 => 11,
            DataType::U32 => 12,
            DataType::U64 => 13,
            DataType::Complex64 => 14,
            DataType::Complex128 => 15,
            DataType::BF16 => 16,
            DataType::F8E4M3 => 17,
            DataType::F8E4M3Fnuz => 18,
            DataType::F8E5M2 => 19,
            DataType::F8E5M2Fnuz => 20,
            DataType::U4 => 21,
            DataType::I4 => 22,
            DataType::F4E2M1 => 23,
            DataType::Other(code) => code,
        }
    }

    /// Bits an element takes in raw data; `None` for strings and unknown types.
    pub fn bits(self) -> Option<u64> {
        Some(match self {
            DataType::U4 | DataType::I4 | DataType::F4E2M1 => 4,
            DataType::U8 | DataType::I8 | DataType::Bool => 8,
            DataType::F8E4M3 | DataType::F8E4M3Fnuz | DataType::F8E5M2 | DataType::F8E5M2Fnuz => 8,
            DataType::U16 | DataType::I16 | DataType::F16 | DataType::BF16 => 16,
            DataType::F32 | DataType::I32 | DataType::U32 => 32,
            DataType::F64 | DataType::I64 | DataType::U64 | DataType::Complex64 => 64,
            DataType::Complex128 => 128,
            DataType::Undefined | DataType::String | DataType::Other(_) => return None,
        })
    }

    /// Whether this is a floating-point type that [`f32_data`] can read.
    pub fn is_float(self) -> bool {
        matches!(self, DataType::F32 | DataType::F16 | DataType::BF16 | DataType::F64)
    }

    /// Whether this is an integer or Boolean type that [`i64_data`] can read.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            DataType::U8
                | DataType::I8
                | DataType::U16
                | DataType::I16
                | DataType::I32
                | DataType::I64
                | DataType::U32
                | DataType::U64
                | DataType::Bool
        )
    }
}

/// The short name users see: `f32`, `i8`, `u8`.
impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            DataType::Undefined => "undefined",
            DataType::F32 => "f32",
            DataType::U8 => "u8",
            DataType::I8 => "i8",
            DataType::U16 => "u16",
            DataType::I16 => "i16",
            DataType::I32 => "i32",
            DataType::I64 => "i64",
            DataType::String => "string",
            DataType::Bool => "bool",
            DataType::F16 => "f16",
            DataType::F64 => "f64",
            DataType::U32 => "u32",
            DataType::U64 => "u64",
            DataType::Complex64 => "complex64",
            DataType::Complex128 => "complex128",
            DataType::BF16 => "bf16",
            DataType::F8E4M3 => "f8e4m3fn",
            DataType::F8E4M3Fnuz => "f8e4m3fnuz",
            DataType::F8E5M2 => "f8e5m2",
            DataType::F8E5M2Fnuz => "f8e5m2fnuz",
            DataType::U4 => "u4",
            DataType::I4 => "i4",
            DataType::F4E2M1 => "f4e2m1",
            DataType::Other(code) => return write!(f, "type {code}"),
        };
        f.write_str(name)
    }
}

/// The element type of `tensor`.
pub fn data_type(tensor: &TensorProto) -> DataType {
    DataType::from_code(tensor.data_type)
}

/// Number of elements by the dimensions of `tensor`; 1 for a scalar.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for a negative dimension or a product beyond 64 bits.
pub fn element_count(tensor: &TensorProto) -> Result<u64> {
    tensor
        .dims
        .iter()
        .try_fold(1_u64, |product, &dim| u64::try_from(dim).ok().and_then(|dim| product.checked_mul(dim)))
        .ok_or_else(|| {
            wrong(
                tensor,
                format!("found dimensions {:?}, expected none to be negative and a product below 2⁶⁴", tensor.dims),
            )
        })
}

/// Checks that the data of `tensor` has the length its dimensions and its type ask for.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] naming the tensor, with both lengths.
pub fn check_length(tensor: &TensorProto) -> Result<()> {
    let elements = element_count(tensor)?;
    let kind = data_type(tensor);
    if kind == DataType::String {
        return expect_count(tensor, units::count(tensor.string_data.len()), elements, "strings");
    }
    let bits =
        kind.bits().ok_or_else(|| wrong(tensor, format!("found element type `{kind}`, expected a number type")))?;
    if !tensor.raw_data.is_empty() {
        let bytes = elements.checked_mul(bits).map_or(u64::MAX, |bits| bits.div_ceil(8));
        return expect_count(tensor, units::count(tensor.raw_data.len()), bytes, "bytes of raw data");
    }
    let (found, expected) = match kind {
        DataType::F32 => (tensor.float_data.len(), elements),
        DataType::Complex64 => (tensor.float_data.len(), elements.saturating_mul(2)),
        DataType::F64 => (tensor.double_data.len(), elements),
        DataType::Complex128 => (tensor.double_data.len(), elements.saturating_mul(2)),
        DataType::I64 => (tensor.int64_data.len(), elements),
        DataType::U32 | DataType::U64 => (tensor.uint64_data.len(), elements),
        DataType::U4 | DataType::I4 | DataType::F4E2M1 => (tensor.int32_data.len(), elements.div_ceil(2)),
        _ => (tensor.int32_data.len(), elements),
    };
    expect_count(tensor, units::count(found), expected, "values")
}

fn expect_count(tensor: &TensorProto, found: u64, expected: u64, what: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(wrong(tensor, format!("found {found} {what}, expected {expected} for dimensions {:?}", tensor.dims)))
}

/// The values of a float tensor (`f32`, `f16`, `bf16`, `f64`), as `f32`, in row-major order.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for another type or data of the wrong length.
pub fn f32_data(tensor: &TensorProto) -> Result<Vec<f32>> {
    check_length(tensor)?;
    let raw = &tensor.raw_data;
    Ok(match data_type(tensor) {
        DataType::F32 if raw.is_empty() => tensor.float_data.clone(),
        DataType::F32 => words::<4>(raw).map(f32::from_le_bytes).collect(),
        DataType::F16 if raw.is_empty() => {
            half_words(&tensor.int32_data).map(|bits| f16::from_bits(bits).to_f32()).collect()
        }
        DataType::F16 => words::<2>(raw).map(|bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
        DataType::BF16 if raw.is_empty() => {
            half_words(&tensor.int32_data).map(|bits| bf16::from_bits(bits).to_f32()).collect()
        }
        DataType::BF16 => words::<2>(raw).map(|bytes| bf16::from_le_bytes(bytes).to_f32()).collect(),
        DataType::F64 if raw.is_empty() => tensor.double_data.iter().map(|&value| units::narrow(value)).collect(),
        DataType::F64 => words::<8>(raw).map(|bytes| units::narrow(f64::from_le_bytes(bytes))).collect(),
        other => return Err(wrong(tensor, format!("found element type `{other}`, expected a float type"))),
    })
}

/// The values of an integer or Boolean tensor as `i64`, in row-major order.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for another type, data of the wrong length, or a `u64` above 2⁶³.
pub fn i64_data(tensor: &TensorProto) -> Result<Vec<i64>> {
    check_length(tensor)?;
    let raw = &tensor.raw_data;
    let kind = data_type(tensor);
    if raw.is_empty() {
        return match kind {
            DataType::I64 => Ok(tensor.int64_data.clone()),
            DataType::U32 | DataType::U64 => tensor.uint64_data.iter().map(|&value| too_large(tensor, value)).collect(),
            _ if kind.is_integer() => Ok(tensor.int32_data.iter().map(|&value| i64::from(value)).collect()),
            other => Err(wrong(tensor, format!("found element type `{other}`, expected an integer type"))),
        };
    }
    Ok(match kind {
        DataType::I64 => words::<8>(raw).map(i64::from_le_bytes).collect(),
        DataType::U64 => return words::<8>(raw).map(|bytes| too_large(tensor, u64::from_le_bytes(bytes))).collect(),
        DataType::I32 => words::<4>(raw).map(|bytes| i64::from(i32::from_le_bytes(bytes))).collect(),
        DataType::U32 => words::<4>(raw).map(|bytes| i64::from(u32::from_le_bytes(bytes))).collect(),
        DataType::I16 => words::<2>(raw).map(|bytes| i64::from(i16::from_le_bytes(bytes))).collect(),
        DataType::U16 => words::<2>(raw).map(|bytes| i64::from(u16::from_le_bytes(bytes))).collect(),
        DataType::I8 => words::<1>(raw).map(|bytes| i64::from(i8::from_le_bytes(bytes))).collect(),
        DataType::U8 | DataType::Bool => raw.iter().map(|&byte| i64::from(byte)).collect(),
        other => return Err(wrong(tensor, format!("found element type `{other}`, expected an integer type"))),
    })
}

fn too_large(tensor: &TensorProto, value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| wrong(tensor, format!("found the value {value}, expected at most 2⁶³ − 1")))
}

fn words<const N: usize>(raw: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    raw.as_chunks::<N>().0.iter().copied()
}

fn half_words(values: &[i32]) -> impl Iterator<Item = u16> + '_ {
    values.iter().map(|&value| {
        let [low, high, ..] = value.to_le_bytes();
        u16::from_le_bytes([low, high])
    })
}

fn wrong(tensor: &TensorProto, message: String) -> Error {
    Error::refused(message).at(format!("tensor `{}`", tensor.name)).hint("the file is damaged: export the model again")
}

fn named(name: &str, shape: &[i64], kind: DataType, raw_data: Vec<u8>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: shape.to_vec(),
        data_type: kind.code(),
        raw_data,
        ..TensorProto::default()
    }
}

/// A tensor of `f32` values in row-major order; `values.len()` must be the product of `shape`.
pub fn from_f32(name: &str, shape: &[i64], values: &[f32]) -> TensorProto {
    named(name, shape, DataType::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// A tensor of `f16` values, rounded to nearest from `values`; values beyond ±65504 become infinite.
pub fn from_f32_as_f16(name: &str, shape: &[i64], values: &[f32]) -> TensorProto {
    named(name, shape, DataType::F16, values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect())
}

/// A tensor of `i64` values in row-major order.
pub fn from_i64(name: &str, shape: &[i64], values: &[i64]) -> TensorProto {
    named(name, shape, DataType::I64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// A tensor of `i8` values in row-major order.
pub fn from_i8(name: &str, shape: &[i64], values: &[i8]) -> TensorProto {
    named(name, shape, DataType::I8, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_data_reads_every_float_type_from_raw_and_typed_fields() {
        let values = [1.5_f32, -2.0, 0.25];
        assert_eq!(f32_data(&from_f32("a", &[3], &values)).unwrap(), values);
        assert_eq!(f32_data(&from_f32_as_f16("a", &[3], &values)).unwrap(), values);
        let mut typed = named("a", &[3], DataType::F32, Vec::new());
        typed.float_data = values.to_vec();
        assert_eq!(f32_data(&typed).unwrap(), values);
        let mut typed = named("a", &[1], DataType::F16, Vec::new());
        typed.int32_data = vec![i32::from(f16::from_f32(-2.0).to_bits())];
        assert_eq!(f32_data(&typed).unwrap(), [-2.0]);
        assert!(f32_data(&from_i64("a", &[1], &[1])).is_err());
    }

    #[test]
    fn integer_data_keeps_signs() {
        assert_eq!(i64_data(&from_i8("a", &[2], &[-128, 127])).unwrap(), [-128, 127]);
        assert_eq!(i64_data(&named("a", &[2], DataType::U8, vec![255, 0])).unwrap(), [255, 0]);
        assert_eq!(i64_data(&named("a", &[], DataType::I32, vec![0xff; 4])).unwrap(), [-1]);
    }

    #[test]
    fn wrong_lengths_and_negative_dimensions_are_refused() {
        assert!(check_length(&from_f32("a", &[2, 2], &[0.0; 3])).is_err());
        assert!(check_length(&from_f32("a", &[-1], &[0.0])).is_err());
        assert!(check_length(&from_f32("a", &[i64::MAX, i64::MAX], &[0.0])).is_err());
        assert!(check_length(&from_f32("a", &[0], &[])).is_ok());
        assert!(check_length(&named("a", &[3], DataType::I4, vec![0, 0])).is_ok());
    }

    #[test]
    fn codes_round_trip() {
        for code in -1..40 {
            assert_eq!(DataType::from_code(code).code(), code);
        }
    }
}
