//! A kernel that faults, for acceptance tests: what it leaves is what any faulty kernel leaves.

use super::{Context, Driver, Stream, Wait, module::Module};
use crate::error::Result;
use std::ffi::CStr;

const PTX: &CStr = c".version 7.4
.target sm_72
.address_size 64
.visible .entry trap_on_purpose()
{
    trap;
}
";

/// Runs a kernel that traps on the device with this ordinal. Nothing works any more in this process's context of it; other
/// processes and the device itself are not harmed.
///
/// # Errors
/// What the driver reports: of the trap, or before it.
pub fn trap(ordinal: u32) -> Result<()> {
    let context = Context::new(Driver::load()?, ordinal, Wait::Block)?;
    let kernel = Module::load(&context, PTX)?.kernel(c"trap_on_purpose")?;
    let stream = Stream::new(&context)?;
    // SAFETY: the kernel takes no arguments and touches no memory.
    unsafe { kernel.launch([1, 1, 1], [1, 1, 1], &stream, &[]) }?;
    stream.synchronize()
}
