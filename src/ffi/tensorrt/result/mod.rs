//! One thin function per call: checks for null, copies texts, turns missing methods into errors.
//!
//! Every function is `unsafe` for one reason, not repeated at each: the objects behind `self` and the arguments must be alive,
//! belong to the same library, and not be used by another thread where NVIDIA's thread rules forbid it. The safe layer
//! ensures that. Methods are those of NVIDIA's C++ API reference with the same name.

mod build;
mod parser;
mod run;

use super::sys::{Dims32, Dims64};
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char};

/// `nvinfer1::IBuilder`.
pub(super) enum Builder {}
/// `nvinfer1::IBuilderConfig`.
pub(super) enum Config {}
/// `nvinfer1::INetworkDefinition`.
pub(super) enum Network {}
/// `nvinfer1::ITensor`; belongs to its network.
pub(super) enum Tensor {}
/// `nvinfer1::ILayer`; belongs to its network.
pub(super) enum Layer {}
/// `nvinfer1::IHostMemory`.
pub(super) enum HostMemory {}
/// `nvinfer1::ITimingCache`.
pub(super) enum TimingCache {}
/// `nvinfer1::IRuntime`.
pub(super) enum Runtime {}
/// `nvinfer1::ICudaEngine`.
pub(super) enum Engine {}
/// `nvinfer1::IExecutionContext`.
pub(super) enum Context {}
/// `nvinfer1::IEngineInspector`.
pub(super) enum Inspector {}
/// `nvonnxparser::IParser`.
pub(super) enum Parser {}
/// `nvonnxparser::IParserError`; belongs to its parser.
pub(super) enum ParserError {}

/// Copies a C string; empty for null.
///
/// # Safety
/// `text` is null or points at a string that ends in 0 and stays as it is during the call.
pub(super) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn null(what: &str) -> Error {
    Error::unexpected(format!("TensorRT gave no object for `{what}`"))
}

fn sizes64(sizes: &[i64]) -> Result<Dims64> {
    let mut dims = Dims64 { count: i32::try_from(sizes.len()).unwrap_or(i32::MAX), ..Dims64::default() };
    let Some(target) = dims.sizes.get_mut(..sizes.len()) else {
        return Err(Error::refused(format!("found {} dimensions, expected at most 8", sizes.len())));
    };
    target.copy_from_slice(sizes);
    Ok(dims)
}

fn sizes32(sizes: &[i64]) -> Result<Dims32> {
    let wide = sizes64(sizes)?;
    let mut dims = Dims32 { count: wide.count, ..Dims32::default() };
    for (target, size) in dims.sizes.iter_mut().zip(wide.sizes) {
        *target = i32::try_from(size)
            .map_err(|_| Error::refused(format!("found a dimension of {size}, expected at most {} here", i32::MAX)))?;
    }
    Ok(dims)
}

fn used64(dims: Dims64) -> Vec<i64> {
    dims.sizes.into_iter().take(usize::try_from(dims.count).unwrap_or(0)).collect()
}

fn used32(dims: Dims32) -> Vec<i64> {
    dims.sizes.into_iter().take(usize::try_from(dims.count).unwrap_or(0)).map(i64::from).collect()
}

/// A call whose signature differs between TensorRT 8 (`$old`) and all later families (`$new`).
macro_rules! by_dims {
    ($raw:expr, $old:ty, $new:ty $(, $argument:expr)*) => {
        if $raw.abi().has::<$old>() {
            super::used32(call!($raw, $old $(, $argument)*))
        } else {
            super::used64(call!($raw, $new $(, $argument)*))
        }
    };
}
use by_dims;
