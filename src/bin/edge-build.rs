//! `edge-build`: turns a YOLO ONNX export into a verified bundle.

use edge_trt::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::program(cli::edge_build::run)
}
