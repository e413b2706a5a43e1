//! The built-in backend.

use super::{InputBuffer, Network, Order, Visit};
use crate::engine::candidates::{Elements, RawTensor};
use crate::engine::{ElementType, InputSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::onnx;
use crate::units::index;
use ::rten::{DataType, Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueType, ValueView};
use rten_tensor::{AsView, Layout};
use std::sync::Arc;

/// As pinned in `Cargo.toml`; a test compares it with `Cargo.lock`.
pub(super) const BACKEND: &str = "rten 0.27.0";

struct RtenNetwork {
    model: Model,
    input: NodeId,
    input_shape: [usize; 4],
    outputs: Vec<(String, NodeId)>,
    pool: Arc<ThreadPool>,
    element: ElementType,
}

/// Loads the model.
///
/// rten widens 16-bit floats to 32 bits while loading, so such a model takes and gives 32-bit floats here.
pub(super) fn open(order: Order<'_>) -> Result<Box<dyn Network>> {
    let mut graph = onnx::Model::from_bytes(order.model)?;
    let bytes = if onnx::edit::spell_out_windows(&mut graph) { graph.to_bytes()? } else { order.model.to_vec() };
    drop(graph);
    let model = ModelOptions::with_all_ops().load(bytes).map_err(|error| {
        Error::refused("rten cannot read the model")
            .because(error)
            .hint("`--cpu-backend onnxruntime` runs more kinds of models, where that library is installed")
    })?;
    let find = |name: &str| {
        model.find_node(name).ok_or_else(|| Error::refused(format!("found no tensor `{name}` in the model")))
    };
    let InputSpec { batch, channels, size, element, .. } = *order.input;
    let element = if element == ElementType::F16 { ElementType::F32 } else { element };
    let expected = match element {
        ElementType::F32 => DataType::Float,
        ElementType::U8 => DataType::UInt8,
        _ => return Err(Error::refused(format!("found an input of {element:?}, expected F32, F16 or U8"))),
    };
    let input = find(&order.input.name)?;
    let found = model.node_info(input).and_then(|node| node.dtype());
    if found.is_some_and(|found| found != ValueType::Tensor(expected)) {
        return Err(Error::refused(format!("found an input that rten reads as {found:?}, expected {expected}"))
            .at(format_args!("input `{}`", order.input.name)));
    }
    let outputs = order.outputs.iter().map(|name| Ok((name.clone(), find(name)?))).collect::<Result<_>>()?;
    Ok(Box::new(RtenNetwork {
        input,
        input_shape: [batch, channels, size.height_px, size.width_px].map(index),
        outputs,
        pool: Arc::new(ThreadPool::with_num_threads(index(order.threads))),
        element,
        model,
    }))
}

impl RtenNetwork {
    fn values(&self, input: &InputBuffer) -> Result<Vec<Value>> {
        let view = match input {
            InputBuffer::F32(values) => ValueView::from_shape(self.input_shape, values.as_slice()).map_err(failed)?,
            InputBuffer::U8(values) => ValueView::from_shape(self.input_shape, values.as_slice()).map_err(failed)?,
            InputBuffer::F16(_) => return Err(Error::unexpected("found a 16-bit input, expected a 32-bit one")),
        };
        let outputs: Vec<NodeId> = self.outputs.iter().map(|(_, id)| *id).collect();
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
        self.model.run(vec![(self.input, view.into())], &outputs, Some(options)).map_err(failed)
    }
}

impl Network for RtenNetwork {
    fn backend(&self) -> &str {
        BACKEND
    }

    fn input_element(&self) -> ElementType {
        self.element
    }

    fn run(&mut self, input: &InputBuffer, visit: &mut Visit<'_>) -> Result<()> {
        let values = self.values(input)?;
        let mut tensors = Vec::with_capacity(values.len());
        let dense: Vec<Dense> = values.iter().map(Dense::of).collect();
        for ((name, _), dense) in self.outputs.iter().zip(&dense) {
            let elements = match dense {
                Dense::Float { values, .. } => Elements::F32(values),
                Dense::Int { values, .. } => Elements::I32(values),
                Dense::Other => {
                    return Err(Error::refused("found an output that is neither float nor integer")
                        .at(format_args!("output `{name}`")));
                }
            };
            tensors.push(RawTensor { name, shape: dense.shape(), elements });
        }
        visit(&tensors)
    }
}

/// An output in row-major order; copied only when it does not lie so.
enum Dense<'a> {
    Float { shape: Vec<usize>, values: std::borrow::Cow<'a, [f32]> },
    Int { shape: Vec<usize>, values: std::borrow::Cow<'a, [i32]> },
    Other,
}

impl<'a> Dense<'a> {
    fn of(value: &'a Value) -> Dense<'a> {
        match value {
            Value::FloatTensor(tensor) => {
                Dense::Float { shape: tensor.shape().to_vec(), values: tensor.view().to_slice() }
            }
            Value::Int32Tensor(tensor) => {
                Dense::Int { shape: tensor.shape().to_vec(), values: tensor.view().to_slice() }
            }
            _ => Dense::Other,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Dense::Float { shape, .. } | Dense::Int { shape, .. } => shape,
            Dense::Other => &[],
        }
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Device, "rten could not run the network").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_locked_one() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).unwrap();
        let version = BACKEND.split(' ').nth(1).unwrap();
        assert!(lock.contains(&format!("name = \"rten\"\nversion = \"{version}\"")));
    }
}
