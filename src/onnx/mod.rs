//! ONNX models: reading them from files nobody vouches for, looking into them, changing them, writing them.
//!
//! ```text
//! path ─ read (size, foreign formats, side files, SHA-256) ─ wire (nesting) ─ parse ─ check ─▶ Model
//! Model ─ index (who makes, who uses a tensor) ─ shapes (inference, folding) ─ edit ─▶ bytes
//! ```
//!
//! [`Model`] wraps the parsed file; graph passes work on [`Model::graph`] and [`Model::graph_mut`] with the helpers of
//! [`node`] (attributes), [`tensor`] (data), [`index`] (producers and consumers), [`shapes`] and [`edit`]. External data
//! is read in, so a written model needs no side files.

mod check;
pub mod dump;
pub mod edit;
mod external;
mod foreign;
pub mod index;
pub mod literal;
pub mod metadata;
pub mod node;
pub mod operators;
pub mod opset;
mod read;
pub mod shapes;
pub mod tensor;
pub mod twin;
mod wire;

pub use onnx_protobuf as proto;

use crate::error::{Error, Result};
use crate::units::Bytes;
use onnx_protobuf::{GraphProto, Message, ModelProto};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Largest model, side files included: the limit of the ONNX file format itself.
pub const MAX_BYTES: Bytes = Bytes::gib(2);
/// Oldest opset of the default domain that is understood.
pub const OLDEST_OPSET: i64 = 11;
/// Newest opset of the default domain that is understood.
pub const NEWEST_OPSET: i64 = 22;

/// A parsed model with its origin.
#[derive(Debug, Clone)]
pub struct Model {
    proto: ModelProto,
    origin: Origin,
    opset: i64,
}

/// Where a model came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// File name without folder; `model.onnx` for bytes.
    pub file_name: String,
    /// SHA-256 over the file and its side files (in the order of their names), lower-case hex.
    pub sha256: String,
    /// Names of the side files with external weights, sorted.
    pub side_files: Vec<String>,
}

impl Model {
    /// Reads a model and its side files.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when there is no such file or it is a folder, [`crate::ErrorKind::MachineLacks`] when
    /// it may not be read, [`crate::ErrorKind::Refused`] when it is no ONNX model this program understands; a PyTorch
    /// file, a Git LFS pointer, a zip, a web page and an engine file are named, with the command that helps.
    pub fn read(path: &Path) -> Result<Model> {
        let file_name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let place = path.display();
        let bytes = read::file(path).map_err(|error| error.at(&place))?;
        let parse = || -> Result<Model> {
            let mut proto = parse(&bytes)?;
            let folder = path.parent().unwrap_or(Path::new("."));
            let side_files = external::load(&mut proto, folder, crate::units::count(bytes.len()))?;
            let mut hash = Sha256::new();
            hash.update(&bytes);
            for side_file in &side_files {
                hash.update(side_file.sha256);
            }
            let origin = Origin {
                file_name,
                sha256: hex(&hash.finalize()),
                side_files: side_files.into_iter().map(|side_file| side_file.name).collect(),
            };
            Model::checked(proto, origin)
        };
        parse().map_err(|error| match error.place() {
            Some(inner) => {
                let inner = inner.to_owned();
                error.moved_to(format!("{place}, {inner}"))
            }
            None => error.at(&place),
        })
    }

    /// Parses a model that needs no side files. Any bytes give a model or an error, in bounded time and memory.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when the bytes are no ONNX model this program understands.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model> {
        foreign::check(bytes, "x.onnx")?;
        let proto = parse(bytes)?;
        if let Some(name) = external::first(&proto) {
            return Err(Error::refused(format!(
                "tensor `{name}` keeps its data in a side file, expected all data inside"
            ))
            .hint("read the model from its file, with its side files beside it"));
        }
        let origin =
            Origin { file_name: "model.onnx".to_owned(), sha256: hex(&Sha256::digest(bytes)), side_files: Vec::new() };
        Model::checked(proto, origin)
    }

    fn checked(proto: ModelProto, origin: Origin) -> Result<Model> {
        let opset = check::model(&proto)?;
        Ok(Model { proto, origin, opset })
    }

    /// The model as one ONNX file without side files.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when it would be larger than [`MAX_BYTES`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let size = self.proto.compute_size();
        if size > MAX_BYTES.0 {
            return Err(Error::refused(format!("the model takes {}, expected at most {MAX_BYTES}", Bytes(size))));
        }
        self.proto.write_to_bytes().map_err(|error| Error::unexpected("the model cannot be written").because(error))
    }

    /// Where the model came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Version of the default operator set, [`OLDEST_OPSET`]..=[`NEWEST_OPSET`].
    pub fn opset(&self) -> i64 {
        self.opset
    }

    /// `producer_name` and `producer_version`, as in `pytorch 2.11.0`; empty when the file does not say.
    pub fn producer(&self) -> String {
        format!("{} {}", self.proto.producer_name, self.proto.producer_version).trim().to_owned()
    }

    /// The whole parsed file.
    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    /// The graph.
    pub fn graph(&self) -> &GraphProto {
        self.proto.graph.get_or_default()
    }

    /// The graph, to be changed by a pass.
    pub fn graph_mut(&mut self) -> &mut GraphProto {
        self.proto.graph.mut_or_insert_default()
    }
}

fn parse(bytes: &[u8]) -> Result<ModelProto> {
    wire::check(bytes)?;
    ModelProto::parse_from_bytes(bytes).map_err(|error| {
        refused_file("found a damaged ONNX model".to_owned())
            .because(error)
            .hint("export it again, for example `yolo export model=x.pt format=onnx`")
    })
}

fn refused_file(message: String) -> Error {
    Error::refused(message)
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
