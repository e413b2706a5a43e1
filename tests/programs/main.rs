//! Whole programs: exit codes, both outputs, files left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test program")]

#[path = "../common/mod.rs"]
mod common;

mod build_again;
mod build_bad_input;
mod build_bundle;
mod build_plan;
mod build_plan_gate;
mod build_plan_sweep;
mod build_precision;
mod build_sweep;
mod build_wrap;
mod ci_examples;
mod dashboard;
mod documents;
mod killed;
mod run_bad_input;
mod run_batches;
mod run_bench;
mod run_camera;
mod run_clock;
mod run_doctor;
mod run_incident;
mod run_lost;
mod run_service;
mod run_several;
mod run_sim;
mod run_triggers;
mod workbench;
