//! The one error type of the library: kind, place, found against expected, hint.
//!
//! A message says what was found and what was expected, in lower case and without a full stop. The place (file, field,
//! node, device) is added once, by the layer that knows it. The hint is the way out. Programs look at [`ErrorKind`];
//! [`ErrorKind::exit_code`] is the documented exit code.

use std::fmt;

/// What went wrong, for programs. Each kind has one exit code (see `docs/exit-codes.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Exit 1: a defect of this program or of the machine that no other kind covers.
    Unexpected,
    /// Exit 2: flags, recipe or configuration.
    Usage,
    /// Exit 3: a model or a bundle is refused.
    Refused,
    /// Exit 4: it does not fit the memory budget.
    Budget,
    /// Exit 5: the accuracy gate failed (edge-build alone).
    Accuracy,
    /// Exit 6: a camera or another source failed.
    Source,
    /// Exit 7: the GPU or its driver failed; a restart helps.
    Device,
    /// Exit 8: the guard gave up and asks for a restart.
    GuardGaveUp,
    /// Exit 9: the time limit was reached; finished work is kept.
    TimeLimit,
    /// Exit 10: this machine lacks a library, a driver or a permission; a restart does not help.
    MachineLacks,
    /// Exit 11: output cannot be written (disk full, read-only folder, port taken).
    Output,
    /// Exit 130: interrupted by the user.
    Interrupted,
}

impl ErrorKind {
    /// The exit code of a program that ends with this kind of error.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Unexpected => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Refused => 3,
            ErrorKind::Budget => 4,
            ErrorKind::Accuracy => 5,
            ErrorKind::Source => 6,
            ErrorKind::Device => 7,
            ErrorKind::GuardGaveUp => 8,
            ErrorKind::TimeLimit => 9,
            ErrorKind::MachineLacks => 10,
            ErrorKind::Output => 11,
            ErrorKind::Interrupted => 130,
        }
    }
}

/// An error with its kind, its place and the way out.
#[derive(Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<String>,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result type of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; `message` gives what was found against what was expected.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { inner: Box::new(Inner { kind, message: message.into(), place: None, hint: None, source: None }) }
    }

    /// Adds the place: file, field, node or device. The innermost place wins: a second call is ignored.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        if self.inner.place.is_none() {
            self.inner.place = Some(place.to_string());
        }
        self
    }

    /// Replaces the place by a longer one, as in `model.onnx, tensor `w``.
    #[must_use]
    pub fn moved_to(mut self, place: impl fmt::Display) -> Self {
        self.inner.place = Some(place.to_string());
        self
    }

    /// Adds the way out. The innermost hint wins: a second call is ignored.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if self.inner.hint.is_none() {
            self.inner.hint = Some(hint.into());
        }
        self
    }

    /// Adds the error below this one; its text is appended when this error is displayed.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// The kind, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// What was found against what was expected, without place and hint.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Where it happened.
    pub fn place(&self) -> Option<&str> {
        self.inner.place.as_deref()
    }

    /// The way out.
    pub fn hint_text(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }
}

/// `message: cause`, then `  at: place` and, below an empty line, `hint: …`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        if let Some(source) = &self.inner.source {
            write!(f, ": {source}")?;
        }
        if let Some(place) = &self.inner.place {
            write!(f, "\n  at: {place}")?;
        }
        if let Some(hint) = &self.inner.hint {
            write!(f, "\n\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Shorthands: one per kind that is raised in many places.
impl Error {
    /// [`ErrorKind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// [`ErrorKind::Refused`].
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// [`ErrorKind::Source`].
    pub fn source_failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Source, message)
    }

    /// [`ErrorKind::Output`].
    pub fn output(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Output, message)
    }

    /// [`ErrorKind::Unexpected`].
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unexpected, message)
    }

    /// [`ErrorKind::Usage`]: a configuration `text` that is no valid TOML for its type, in one line with its line number.
    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let message = error.message().trim().replace('\n', ", ");
        match error.span().and_then(|span| text.get(..span.start)) {
            Some(before) => Self::usage(format!("line {}: {message}", before.matches('\n').count() + 1)),
            None => Self::usage(message),
        }
    }

    /// [`ErrorKind::MachineLacks`].
    pub fn machine_lacks(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::MachineLacks, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_has_message_cause_place_and_hint() {
        let error = Error::refused("found 3 classes, expected 6")
            .because("line 7")
            .at("line1.edge, manifest field `classes`")
            .at("an outer layer")
            .hint("rebuild the bundle");
        assert_eq!(
            error.to_string(),
            "found 3 classes, expected 6: line 7\n  at: line1.edge, manifest field `classes`\n\nhint: rebuild the bundle"
        );
        assert_eq!(error.kind().exit_code(), 3);
    }
}
