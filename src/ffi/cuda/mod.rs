//! The CUDA driver, found at run time: devices, contexts, streams, events, graphs, memory.
//!
//! The few functions that are needed are declared here, one line each, and looked up once when the driver is loaded; all
//! exist since CUDA 11.4 (JetPack 5). The bindings of `cudarc` are not used: they hold the driver's result in a Rust enum of the
//! codes of one CUDA version, so that a code which a newer driver adds would be undefined behaviour, and they panic on a
//! missing function.
//!
//! # Ownership
//!
//! `Driver` (never unloaded) → [`Context`] → [`Stream`], [`Event`], [`DeviceBuffer`], [`PinnedBuffer`], [`Graph`]: each child holds
//! its context by `Arc`. Every call makes its context current on the calling thread first, so any thread may call.

mod budget;
mod context;
mod driver;
mod graph;
mod memory;
mod module;
mod stream;
mod trap;

pub use budget::Budget;
pub use context::{Context, DeviceFacts, MemoryInfo, Wait, devices, pci_address};
pub use driver::{Driver, DriverVersion};
pub use graph::Graph;
pub use memory::{DeviceBuffer, PinnedBuffer, live_allocations};
pub(super) use module::{Kernel, Module};
pub use stream::{Event, Stream};
pub use trap::trap;

#[cfg(test)]
pub(crate) mod double;
