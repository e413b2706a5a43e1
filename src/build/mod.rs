//! Building: from an export to the graph as it will run, with everything decided that can be decided before a device is
//! there.
//!
//! ```text
//! onnx::Model ─ operators ─ weights ─ quantized ─ pin ─ layout ─ names ─▶ Prepared
//! ```
//!
//! [`prepare`] refuses what cannot be decoded and says aloud what it decided; [`cache_key`] names everything that makes
//! one bundle differ from another.

pub mod cache_key;
pub mod layout;
mod names;
mod operators;
mod pin;
mod precision;
mod prepare;
mod quantized;
mod weights;

pub use layout::LayoutChoice;
pub use prepare::{Options, Prepared, prepare};
