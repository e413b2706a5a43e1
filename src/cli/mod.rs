//! What both programs share: the terminal, error texts, exit codes, logs, Ctrl-C.
//!
//! Data goes to standard output, everything else to standard error. Colour and bars appear only on a terminal.

mod baseline;
mod batch_flags;
mod doctor;
pub mod edge_build;
pub mod edge_run;
pub mod gpu_flags;
mod incident;
mod product;
mod replay;
mod sample;
mod service;
mod terminal;

pub use terminal::Terminal;

use crate::error::{Error, ErrorKind, Result};
use crate::ffi::process;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads the flags with `parse`, runs `work` on them and turns its result into text and exit code.
///
/// Help and version print to standard output and end with 0; a flag that cannot be understood ends with 2. Where a thread was left behind
/// inside a library the process ends here: the library's own end would fault.
pub fn program<A: clap::Parser>(work: impl FnOnce(A, &mut Terminal) -> Result<()>) -> ExitCode {
    init_logs();
    let mut terminal = Terminal::of_process();
    let result = match A::try_parse() {
        Ok(flags) => work(flags, &mut terminal),
        Err(error) => return usage(&error),
    };
    let code = result.map_or_else(
        |error| {
            terminal.error(&error);
            error.kind().exit_code()
        },
        |()| 0,
    );
    process::end_if_left_behind(code);
    ExitCode::from(code)
}

/// A value by its own parser, which says what it expected.
fn parsed<T: std::str::FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

fn usage(error: &clap::Error) -> ExitCode {
    let _unwritable = error.print();
    ExitCode::from(if error.use_stderr() { ErrorKind::Usage.exit_code() } else { 0 })
}

/// Log lines to standard error, `warn` and above; `EDGE_LOG` (or `RUST_LOG`) sets other levels.
pub fn init_logs() {
    use std::io::Write;
    let levels = std::env::var("EDGE_LOG").or_else(|_| std::env::var("RUST_LOG")).unwrap_or_else(|_| "warn".to_owned());
    let _already_set = env_logger::Builder::new()
        .parse_filters(&levels)
        .format(|line, record| {
            let level = match record.level() {
                log::Level::Error => "error",
                log::Level::Warn => "warning",
                log::Level::Info => "info",
                log::Level::Debug => "debug",
                log::Level::Trace => "trace",
            };
            writeln!(line, "{level}: {}", record.args())
        })
        .try_init();
}

/// Whether the user wants this process to stop; cheap to clone and to ask.
#[derive(Debug, Clone, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// A request that Ctrl-C and SIGTERM make. A process can have one.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] when the handler cannot be set.
    pub fn on_signals() -> Result<StopRequest> {
        let request = StopRequest::default();
        let flag = Arc::clone(&request.0);
        Self::call_on_signals(move || flag.store(true, Ordering::Relaxed))?;
        Ok(request)
    }

    /// Calls `action` on Ctrl-C and SIGTERM. A process can have one such action.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] when the handler cannot be set.
    pub fn call_on_signals(action: impl FnMut() + Send + 'static) -> Result<()> {
        ctrlc::set_handler(action).map_err(|error| Error::unexpected("Ctrl-C cannot be caught").because(error))
    }

    /// Makes the request.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was made.
    pub fn is_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error of kind [`ErrorKind::Interrupted`] once the request was made.
    ///
    /// # Errors
    /// Exactly that.
    pub fn check(&self) -> Result<()> {
        if self.is_made() {
            Err(Error::new(ErrorKind::Interrupted, "interrupted; nothing was written"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_request_is_an_error_of_its_own_kind() {
        let request = StopRequest::default();
        request.check().unwrap();
        request.clone().stop();
        assert_eq!(request.check().unwrap_err().kind().exit_code(), 130);
    }
}
