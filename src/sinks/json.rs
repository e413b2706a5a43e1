//! JSON lines: one result a line (`--output FILE` or `-`).
//!
//! Files and folders as source: the file is written aside and gets its name at the end; a full disk is an error and leaves
//! nothing. Live sources: lines are appended to a file that rotates; near a full disk lines are dropped and counted, and
//! writing goes on when space is back.

mod appended;
mod whole;

pub use appended::Rotation;

use super::Sink;
use super::row::Row;
use crate::error::{Error, Result};
use crate::telemetry::{Counter, Labels, Metric, Telemetry};
use std::io::Write;
use std::path::Path;

/// How a file of results is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Written aside, replaced by rename at the end, never rotated; a full disk is an error. For files as source.
    Whole,
    /// Appended and rotated; a full disk drops and counts. For live sources.
    Appended(Rotation),
}

/// The sink for JSON lines.
pub struct JsonLines {
    line: Vec<u8>,
    place: Place,
    written: Counter,
}

enum Place {
    Stream(Box<dyn Write + Send>),
    Whole(whole::WholeFile),
    Appended(appended::AppendedFile),
}

impl JsonLines {
    /// Lines to `target`; `-` is standard output. A target that exists and is no regular file (a pipe, `/dev/null`) is
    /// written to as it is, whatever `keeping` says.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when it cannot be written: no such folder, a folder in its place, no permission.
    pub fn open(target: &Path, keeping: Keeping, telemetry: &Telemetry) -> Result<Self> {
        if target == Path::new("-") {
            return Ok(Self::to_writer(Box::new(std::io::stdout()), telemetry));
        }
        let place = match std::fs::metadata(target) {
            Ok(found) if found.is_dir() => {
                return Err(Error::output("found a folder, expected a file")
                    .at(target.display())
                    .hint("name a file in it, for example `--output results.jsonl`"));
            }
            Ok(found) if !found.is_file() => {
                let opened = std::fs::OpenOptions::new().write(true).open(target);
                Place::Stream(Box::new(opened.map_err(|why| cannot_write(target, why))?))
            }
            _ => match keeping {
                Keeping::Whole => Place::Whole(whole::WholeFile::create(target)?),
                Keeping::Appended(rotation) => {
                    Place::Appended(appended::AppendedFile::open(target, rotation, telemetry)?)
                }
            },
        };
        Ok(Self::to_place(place, telemetry))
    }

    /// Lines to any writer; each line is one write.
    pub fn to_writer(writer: Box<dyn Write + Send>, telemetry: &Telemetry) -> Self {
        Self::to_place(Place::Stream(writer), telemetry)
    }

    fn to_place(place: Place, telemetry: &Telemetry) -> Self {
        let written = telemetry.counter(Metric::OutputRowsWritten, Labels::NONE);
        JsonLines { line: Vec::with_capacity(4096), place, written }
    }
}

impl Sink for JsonLines {
    fn put(&mut self, row: &Row) -> Result<()> {
        self.line.clear();
        row.write_json(&mut self.line);
        self.line.push(b'\n');
        let kept = match &mut self.place {
            Place::Stream(writer) => writer.write_all(&self.line).map(|()| true).map_err(stream_closed)?,
            Place::Whole(file) => file.put(&self.line).map(|()| true)?,
            Place::Appended(file) => file.put(&self.line),
        };
        if kept {
            self.written.increment();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match &mut self.place {
            Place::Stream(writer) => writer.flush().map_err(stream_closed),
            Place::Whole(file) => file.flush(),
            Place::Appended(file) => {
                file.sync();
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        match &mut self.place {
            Place::Whole(file) => file.finish(),
            _ => self.flush(),
        }
    }
}

fn stream_closed(why: std::io::Error) -> Error {
    let message = match why.kind() {
        std::io::ErrorKind::BrokenPipe => "the reader of the results has gone away",
        _ => "results cannot be written",
    };
    Error::output(message).because(why).at("output stream")
}

/// An error for a file that cannot be written, with the way out that fits.
pub(crate) fn cannot_write(path: &Path, why: std::io::Error) -> Error {
    let hint = match why.kind() {
        std::io::ErrorKind::NotFound => "make the folder first, or name another",
        std::io::ErrorKind::PermissionDenied => "name a folder that this user may write to",
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => "free some space, or name another disk",
        std::io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only: name another folder",
        _ => "check the disk, or name another folder",
    };
    Error::output("the file cannot be written").because(why).at(path.display()).hint(hint)
}

#[cfg(test)]
mod tests;
