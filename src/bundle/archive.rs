//! The zip container, read strictly: stored entries one after the other, nothing hidden between them.
//!
//! A bundle may come from anywhere, so every number in the file is checked before it is used, and whatever edge-build does
//! not write (compression, encryption, ZIP64, comments, data descriptors, foreign names) is refused by name.

use crate::error::{Error, Result};
use crate::units::count;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most entries a bundle may have.
const MOST_ENTRIES: u16 = 4096;
/// Bytes of the end record without a comment.
const END_BYTES: u64 = 22;
pub(super) const END_SIGNATURE: u32 = 0x0605_4b50;
pub(super) const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
const CENTRAL_BYTES: usize = 46;
pub(super) const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
const LOCAL_BYTES: usize = 30;
/// Flag bit 11: the name is UTF-8. Every other flag changes how the data is to be read.
const FLAG_UTF8: u16 = 1 << 11;

/// Where the bytes of one entry lie in the file. Plans are mapped from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRange {
    /// First byte of the data, from the start of the file; a multiple of 4096 in files written by edge-build.
    pub offset_bytes: u64,
    /// Length of the data in bytes.
    pub length_bytes: u64,
    /// CRC-32 as the zip directory states it.
    pub crc32: u32,
}

/// What kind of archive is read: the names it may hold, and the words for people.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveKind {
    /// Whether an archive of this kind may hold the name. No other name is read, so paths cannot escape.
    pub(crate) is_entry_name: fn(&str) -> bool,
    /// Those names, for people.
    pub(crate) names: &'static str,
    /// What it is, as in `bundle`.
    pub(crate) noun: &'static str,
    /// What its files are called, as in `*.edge`.
    pub(crate) files: &'static str,
    /// How to come by a whole one.
    pub(crate) way_out: &'static str,
    /// The way out when somebody has packed it again with another program.
    pub(crate) packed_again: &'static str,
    /// The way out when there is no such file.
    pub(crate) missing: &'static str,
}

/// Bundles.
pub(super) const BUNDLES: ArchiveKind = ArchiveKind {
    is_entry_name,
    names: "manifest.json, signature, model.onnx, golden.json, golden/*.png, plans/*.plan and plans/*.json",
    noun: "bundle",
    files: "*.edge",
    way_out: "build it again with `edge-build MODEL.onnx`, or copy the file again",
    packed_again: "do not pack bundles again; build it again with `edge-build MODEL.onnx`",
    missing: "look at the spelling, or build it with `edge-build MODEL.onnx`",
};

/// An open archive with a checked directory.
#[derive(Debug)]
pub(crate) struct Archive {
    kind: &'static ArchiveKind,
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, EntryRange>,
}

struct Central {
    name: String,
    header_at: u64,
    length_bytes: u64,
    crc32: u32,
}

impl Archive {
    /// Opens the file at `real_path` and checks its directory; errors call it `path`.
    pub(super) fn open(real_path: &Path, path: &Path) -> Result<Archive> {
        Archive::open_kind(&BUNDLES, real_path, path)
    }

    /// As [`Archive::open`], for another kind of archive.
    pub(crate) fn open_kind(kind: &'static ArchiveKind, real_path: &Path, path: &Path) -> Result<Archive> {
        let file = open_regular(kind, real_path).map_err(|error| unreadable(kind, path, error))?;
        let length_bytes = file.metadata().map_err(|error| unreadable(kind, path, error))?.len();
        let mut archive = Archive { kind, path: path.to_owned(), file, entries: BTreeMap::new() };
        archive.read_directory(length_bytes).map_err(|error| error.at(path.display()).hint(kind.way_out))?;
        Ok(archive)
    }

    /// Names and places of all entries.
    pub(crate) fn entries(&self) -> &BTreeMap<String, EntryRange> {
        &self.entries
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Reads the whole entry `name`, which may have at most `most_bytes`.
    pub(crate) fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        let Some(range) = self.entries.get(name) else {
            return Err(Error::refused(format!("found no entry `{name}`, expected one")).at(self.path.display()));
        };
        if range.length_bytes > most_bytes {
            return Err(Error::refused(format!("found {} bytes, expected at most {most_bytes}", range.length_bytes))
                .at(self.place(name)));
        }
        let mut bytes = vec![0; usize::try_from(range.length_bytes).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, range.offset_bytes).map_err(|error| self.lost(name, error))?;
        Ok(bytes)
    }

    /// Hands the bytes of entry `name` to `take` in pieces.
    pub(crate) fn stream(&self, name: &str, range: EntryRange, mut take: impl FnMut(&[u8])) -> Result<()> {
        let mut piece = vec![0; 1 << 16];
        let mut done = 0;
        while done < range.length_bytes {
            let left = usize::try_from(range.length_bytes - done).unwrap_or(usize::MAX).min(piece.len());
            let part = &mut piece[..left];
            self.file.read_exact_at(part, range.offset_bytes + done).map_err(|error| self.lost(name, error))?;
            take(part);
            done += count(left);
        }
        Ok(())
    }

    /// File and entry, for errors.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("{}, entry `{name}`", self.path.display())
    }

    fn lost(&self, name: &str, error: std::io::Error) -> Error {
        Error::refused("the entry cannot be read to its end, it was whole when the file was opened")
            .because(error)
            .at(self.place(name))
            .hint("replace bundles by rename, as edge-build does, never by writing into them")
    }

    fn damaged(&self, what: &str) -> Error {
        damaged(self.kind, what)
    }

    fn read_directory(&mut self, file_bytes: u64) -> Result<()> {
        let (directory_at, directory_bytes, expected) = self.read_end(file_bytes)?;
        let mut directory = vec![0; usize::try_from(directory_bytes).unwrap_or(usize::MAX)];
        self.file
            .read_exact_at(&mut directory, directory_at)
            .map_err(|error| self.damaged("directory").because(error))?;
        let mut rest = directory.as_slice();
        let mut found = Vec::new();
        for _ in 0..expected {
            found.push(read_central(self.kind, &mut rest)?);
        }
        if !rest.is_empty() {
            return Err(self.damaged("directory: more entries than its end record says"));
        }
        found.sort_by_key(|entry| entry.header_at);
        let mut end_bytes = 0;
        for entry in found {
            if entry.header_at != end_bytes {
                return Err(Error::refused(format!(
                    "entry `{}` starts at byte {}, expected {end_bytes}: entries must follow each other",
                    entry.name, entry.header_at
                )));
            }
            let range = self.read_local(&entry, directory_at)?;
            end_bytes = range.offset_bytes + range.length_bytes;
            if let Some(_twin) = self.entries.insert(entry.name.clone(), range) {
                return Err(Error::refused(format!("found entry `{}` twice, expected once", entry.name)));
            }
        }
        if end_bytes != directory_at {
            return Err(self.damaged("end: bytes that belong to no entry"));
        }
        Ok(())
    }

    /// Offset and length of the directory and its number of entries.
    fn read_end(&self, file_bytes: u64) -> Result<(u64, u64, u16)> {
        let mut start = [0; 4];
        if file_bytes < END_BYTES || self.file.read_exact_at(&mut start, 0).is_err() {
            return Err(Error::refused(format!(
                "found {file_bytes} bytes, expected a {} (`{}`)",
                self.kind.noun, self.kind.files
            )));
        }
        if number32(&start, 0) != LOCAL_SIGNATURE {
            return Err(Error::refused(format!("this is no {}: found no zip entry at its start", self.kind.noun)));
        }
        let mut end = [0; 22];
        let end_at = file_bytes - END_BYTES;
        self.file.read_exact_at(&mut end, end_at).map_err(|error| self.damaged("end").because(error))?;
        if number32(&end, 0) != END_SIGNATURE || number16(&end, 20) != 0 {
            return Err(Error::refused(
                "found no end record in the last 22 bytes: the file is cut off, or something was appended to it",
            ));
        }
        let (entries, twin) = (number16(&end, 8), number16(&end, 10));
        let (bytes, at) = (u64::from(number32(&end, 12)), u64::from(number32(&end, 16)));
        if number32(&end, 4) != 0 || entries != twin || entries > MOST_ENTRIES || at + bytes != end_at {
            return Err(self.damaged("end record (several disks, ZIP64 or wrong lengths)"));
        }
        Ok((at, bytes, entries))
    }

    fn read_local(&self, entry: &Central, directory_at: u64) -> Result<EntryRange> {
        let wrong = || self.damaged(&format!("header of entry `{}`: it contradicts the directory", entry.name));
        let mut header = vec![0; LOCAL_BYTES + entry.name.len()];
        if entry.header_at + count(header.len()) > directory_at {
            return Err(wrong());
        }
        self.file.read_exact_at(&mut header, entry.header_at).map_err(|error| wrong().because(error))?;
        let same = number32(&header, 0) == LOCAL_SIGNATURE
            && number16(&header, 6) & !FLAG_UTF8 == 0
            && number16(&header, 8) == 0
            && number32(&header, 14) == entry.crc32
            && u64::from(number32(&header, 18)) == entry.length_bytes
            && u64::from(number32(&header, 22)) == entry.length_bytes
            && usize::from(number16(&header, 26)) == entry.name.len()
            && header[LOCAL_BYTES..] == *entry.name.as_bytes();
        let offset_bytes = entry.header_at + count(header.len()) + u64::from(number16(&header, 28));
        if !same || offset_bytes + entry.length_bytes > directory_at {
            return Err(wrong());
        }
        Ok(EntryRange { offset_bytes, length_bytes: entry.length_bytes, crc32: entry.crc32 })
    }
}

fn read_central(kind: &ArchiveKind, rest: &mut &[u8]) -> Result<Central> {
    if rest.len() < CENTRAL_BYTES || number32(rest, 0) != CENTRAL_SIGNATURE {
        return Err(damaged(kind, "directory: fewer entries than its end record says"));
    }
    let (flags, method) = (number16(rest, 8), number16(rest, 10));
    let (packed, unpacked) = (number32(rest, 20), number32(rest, 24));
    let name_bytes = usize::from(number16(rest, 28));
    let extra_bytes = usize::from(number16(rest, 30));
    let comment_bytes = usize::from(number16(rest, 32));
    let (crc32, header_at) = (number32(rest, 16), u64::from(number32(rest, 42)));
    let Some(name) = rest.get(CENTRAL_BYTES..CENTRAL_BYTES + name_bytes) else {
        return Err(damaged(kind, "directory: a name is longer than the directory"));
    };
    let name = std::str::from_utf8(name).unwrap_or("").to_owned();
    if !(kind.is_entry_name)(&name) {
        return Err(Error::refused(format!("found entry {name:?}, expected only {}", kind.names)));
    }
    if flags & 1 != 0 {
        return Err(Error::refused(format!("entry `{name}` is encrypted, expected it stored as it is")));
    }
    if method != 0 || packed != unpacked {
        return Err(Error::refused(format!("entry `{name}` is compressed, expected it stored as it is"))
            .hint(kind.packed_again));
    }
    if flags & !FLAG_UTF8 != 0 || unpacked == u32::MAX || header_at == u64::from(u32::MAX) {
        return Err(Error::refused(format!("entry `{name}` uses a zip feature that a {} does not have", kind.noun)));
    }
    *rest = rest.get(CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes..).unwrap_or(&[]);
    Ok(Central { name, header_at, length_bytes: u64::from(unpacked), crc32 })
}

/// Whether `name` is one that a bundle may hold. No other name is read or written, so paths cannot escape.
pub(super) fn is_entry_name(name: &str) -> bool {
    let plain = |stem: &str| {
        !stem.is_empty()
            && stem.len() <= 100
            && !stem.starts_with('.')
            && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    match name {
        "manifest.json" | "signature" | "model.onnx" | "golden.json" => true,
        _ => match name.split_once('/') {
            Some(("golden", file)) => file.strip_suffix(".png").is_some_and(plain),
            Some(("plans", file)) => {
                [".plan", ".json", ".signature"].iter().find_map(|end| file.strip_suffix(end)).is_some_and(plain)
            }
            _ => false,
        },
    }
}

/// CRC-32 (IEEE) of `bytes`, as zip uses it.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let table: [u32; 256] = std::array::from_fn(|at| (0..8).fold(u32::try_from(at).unwrap_or(0), |crc, _| step(crc)));
    !bytes.iter().fold(u32::MAX, |crc, &byte| table[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8))
}

/// Looks before it opens: opening a pipe would wait for ever.
fn open_regular(kind: &ArchiveKind, path: &Path) -> std::io::Result<File> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        let found = if about.is_dir() { "a folder" } else { "a device or pipe" };
        return Err(std::io::Error::other(format!("found {found}, expected a {} (`{}`)", kind.noun, kind.files)));
    }
    File::open(path)
}

fn unreadable(kind: &ArchiveKind, path: &Path, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => kind.missing,
        std::io::ErrorKind::PermissionDenied => "give this user the right to read it: `chmod a+r FILE`",
        _ => "look at the disk or the mount",
    };
    Error::refused(format!("the {} cannot be read", kind.noun)).because(error).at(path.display()).hint(hint)
}

fn damaged(kind: &ArchiveKind, what: &str) -> Error {
    Error::refused(format!("the {} is damaged at its {what}", kind.noun))
}

fn number16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}
