//! Regressions, each module named after its case (see the project's list of field cases).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test program")]

#[path = "../common/mod.rs"]
mod common;

mod d07_box_flood;
mod r08_crossed_ids;
