//! `edge-run`: runs a bundle on cameras and notices when its own answers go wrong.

use edge_trt::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::program(cli::edge_run::main)
}
