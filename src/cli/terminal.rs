//! The one writer of both programs.

use crate::error::{Error, Result};
use std::io::{IsTerminal, Write};

/// Standard output for data, standard error for people. Tests give buffers instead.
pub struct Terminal {
    data: Box<dyn Write + Send>,
    people: Box<dyn Write + Send>,
    colour: bool,
    interactive: bool,
    quiet: bool,
}

impl Terminal {
    /// The terminal of this process. `NO_COLOR` and `CI` are honoured.
    pub fn of_process() -> Terminal {
        let interactive = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        Terminal {
            data: Box::new(std::io::stdout()),
            people: Box::new(std::io::stderr()),
            colour: std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            interactive,
            quiet: false,
        }
    }

    /// Writes to `data` and `people`, without colour and bars.
    pub fn to_writers(data: Box<dyn Write + Send>, people: Box<dyn Write + Send>) -> Terminal {
        Terminal { data, people, colour: false, interactive: false, quiet: false }
    }

    /// Leaves out everything for people but warnings and errors.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether a person looks on: bars may move.
    pub fn is_interactive(&self) -> bool {
        self.interactive && !self.quiet
    }

    /// Whether escape sequences for colour may be written.
    pub fn has_colour(&self) -> bool {
        self.colour
    }

    /// One line for people on standard error.
    pub fn say(&mut self, line: impl std::fmt::Display) {
        if !self.quiet {
            let _nobody_listens = writeln!(self.people, "{line}");
        }
    }

    /// A warning on standard error, also when quiet.
    pub fn warn(&mut self, line: impl std::fmt::Display) {
        let word = if self.colour { "\x1b[1;33mwarning\x1b[0m" } else { "warning" };
        let _nobody_listens = writeln!(self.people, "{word}: {line}");
    }

    /// An error on standard error.
    pub fn error(&mut self, error: &Error) {
        let word = if self.colour { "\x1b[1;31merror\x1b[0m" } else { "error" };
        let _nobody_listens = writeln!(self.people, "{word}: {error}");
    }

    /// Data on standard output, a line feed added. A reader that has gone away (`| head`) is no error.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when standard output cannot be written.
    pub fn data(&mut self, text: impl std::fmt::Display) -> Result<()> {
        match writeln!(self.data, "{text}").and_then(|()| self.data.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Error::output("standard output cannot be written").because(error))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terminal {{ colour: {}, interactive: {}, quiet: {} }}", self.colour, self.interactive, self.quiet)
    }
}
