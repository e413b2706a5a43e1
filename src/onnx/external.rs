//! External data: tensors whose values lie in side files. They are read in, so that later stages see one model.

use super::{MAX_BYTES, read, tensor};
use crate::error::{Error, Result};
use crate::units::{self, Bytes};
use onnx_protobuf::tensor_proto::DataLocation;
use onnx_protobuf::{ModelProto, TensorProto};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

/// A side file that was read.
pub(super) struct SideFile {
    /// Path relative to the model's folder, as the model writes it.
    pub(super) name: String,
    /// SHA-256 of the whole file.
    pub(super) sha256: [u8; 32],
}

/// The name of the first tensor with external data.
pub(super) fn first(model: &ModelProto) -> Option<String> {
    tensors(model).find(|tensor| is_external(tensor)).map(|tensor| tensor.name.clone())
}

/// Reads the data of all external tensors from files in `folder`; `model_bytes` counts against the size limit.
pub(super) fn load(model: &mut ModelProto, folder: &Path, model_bytes: u64) -> Result<Vec<SideFile>> {
    let mut names: BTreeMap<String, ()> = BTreeMap::new();
    for tensor in tensors(model).filter(|tensor| is_external(tensor)) {
        names.insert(location(tensor)?, ());
    }
    let mut total_bytes = model_bytes;
    let mut side_files = Vec::new();
    for name in names.into_keys() {
        let path = folder.join(&name);
        let metadata = fs::symlink_metadata(&path).map_err(|error| missing(error, &name))?;
        if metadata.is_symlink() {
            check_link(folder, &path, &name)?;
        }
        let metadata = fs::metadata(&path).map_err(|error| missing(error, &name))?;
        total_bytes = total_bytes.saturating_add(metadata.len());
        if total_bytes > MAX_BYTES.0 {
            return Err(Error::refused(format!(
                "model and side files take {}, expected at most {MAX_BYTES}",
                Bytes(total_bytes)
            )));
        }
        let bytes = read::regular_file(&path, &metadata, "side file")
            .map_err(|error| error.at(format!("side file `{name}`")))?;
        for tensor in tensors_mut(model).filter(|tensor| is_external(tensor)) {
            if location(tensor)? == name {
                fill(tensor, &bytes, &name)?;
            }
        }
        side_files.push(SideFile { name, sha256: Sha256::digest(&bytes).into() });
    }
    Ok(side_files)
}

/// A link may lead elsewhere inside the model's folder only.
fn check_link(folder: &Path, path: &Path, name: &str) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let inside = fs::canonicalize(folder)
        .and_then(|folder| fs::canonicalize(path).map(|target| target.starts_with(folder)))
        .map_err(|error| missing(error, name))?;
    if inside { Ok(()) } else { Err(outside(name)) }
}

fn is_external(tensor: &TensorProto) -> bool {
    tensor.data_location.enum_value() == Ok(DataLocation::EXTERNAL)
}

fn entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

fn location(tensor: &TensorProto) -> Result<String> {
    let name = entry(tensor, "location").unwrap_or_default();
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || name.contains(['\0', '\\']) || !plain {
        return Err(outside(name).at(format!("tensor `{}`", tensor.name)));
    }
    Ok(name.to_owned())
}

fn outside(name: &str) -> Error {
    Error::refused(format!("found side file `{name}`, expected a file inside the model's folder"))
        .hint("save the model again with its data beside it")
}

fn number(tensor: &TensorProto, key: &str) -> Result<Option<usize>> {
    entry(tensor, key)
        .map(|text| {
            text.parse().map_err(|_| {
                Error::refused(format!("found external data with {key} `{text}`, expected a number of bytes"))
                    .at(format!("tensor `{}`", tensor.name))
            })
        })
        .transpose()
}

fn fill(tensor: &mut TensorProto, bytes: &[u8], name: &str) -> Result<()> {
    let place = format!("tensor `{}` in side file `{name}`", tensor.name);
    let offset = number(tensor, "offset")?.unwrap_or(0);
    let length = match number(tensor, "length")? {
        Some(length) => length,
        None => bytes.len().saturating_sub(offset),
    };
    let expected = tensor::data_type(tensor)
        .bits()
        .and_then(|bits| tensor::element_count(tensor).ok()?.checked_mul(bits))
        .map(|bits| bits.div_ceil(8));
    if expected != Some(units::count(length)) {
        return Err(Error::refused(format!(
            "found {length} bytes, expected {} for `{}` {:?}",
            expected.map_or("a number type".to_owned(), |bytes| bytes.to_string()),
            tensor::data_type(tensor),
            tensor.dims
        ))
        .at(place));
    }
    let end = offset.saturating_add(length);
    let data = bytes.get(offset..end).ok_or_else(|| {
        Error::refused(format!("found a file of {} bytes, expected at least {end}", bytes.len()))
            .at(&place)
            .hint("the side file is cut off or belongs to another export: copy both again")
    })?;
    tensor.raw_data = data.to_vec();
    tensor.external_data.clear();
    tensor.data_location = DataLocation::DEFAULT.into();
    Ok(())
}

fn missing(error: std::io::Error, name: &str) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::refused(format!("found no side file `{name}`, expected it beside the model"))
            .hint(format!("copy `{name}` into the model's folder: it holds the weights"));
    }
    read::opening(error, "side file")
}

fn tensors(model: &ModelProto) -> impl Iterator<Item = &TensorProto> {
    model.graph.iter().flat_map(|graph| {
        let constants =
            graph.node.iter().flat_map(|node| node.attribute.iter().filter_map(|attribute| attribute.t.as_ref()));
        graph.initializer.iter().chain(constants)
    })
}

fn tensors_mut(model: &mut ModelProto) -> impl Iterator<Item = &mut TensorProto> {
    model.graph.0.iter_mut().flat_map(|graph| {
        let constants = graph
            .node
            .iter_mut()
            .flat_map(|node| node.attribute.iter_mut().filter_map(|attribute| attribute.t.as_mut()));
        graph.initializer.iter_mut().chain(constants)
    })
}
