//! ONNX Runtime, found at run time: `EDGE_ORT_LIB`, then the loader's own search. Nothing is downloaded.

use super::{InputBuffer, Network, Order, Visit};
use crate::engine::candidates::{Elements, RawTensor};
use crate::engine::{ElementType, InputSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::onnxruntime::{Found, probe};
use crate::units::index;
use half::f16;
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions, Session, SessionInputValue};
use ort::value::{DynValue, TensorElementType, TensorRef};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, Once};

/// Names that the loader is asked for when `EDGE_ORT_LIB` is not set.
const NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];

/// The library and its environment; `ort` allows one a process, so it is kept for good.
#[derive(Clone)]
pub(super) struct Runtime {
    environment: Environment,
    version: String,
}

impl Runtime {
    /// Name with version.
    pub(super) fn name(&self) -> String {
        format!("onnxruntime {}", self.version)
    }
}

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// The runtime, loaded at the first call that finds one.
///
/// # Errors
/// [`ErrorKind::MachineLacks`] with every name that was tried and why it did not do.
pub(super) fn runtime() -> Result<Runtime> {
    let mut kept = RUNTIME.lock().map_err(|_| Error::unexpected("found a lock that a panic left behind"))?;
    if let Some(runtime) = kept.as_ref() {
        return Ok(runtime.clone());
    }
    let runtime = start(find(std::env::var_os("EDGE_ORT_LIB"))?)?;
    log::info!("onnxruntime {} is in use", runtime.version);
    Ok(kept.insert(runtime).clone())
}

/// Says once a process why ONNX Runtime is not used.
pub(super) fn say_once(error: &Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        if std::env::var_os("EDGE_ORT_LIB").is_some() {
            log::warn!("rten runs the network: {error}");
        } else {
            log::info!("rten runs the network: {}", error.message());
        }
    });
}

fn find(named: Option<OsString>) -> Result<Found> {
    let candidates = match named.filter(|name| !name.is_empty()) {
        Some(name) => vec![name],
        None => NAMES.map(OsString::from).to_vec(),
    };
    let mut reasons = Vec::new();
    for candidate in candidates {
        let path = Path::new(&candidate);
        match probe(path) {
            Ok(found) => return Ok(found),
            Err(reason) => reasons.push(format!("`{}`: {reason}", path.display())),
        }
    }
    Err(Error::machine_lacks(format!("found no usable ONNX Runtime, tried {}", reasons.join("; "))).hint(format!(
        "set EDGE_ORT_LIB to a libonnxruntime.so of version 1.{} or newer, or use `--cpu-backend rten`",
        ort::MINOR_VERSION
    )))
}

fn start(found: Found) -> Result<Runtime> {
    let place = found.path.display().to_string();
    let unusable =
        |reason: String| Error::machine_lacks("found an ONNX Runtime that does not start").because(reason).at(&place);
    let environment = ort::init_from(&found.path)
        .map_err(|error| unusable(error.to_string()))?
        .with_name("edge-trt")
        .with_telemetry(false)
        .with_logger(Arc::new(|level, _category, _id, _location, message: &str| forward(level, message)))
        .build()
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Runtime { environment, version: found.version })
}

/// ONNX Runtime's log lines go where ours go; its chatter becomes debug.
fn forward(level: LogLevel, message: &str) {
    match level {
        LogLevel::Fatal | LogLevel::Error => log::error!("onnxruntime: {message}"),
        LogLevel::Warning => log::warn!("onnxruntime: {message}"),
        LogLevel::Info => log::debug!("onnxruntime: {message}"),
        LogLevel::Verbose => log::trace!("onnxruntime: {message}"),
    }
}

struct OrtNetwork {
    session: Session,
    options: RunOptions<HasSelectedOutputs>,
    input_name: String,
    input_shape: [usize; 4],
    element: ElementType,
    outputs: Vec<String>,
    backend: String,
}

/// Loads the model.
pub(super) fn open(order: Order<'_>) -> Result<Box<dyn Network>> {
    let runtime = runtime()?;
    let InputSpec { batch, channels, size, element, .. } = *order.input;
    let session = session(&runtime, &order)
        .map_err(|reason| Error::refused("onnxruntime cannot read the model").because(reason))?;
    let found = session.inputs().iter().find(|input| input.name() == order.input.name);
    let found = found.and_then(|input| input.dtype().tensor_type());
    let expected = match element {
        ElementType::F32 => TensorElementType::Float32,
        ElementType::F16 => TensorElementType::Float16,
        ElementType::U8 => TensorElementType::Uint8,
        _ => return Err(Error::refused(format!("found an input of {element:?}, expected F32, F16 or U8"))),
    };
    if found != Some(expected) {
        return Err(Error::refused(format!("found an input of {found:?}, expected {expected}"))
            .at(format_args!("input `{}`", order.input.name)));
    }
    let selector = order.outputs.iter().fold(OutputSelector::no_default(), OutputSelector::with);
    let options = RunOptions::new().map_err(failed)?.with_outputs(selector);
    Ok(Box::new(OrtNetwork {
        session,
        options,
        input_name: order.input.name.clone(),
        input_shape: [batch, channels, size.height_px, size.width_px].map(index),
        element,
        outputs: order.outputs,
        backend: runtime.name(),
    }))
}

fn session(runtime: &Runtime, order: &Order<'_>) -> Result<Session, String> {
    let builder = Session::builder(&runtime.environment).map_err(|error| error.to_string())?;
    let builder = builder.with_intra_threads(index(order.threads)).map_err(|error| error.to_string())?;
    let builder = builder.with_inter_threads(1).map_err(|error| error.to_string())?;
    let mut builder =
        builder.with_optimization_level(GraphOptimizationLevel::All).map_err(|error| error.to_string())?;
    builder.commit_from_memory(order.model).map_err(|error| error.to_string())
}

impl Network for OrtNetwork {
    fn backend(&self) -> &str {
        &self.backend
    }

    fn input_element(&self) -> ElementType {
        self.element
    }

    fn run(&mut self, input: &InputBuffer, visit: &mut Visit<'_>) -> Result<()> {
        let shape = self.input_shape;
        let value: SessionInputValue<'_> = match input {
            InputBuffer::F32(values) => TensorRef::from_array_view((shape, values.as_slice())).map_err(failed)?.into(),
            InputBuffer::F16(values) => TensorRef::from_array_view((shape, values.as_slice())).map_err(failed)?.into(),
            InputBuffer::U8(values) => TensorRef::from_array_view((shape, values.as_slice())).map_err(failed)?.into(),
        };
        let inputs = vec![(self.input_name.as_str(), value)];
        let outputs = self.session.run_with_options(inputs, &self.options).map_err(failed)?;
        let mut shapes = Vec::with_capacity(self.outputs.len());
        let mut elements = Vec::with_capacity(self.outputs.len());
        for name in &self.outputs {
            let output = outputs.get(name).ok_or_else(|| Error::unexpected(format!("found no output `{name}`")))?;
            let (shape, values) = view(output).map_err(|error| error.at(format_args!("output `{name}`")))?;
            shapes.push(shape);
            elements.push(values);
        }
        let tensors: Vec<RawTensor<'_>> = self
            .outputs
            .iter()
            .zip(&shapes)
            .zip(elements)
            .map(|((name, shape), elements)| RawTensor { name, shape, elements })
            .collect();
        visit(&tensors)
    }
}

fn view(output: &DynValue) -> Result<(Vec<usize>, Elements<'_>)> {
    let (shape, elements) = match output.dtype().tensor_type() {
        Some(TensorElementType::Float32) => {
            output.try_extract_tensor::<f32>().map(|(shape, values)| (shape, Elements::F32(values)))
        }
        Some(TensorElementType::Float16) => {
            output.try_extract_tensor::<f16>().map(|(shape, values)| (shape, Elements::F16(values)))
        }
        Some(TensorElementType::Int32) => {
            output.try_extract_tensor::<i32>().map(|(shape, values)| (shape, Elements::I32(values)))
        }
        Some(TensorElementType::Int64) => {
            output.try_extract_tensor::<i64>().map(|(shape, values)| (shape, Elements::I64(values)))
        }
        other => return Err(Error::refused(format!("found element type {other:?}, expected F32, F16, I32 or I64"))),
    }
    .map_err(failed)?;
    let shape = shape.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    Ok((shape, elements))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Device, "onnxruntime could not run the network").because(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_names_what_was_tried() {
        let error = find(Some("/nowhere/libonnxruntime.so".into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MachineLacks);
        assert!(error.message().contains("/nowhere/libonnxruntime.so"), "{error}");
        assert!(error.hint_text().unwrap().contains("EDGE_ORT_LIB"));
    }
}
