//! A file that appears whole or not at all.

use super::cannot_write;
use crate::error::Result;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 64 * 1024;

/// Written beside its place, flushed to the disk, then renamed. Dropped unfinished, it leaves nothing.
pub(super) struct WholeFile {
    target: PathBuf,
    aside: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    done: bool,
}

impl WholeFile {
    pub(super) fn create(target: &Path) -> Result<Self> {
        let target = resolved(target);
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        let aside = target.with_file_name(name);
        let file = File::create(&aside).map_err(|why| cannot_write(&target, why))?;
        Ok(WholeFile { target, aside, file: Some(file), buffer: Vec::with_capacity(BUFFER_BYTES), done: false })
    }

    pub(super) fn put(&mut self, line: &[u8]) -> Result<()> {
        if self.buffer.len() + line.len() > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(line);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        let written = match &mut self.file {
            Some(file) => file.write_all(&self.buffer),
            None => Err(io::Error::other("it was given up or finished before")),
        };
        self.buffer.clear();
        written.map_err(|why| self.given_up(why))
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        if self.done {
            return Ok(());
        }
        self.flush()?;
        let named = match &self.file {
            Some(file) => file.sync_all().and_then(|()| std::fs::rename(&self.aside, &self.target)),
            None => Ok(()),
        };
        named.map_err(|why| self.given_up(why))?;
        self.file = None;
        self.done = true;
        if let Some(folder) = self.target.parent()
            && let Ok(folder) = File::open(folder)
        {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn given_up(&mut self, why: io::Error) -> crate::Error {
        self.remove();
        cannot_write(&self.target, why)
    }

    fn remove(&mut self) {
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.aside);
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A link is followed, so that the rename replaces the file it names and not the link.
fn resolved(target: &Path) -> PathBuf {
    let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
    match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new(".").join(target),
        _ => target,
    }
}
