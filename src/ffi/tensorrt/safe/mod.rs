//! Ownership of TensorRT's objects.

mod build;
mod context;
mod library;
mod network;
mod run;
mod tensor;

pub use build::{BuildSettings, Builder, Config, ProfilingVerbosity, TimingCache};
pub use context::Context;
pub use library::Library;
pub use network::{Network, ParserError};
pub use run::{Engine, Runtime};
pub use tensor::{DataType, TensorFacts};

use super::abi::Raw;
use super::sys;

/// An object that is ours to delete.
struct Owned<C>(Raw<C>);

impl<C> Drop for Owned<C> {
    fn drop(&mut self) {
        // SAFETY: made by a factory that gives the object to the caller, deleted once here, and the structs that hold an `Owned`
        // drop it before the parents that it needs.
        unsafe { sys::delete(self.0.object()) }
    }
}

#[cfg(test)]
mod tests;
