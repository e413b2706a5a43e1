//! One set of cases × every backend. What a backend may differ in is written in [`backends`], nowhere else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test program"
)]

#[path = "../common/mod.rs"]
mod common;

mod backends;
mod cases;
mod models;
mod sample_model;
mod simulated_day;
