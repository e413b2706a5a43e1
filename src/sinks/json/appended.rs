//! A file that lines are appended to: rotated by size, repaired after a crash, quiet near a full disk.

use super::cannot_write;
use crate::error::Result;
use crate::sinks::space::{Room, SpaceWatch};
use crate::telemetry::{Counter, Labels, Metric, Telemetry};
use crate::units::{Bytes, count};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// When a file is put aside and how many are kept: `FILE`, `FILE.1` (newest) … `FILE.9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Files kept, the present one included; at least 1.
    pub files: u32,
    /// Size at which the present file is put aside.
    pub file_bytes: Bytes,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { files: 10, file_bytes: Bytes(100_000_000) }
    }
}

/// Lines written before a crash end with a line feed; a longer unfinished line than this is not looked for.
const LONGEST_TAIL_BYTES: u64 = 4 << 20;

pub(super) struct AppendedFile {
    path: PathBuf,
    rotation: Rotation,
    file: Option<File>,
    length_bytes: u64,
    space: SpaceWatch,
    dropped_low_space: Counter,
    dropped_write_error: Counter,
    complained: bool,
}

impl AppendedFile {
    pub(super) fn open(path: &Path, rotation: Rotation, telemetry: &Telemetry) -> Result<Self> {
        let (file, length_bytes) = open_repaired(path).map_err(|why| cannot_write(path, why))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(AppendedFile {
            path: path.to_path_buf(),
            rotation,
            file: Some(file),
            length_bytes,
            space: SpaceWatch::new(folder),
            dropped_low_space: telemetry.counter(Metric::OutputRowsDropped, Labels::reason("low_space")),
            dropped_write_error: telemetry.counter(Metric::OutputRowsDropped, Labels::reason("write_error")),
            complained: false,
        })
    }

    /// Whether the line was kept.
    pub(super) fn put(&mut self, line: &[u8]) -> bool {
        if self.space.room() == Room::Low {
            self.dropped_low_space.increment();
            return false;
        }
        match self.write(line) {
            Ok(()) => {
                self.complained = false;
                true
            }
            Err(why) if matches!(why.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                self.space.is_full();
                self.dropped_low_space.increment();
                false
            }
            Err(why) => {
                if !std::mem::replace(&mut self.complained, true) {
                    log::error!("{}: results are not kept: {why}", self.path.display());
                }
                self.dropped_write_error.increment();
                self.file = None;
                false
            }
        }
    }

    pub(super) fn sync(&mut self) {
        if let Some(file) = &self.file
            && let Err(why) = file.sync_data()
        {
            log::error!("{}: {why}", self.path.display());
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.file.is_some()
            && self.length_bytes + count(line.len()) > self.rotation.file_bytes.0
            && self.length_bytes > 0
        {
            self.rotate()?;
        }
        if self.file.is_none() {
            let (file, length_bytes) = open_repaired(&self.path)?;
            self.file = Some(file);
            self.length_bytes = length_bytes;
        }
        let Some(file) = &mut self.file else { return Err(io::Error::other("no file is open")) };
        match file.write_all(line) {
            Ok(()) => {
                self.length_bytes += count(line.len());
                Ok(())
            }
            Err(why) => {
                let _ = file.set_len(self.length_bytes);
                Err(why)
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        let oldest = self.rotation.files.saturating_sub(1);
        if oldest == 0 {
            return std::fs::remove_file(&self.path);
        }
        for number in (1..oldest).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
        std::fs::rename(&self.path, self.numbered(1))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(self.path.as_os_str());
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Opens for appending, its length in bytes with it. A last line without its end is cut off when it is one of ours (or what a power cut
/// leaves: zeros), else it is ended, so that no reader meets half a line and no foreign text is lost.
fn open_repaired(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let length_bytes = file.metadata()?.len();
    let from = length_bytes.saturating_sub(LONGEST_TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    Read::by_ref(&mut file).take(LONGEST_TAIL_BYTES).read_to_end(&mut tail)?;
    let line_start = tail.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let unfinished = &tail[line_start..];
    if unfinished.is_empty() {
        return Ok((file, length_bytes));
    }
    let whole_line_seen = line_start > 0 || from == 0;
    let is_ours = unfinished.starts_with(b"{\"stream\":") || b"{\"stream\":".starts_with(unfinished);
    if whole_line_seen && (is_ours || unfinished[0] == 0) {
        let kept_bytes = from + count(line_start);
        log::warn!("{}: cut off {} bytes of an unfinished last line", path.display(), unfinished.len());
        file.set_len(kept_bytes)?;
        return Ok((file, kept_bytes));
    }
    log::warn!("{}: the last line had no end, it has one now", path.display());
    file.write_all(b"\n")?;
    Ok((file, length_bytes + 1))
}
