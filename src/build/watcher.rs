//! Who looks on while a bundle is built: progress, remarks, the wish to stop.

use crate::bundle::gate::GateResult;
use crate::error::Result;

/// Follows a build. The command line draws bars; tests keep what was said.
pub trait Watcher {
    /// One line that tells what was found or decided.
    fn say(&mut self, line: &str);

    /// One line about something that went wrong without ending the build.
    fn warn(&mut self, line: &str);

    /// `done` of `of` steps of `what` are done; `done == of` ends it.
    fn step(&mut self, what: &str, done: u64, of: u64);

    /// Compiling is at `name`, `done` of `of` steps of the whole are done. Called often.
    fn phase(&mut self, _name: &str, _done: u64, _of: u64) {}

    /// Compiling has ended, well or not.
    fn phase_done(&mut self) {}

    /// The accuracy gate has measured a converted graph; the build ends here when it did not pass.
    fn judged(&mut self, _result: &GateResult) {}

    /// An error of kind [`crate::ErrorKind::Interrupted`] when the build is to stop.
    ///
    /// # Errors
    /// Exactly that.
    fn check_stop(&self) -> Result<()>;
}

/// For tests that do not listen.
#[cfg(test)]
pub(crate) struct Silent;

#[cfg(test)]
impl Watcher for Silent {
    fn say(&mut self, _: &str) {}
    fn warn(&mut self, _: &str) {}
    fn step(&mut self, _: &str, _: u64, _: u64) {}
    fn check_stop(&self) -> Result<()> {
        Ok(())
    }
}
