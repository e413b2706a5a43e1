//! Any text as a Python or JSON literal, and as each of the entries that exports carry.
#![no_main]

use edge_trt::onnx::literal::Literal;
use edge_trt::onnx::metadata::{Metadata, names};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(literal) = Literal::parse(text) {
        let _names = names(&literal);
    }
    for key in ["names", "imgsz", "stride", "batch", "task", "end2end", "args"] {
        let _metadata = Metadata::from_entries([(key, text)].into_iter());
    }
});
