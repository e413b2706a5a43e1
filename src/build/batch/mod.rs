//! A batch-1 export becomes one for N pictures a run.
//!
//! Exports write the batch of 1 into the shape operands of `Reshape`, `Expand` and `Resize`. [`rewrite()`] walks the graph in
//! run order with shape inference at both batches, replaces each operand that carries the batch, and refuses the first node
//! at which the batch cannot be followed. Shapes alone do not show a mix-up of slots: [`proof::prove`] runs both graphs.

pub(super) mod proof;
mod rewrite;

pub(super) use rewrite::rewrite;

/// Largest batch that an export is rewritten to.
pub const MOST: u32 = 32;

#[cfg(test)]
mod tests;
