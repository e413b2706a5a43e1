//! Any bytes as a model: read, checked, written again, and taken through what edge-build does before it compiles.
#![no_main]

use edge_trt::build::{Options, prepare};
use edge_trt::onnx::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = Model::from_bytes(bytes) else { return };
    let _written = model.to_bytes();
    let _prepared = prepare(model, &Options::default());
});
