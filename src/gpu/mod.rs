//! Memory on the GPU before there is any: the plan, its check against the budget, its table.
//!
//! The kernels lie in `kernels/` (CUDA C, and beside it the PTX that `tools/make_ptx.py` makes of it); what launches them is
//! [`crate::ffi::lane`].

pub mod layers;
pub mod plan;

pub use plan::{MemoryInputs, MemoryPlan, PlanLine, Reload};
