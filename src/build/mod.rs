//! Building: from an export to the graph as it will run, with everything decided that can be decided before a device is
//! there.
//!
//! ```text
//! onnx::Model ─ operators ─ weights ─ quantized ─ pin ─ layout ─ names ─▶ Prepared
//! ```
//!
//! ```text
//! Prepared ─ compile ─ calibrate (reference, choice of golden frames) ─ record ─ write aside ─ prove ─▶ line1.edge
//! ```
//!
//! [`prepare()`] refuses what cannot be decoded and says aloud what it decided; [`cache_key`] names everything that makes
//! one bundle differ from another; [`assemble`] goes the whole way.

pub mod assemble;
mod attention;
pub mod batch;
pub mod cache_key;
mod calibrate;
mod choice;
pub mod compile;
pub mod finish;
mod gate;
mod inputs;
mod known;
pub mod layout;
pub mod memory;
mod names;
mod operators;
mod pictures;
mod pin;
mod precision;
mod prepare;
mod put;
mod quantized;
pub mod sweep;
mod unchanged;
pub mod watcher;
mod weights;
pub mod wrap;

pub use gate::{AskBy, DeviceGate, PlanAnswers, PlanToAsk, ask_plan};
pub use layout::LayoutChoice;
pub use prepare::{Options, Prepared, prepare};
