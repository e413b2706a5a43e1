//! Sinks: where results go. Sinks never change a detection.

use crate::error::Result;

pub mod draw;
pub mod http;
pub mod json;
pub mod metrics;
pub mod row;
pub mod save;
pub mod space;
pub mod terminal;

/// A place where results go. One thread owns it and gives it every row of its streams in order.
pub trait Sink: Send {
    /// Takes one result. A live sink never waits for a disk, a network or a reader longer than one write takes: what it
    /// cannot keep it drops and counts.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when the result cannot be written and may not be dropped.
    fn put(&mut self, row: &row::Row) -> Result<()>;

    /// Hands everything taken so far to the operating system.
    ///
    /// # Errors
    /// As [`Sink::put`].
    fn flush(&mut self) -> Result<()>;

    /// Ends the output: files that were written aside get their name now. A sink that is dropped without it leaves no
    /// partial file.
    ///
    /// # Errors
    /// As [`Sink::put`].
    fn finish(&mut self) -> Result<()> {
        self.flush()
    }
}
