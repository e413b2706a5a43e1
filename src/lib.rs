//! # edge-trt: the architecture page
//!
//! **edge-build turns a YOLO ONNX export into a verified bundle; edge-run runs that bundle on cameras and notices when its
//! own answers go wrong.** Two programs, one library, one file format between them.
//!
//! ```text
//! edge-build  model.onnx ─ read ─ check ─ pin shapes ─ precision ─ compile ─ memory plan ─ verify ─▶ line1.edge
//! edge-run    camera ─▶ newest frame ─▶ engine (letterbox → network → candidates) ─▶ detections ─▶ guard ─▶ decision ─▶ sinks
//! ```
//!
//! ## Run stages
//!
//! | stage | module | takes | gives | must not know |
//! | --- | --- | --- | --- | --- |
//! | capture | [`camera`] | a device, a file, a simulation | [`frame::Frame`] | engines, detections |
//! | answer | [`engine`] | frames | [`engine::Inference`]: candidates and output statistics | NMS, trust, streams |
//! | detect | [`detections`] | candidates, letterbox | boxes in source pixels | which engine answered |
//! | judge | [`guard`] | pictures' statistics, output statistics, boxes | [`guard::Trust`] with reasons | the engine itself |
//! | decide | [`decision`] | trust, boxes, the recipe's rule | pass, reject, not inspected | how trust came about |
//! | tell | [`sinks`] | [`sinks::row::Row`] | JSON lines, pages, metrics, pictures | how to change a row |
//! | wire | [`run`] | all of the above | threads, mailboxes, warmup, proofs | nobody imports it |
//!
//! ## Build stages
//!
//! | stage | module | gives |
//! | --- | --- | --- |
//! | read, check | `onnx`, `build` | a graph that can be decoded, or one clear error |
//! | pin shapes | `build` | static shapes, said aloud |
//! | compile | `build` | the graph as it will run |
//! | verify | `build`, [`bundle`] | golden frames with their answers, the guard's reference, the bundle |
//!
//! `build` imports none of camera devices, sinks and run; they import none of it. A test (`tests/layering.rs`) holds these
//! directions. `unsafe` lives in `src/ffi` alone.
//!
//! ## Words
//! *Bundle* (`*.edge`), *target*, *recipe*, *trust* (`trusted`, `suspect`, `fault`), *decision* (`pass`, `reject`,
//! `not_inspected`), *part*, *proof*: see `docs/words.md`.

pub mod aside;
pub mod build;
pub mod bundle;
pub mod camera;
pub mod cli;
pub mod config;
pub mod decision;
pub mod detections;
pub mod engine;
pub mod error;
pub mod ffi;
pub mod frame;
pub mod gpu;
pub mod guard;
pub mod onnx;
pub mod platform;
pub mod run;
pub mod sinks;
pub mod telemetry;
#[cfg(test)]
mod test_inputs;
pub mod units;

pub use error::{Error, ErrorKind, Result};
