//! The bytes of a model file, after every reason not to read it.

use super::{MAX_BYTES, foreign};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{self, Bytes};
use std::fs::{self, File};
use std::io::{ErrorKind as IoErrorKind, Read};
use std::path::Path;

/// Reads the whole file at `path`.
pub(super) fn file(path: &Path) -> Result<Vec<u8>> {
    let metadata = fs::metadata(path).map_err(|error| opening(error, "model"))?;
    if metadata.is_dir() {
        return Err(Error::usage("found a folder, expected an ONNX file")
            .hint(format!("name the file in it, for example `{}`", path.join("best.onnx").display())));
    }
    let bytes = regular_file(path, &metadata, "model")?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    foreign::check(&bytes, &name)?;
    Ok(bytes)
}

/// Reads a regular file of at most [`MAX_BYTES`]; `what` names it in errors.
pub(super) fn regular_file(path: &Path, metadata: &fs::Metadata, what: &str) -> Result<Vec<u8>> {
    if !metadata.is_file() {
        return Err(Error::usage(format!("found a device, pipe or socket, expected a {what} file")));
    }
    if metadata.len() > MAX_BYTES.0 {
        return Err(Error::refused(format!(
            "found {}, expected a {what} of at most {MAX_BYTES}",
            Bytes(metadata.len())
        )));
    }
    let file = File::open(path).map_err(|error| opening(error, what))?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(MAX_BYTES.0 + 1).read_to_end(&mut bytes).map_err(|error| opening(error, what))?;
    if units::count(bytes.len()) != metadata.len() {
        return Err(Error::refused(format!(
            "found {} bytes, expected {}: the file changed while it was read",
            bytes.len(),
            metadata.len()
        ))
        .hint("wait until the file is written, then run this again"));
    }
    Ok(bytes)
}

/// The error for a file that cannot be opened or read.
pub(super) fn opening(error: std::io::Error, what: &str) -> Error {
    match error.kind() {
        IoErrorKind::NotFound => {
            Error::usage(format!("found no such file, expected a {what}")).hint("check the path and the current folder")
        }
        IoErrorKind::PermissionDenied => {
            Error::new(ErrorKind::MachineLacks, format!("found a {what} that may not be read"))
                .because(error)
                .hint("give this user read permission, for example with `chmod a+r`")
        }
        _ => Error::usage(format!("the {what} cannot be read")).because(error),
    }
}
