//! `edge-build`: turns a YOLO ONNX export into a verified bundle.
fn main() {}
