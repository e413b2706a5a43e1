//! A network read from ONNX.

use super::super::abi::Raw;
use super::super::callbacks::ReportedError;
use super::super::result;
use super::Owned;
use super::build::Builder;
use super::tensor::{DataType, TensorFacts};
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

/// One error of the ONNX parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserError {
    /// `nvonnxparser::ErrorCode`.
    pub code: i32,
    /// The parser's text.
    pub description: String,
    /// Index of the node, if one is to blame.
    pub node: Option<u32>,
    /// Name of the node; empty on TensorRT 8.
    pub node_name: String,
    /// Operator of the node; empty on TensorRT 8.
    pub operator: String,
}

/// A network read from ONNX, with the parser that owns its weights.
pub struct Network {
    parser: OwnedParser,
    raw: Owned<result::Network>,
    builder: Rc<Builder>,
}

/// A parser, deleted before its network and only after every build from it.
struct OwnedParser(Raw<result::Parser>);

impl Drop for OwnedParser {
    fn drop(&mut self) {
        // SAFETY: made by the parser library's factory, deleted once here; `Network` drops it first of its fields.
        if let Err(error) = unsafe { self.0.delete() } {
            log::warn!("while freeing: {}", error.message());
        }
    }
}

impl Network {
    pub(super) fn raw(&self) -> Raw<result::Network> {
        self.raw.0
    }

    pub(super) fn builder(&self) -> &Rc<Builder> {
        &self.builder
    }

    /// Reads a model: explicit batch on TensorRT 8, strongly typed everywhere else.
    ///
    /// # Errors
    /// No parser of this version ([`crate::ErrorKind::MachineLacks`]); the parser refuses the model
    /// ([`crate::ErrorKind::Refused`], with the node).
    pub fn from_onnx(builder: &Rc<Builder>, model: &[u8]) -> Result<Network> {
        let library = Arc::clone(builder.library());
        let factory = library.parser()?;
        // SAFETY: the builder lives and the network holds it.
        let raw = Owned(unsafe { builder.raw().create_network() }?);
        // SAFETY: network and logger live and have this family's layout; the version is the parser's own.
        let parser = unsafe { (factory.create_parser)(raw.0.object(), library.logger(), factory.version) };
        let parser =
            Raw::<result::Parser>::new(parser, library.abi()).ok_or_else(|| library.no_object("ONNX parser"))?;
        let network = Network { parser: OwnedParser(parser), raw, builder: Rc::clone(builder) };
        // SAFETY: the parser lives.
        if !unsafe { network.parser.0.parse(model) }? {
            return Err(refusal(&network.errors()?, &builder.take_errors()));
        }
        // A file that is cut off at the right place parses to nothing.
        // SAFETY: the network lives.
        if unsafe { network.raw.0.outputs() }? == 0 {
            return Err(Error::refused(
                "TensorRT's ONNX parser refused the model: found no output, expected at least one",
            ));
        }
        Ok(network)
    }

    fn errors(&self) -> Result<Vec<ParserError>> {
        let parser = self.parser.0;
        // SAFETY: the parser and its errors live as long as `self`; so below.
        let count = unsafe { parser.errors() }?;
        (0..count)
            .map(|index| {
                // SAFETY: as above.
                unsafe {
                    let error = parser.error(index)?;
                    Ok(ParserError {
                        code: error.code()?,
                        description: error.description()?,
                        node: u32::try_from(error.node()?).ok(),
                        node_name: error.node_name()?,
                        operator: error.node_operator()?,
                    })
                }
            })
            .collect()
    }

    /// Number of layers that the parser made.
    ///
    /// # Errors
    /// None in a known version.
    pub fn layers(&self) -> Result<u32> {
        // SAFETY: the network lives.
        Ok(u32::try_from(unsafe { self.raw.0.layers() }?).unwrap_or(0))
    }

    /// Inputs, then outputs.
    ///
    /// # Errors
    /// A tensor that TensorRT does not hand out, or a type that is not known.
    pub fn tensors(&self) -> Result<Vec<TensorFacts>> {
        let network = self.raw.0;
        let facts = |tensor: Raw<result::Tensor>, input| {
            // SAFETY: tensors live as long as their network.
            unsafe {
                let name = CString::new(tensor.name()?).unwrap_or_default();
                TensorFacts::new(name, tensor.sizes()?, tensor.data_type()?, input)
            }
        };
        // SAFETY: the network lives.
        let (inputs, outputs) = unsafe { (network.inputs()?, network.outputs()?) };
        // SAFETY: as above, and the indices are below the counts.
        let inputs = (0..inputs).map(|index| facts(unsafe { network.input(index) }?, true));
        // SAFETY: as above.
        let outputs = (0..outputs).map(|index| facts(unsafe { network.output(index) }?, false));
        inputs.chain(outputs).collect()
    }
}

impl Network {
    /// Holds the layers that make the tensors `names` to `precision`, what they give too, with the unnamed layers before them that
    /// the parser made for the same operator; all others stay free (TensorRT 8). Gives the number of layers held.
    ///
    /// # Errors
    /// A family without this method, or a type that is not known.
    pub fn hold(&self, names: &[String], precision: DataType) -> Result<u32> {
        let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut parts: Vec<i32> = vec![];
        let mut held = 0;
        // SAFETY: the network lives; layers and tensors live as long as it; indices are below the counts.
        unsafe {
            for index in 0..self.raw.0.layers()? {
                parts.push(index);
                let layer = self.raw.0.layer(index)?;
                let mut name = String::new();
                for output in 0..layer.outputs()? {
                    if let Some(tensor) = layer.output(output)? {
                        name = tensor.name()?;
                        if wanted.contains(name.as_str()) {
                            break;
                        }
                    }
                }
                // The parser names tensors as the file does; what it makes on the way to one it leaves to TensorRT's names.
                if name.starts_with("(Unnamed") {
                    continue;
                }
                let is_wanted = wanted.contains(name.as_str());
                for part in std::mem::take(&mut parts) {
                    if is_wanted && self.hold_layer(part, precision)? {
                        held += 1;
                    }
                }
            }
        }
        Ok(held)
    }

    /// Holds layer `index` to `precision`; `false` when it makes no float (the parser gave the network floats alone).
    ///
    /// # Safety
    /// `index` is below the number of layers.
    unsafe fn hold_layer(&self, index: i32, precision: DataType) -> Result<bool> {
        let mut computes = false;
        // SAFETY: the network lives; layers and tensors live as long as it; the index is below the count by the caller.
        unsafe {
            let layer = self.raw.0.layer(index)?;
            for output in 0..layer.outputs()? {
                let Some(tensor) = layer.output(output)? else { continue };
                let data_type = DataType::of(tensor.data_type()?)?;
                if data_type == DataType::Float {
                    layer.set_output_type(output, precision.value())?;
                    computes = true;
                }
            }
            if computes {
                layer.set_precision(precision.value())?;
            }
        }
        Ok(computes)
    }
}

/// The parser's refusal in our words: the first error leads, others are counted.
fn refusal(errors: &[ParserError], reported: &[ReportedError]) -> Error {
    let Some(first) = errors.first() else {
        let text = reported.first().map_or("it gave no reason", |error| error.text.as_str());
        return Error::refused(format!("TensorRT's ONNX parser refused the model: {text}"));
    };
    let more = if errors.len() > 1 { format!(" (and {} more errors)", errors.len() - 1) } else { String::new() };
    let text = first.description.trim().trim_end_matches('.');
    let error = Error::refused(format!("TensorRT's ONNX parser refused the model: {text}{more}"));
    match (first.node, first.node_name.as_str()) {
        (_, name) if !name.is_empty() => error.at(format!("node `{name}` ({})", first.operator)),
        (Some(node), _) => error.at(format!("node {node}")),
        _ => error,
    }
}
