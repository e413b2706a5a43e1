//! The backends and their tolerances.

use crate::common::lacks;
use edge_trt::engine::cpu::{CpuBackend, CpuOptions, load};
use edge_trt::engine::{Engine, InputSpec, Layout};
use edge_trt::{ErrorKind, Result};
use std::sync::Arc;

/// A backend and how far its answers may be from the expected ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend {
    pub(crate) cpu: CpuBackend,
    /// Largest difference of an edge on graphs of constants, px of the input.
    pub(crate) edge_px: f32,
    /// Largest difference of a score on graphs of constants.
    pub(crate) score: f32,
    /// Largest difference of an edge on trained FP32 networks against the other backends, px of the input.
    pub(crate) network_edge_px: f32,
    /// Largest difference of a score on trained FP32 networks against the other backends.
    pub(crate) network_score: f32,
}

const RTEN: Backend =
    Backend { cpu: CpuBackend::Rten, edge_px: 0.0, score: 0.0, network_edge_px: 0.1, network_score: 2e-3 };
const ONNX_RUNTIME: Backend =
    Backend { cpu: CpuBackend::OnnxRuntime, edge_px: 0.0, score: 0.0, network_edge_px: 0.1, network_score: 2e-3 };

/// Every backend that this machine has; the others are named loudly.
pub(crate) fn all() -> Vec<Backend> {
    let mut backends = vec![RTEN];
    let graph = crate::common::graphs::tiles(false);
    let (input, layout) = crate::cases::tiles_spec();
    match open(&graph, &input, &layout, &["a"], CpuBackend::OnnxRuntime) {
        Ok(_) => backends.push(ONNX_RUNTIME),
        Err(error) if error.kind() == ErrorKind::MachineLacks => {
            lacks("onnxruntime", &format!("ONNX Runtime: {}", error.message()));
        }
        Err(error) => panic!("{error}"),
    }
    backends
}

/// Loads with one thread and floor 0.01.
pub(crate) fn open(
    model: &[u8],
    input: &InputSpec,
    layout: &Layout,
    classes: &[&str],
    backend: CpuBackend,
) -> Result<Box<dyn Engine>> {
    let classes: Arc<[String]> = classes.iter().map(|&name| name.to_owned()).collect();
    let options = CpuOptions { backend, threads: Some(1), ..CpuOptions::default() };
    load(model, input, layout, classes, 0.01, &options)
}
