//! TensorRT without its SDK: one binary for TensorRT 8.5 to 11 and TensorRT-RTX 1.3 and newer.
//!
//! | layer | module | what it does |
//! | --- | --- | --- |
//! | versions | [`version`] | reads `getInferLibVersion()`, chooses one of five families |
//! | probe | [`probe`] | finds and opens the libraries, refuses what is too old or unknown |
//! | sys | `sys` | slot tables, enum values, struct layouts; no logic |
//! | result | `result` | one thin function per call: null checks, texts, absent methods → [`crate::Error`] |
//! | callbacks | [`callbacks`] | objects that TensorRT calls: logger, error recorder, progress monitor, allocator, profiler |
//! | safe | [`Library`], [`Builder`], [`Runtime`], … | ownership: every child holds its parent |
//!
//! # Ownership
//!
//! ```text
//! Library ─ Builder ─┬─ Network ─ Parser          Library ─ Runtime ─ Engine ─┬─ Context
//!                    ├─ Config ─ TimingCache                                  └─ Inspector
//!                    └─ Profile (TensorRT owns it)
//! ```
//!
//! Every arrow is an `Arc` in the child, so nothing is freed before what uses it. The logger is one a process and is never
//! freed, as TensorRT keeps its address.
//!
//! # Threads
//!
//! NVIDIA's rule (Developer Guide, "Thread Safety"): an object is used by one thread at a time; non-modifying calls on a
//! runtime or an engine, deserialising and creating execution contexts may run at the same time; a context belongs to one
//! thread at a time. Hence [`Engine`] is `Send + Sync`, [`Context`] is `Send` alone, and the build objects are neither.
//!
//! # What TensorRT itself gets wrong without a driver
//!
//! TensorRT 8.6 crashes in `createInferRuntime` on a machine without a working CUDA driver and 10.15 returns a wild pointer.
//! So no factory of `libnvinfer` is called before the driver has answered; TensorRT-RTX builds without one.

mod abi;
pub mod callbacks;
pub mod probe;
mod result;
mod safe;
mod sys;
pub mod version;

pub use safe::{
    BuildSettings, Builder, Config, Context, DataType, Engine, Library, Network, ParserError, ProfilingVerbosity,
    Runtime, TensorFacts, TimingCache,
};
