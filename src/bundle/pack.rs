//! Packing a zip of stored, page-aligned entries with fixed dates. Nothing but what [`super::archive`] reads.

use super::archive::{CENTRAL_SIGNATURE, END_SIGNATURE, LOCAL_SIGNATURE, crc32};
use std::io::{self, Write};

/// Version of the format that is needed to unpack: 1.0.
const NEEDED: u16 = 10;
/// Made by version 3.0 on Unix, so that the permissions below count.
const MADE_BY: u16 = 0x031e;
/// 1980-01-01, the first day that zip knows.
const DATE: u16 = 0x0021;
/// A regular file that everybody may read.
const PERMISSIONS: u32 = 0o100_644 << 16;
/// Extra field for alignment, as other packers write it.
const ALIGNMENT_FIELD: u16 = 0xa11e;
/// Bytes of a local header without name and extra field.
const LOCAL_BYTES: u64 = 30;

/// Writes entries one after the other to `target`, then the directory.
#[derive(Debug)]
pub(crate) struct Packer<W> {
    target: W,
    written_bytes: u64,
    alignment_bytes: u16,
    directory: Vec<u8>,
    entries: u16,
}

impl<W: Write> Packer<W> {
    pub(crate) fn new(target: W, alignment_bytes: u16) -> Self {
        Packer { target, written_bytes: 0, alignment_bytes, directory: Vec::new(), entries: 0 }
    }

    /// Writes one entry.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let name_bytes = u16::try_from(name.len()).map_err(|_| too_large())?;
        let length = u32::try_from(bytes.len()).ok().filter(|&length| length < u32::MAX).ok_or_else(too_large)?;
        let header_at = u32::try_from(self.written_bytes).ok().filter(|&at| at < u32::MAX).ok_or_else(too_large)?;
        let padding = self.padding_after(self.written_bytes + LOCAL_BYTES + u64::from(name_bytes));
        let mut common = Vec::with_capacity(24);
        // Needed version, flags, method (stored), time, date.
        for value in [NEEDED, 0, 0, 0, DATE] {
            common.extend(value.to_le_bytes());
        }
        for value in [crc32(bytes), length, length] {
            common.extend(value.to_le_bytes());
        }
        common.extend(name_bytes.to_le_bytes());

        let mut header = LOCAL_SIGNATURE.to_le_bytes().to_vec();
        header.extend(&common);
        header.extend(u16::try_from(padding.len()).map_err(|_| too_large())?.to_le_bytes());
        header.extend(name.as_bytes());
        header.extend(&padding);
        self.put(&header)?;
        self.put(bytes)?;

        self.directory.extend(CENTRAL_SIGNATURE.to_le_bytes());
        self.directory.extend(MADE_BY.to_le_bytes());
        self.directory.extend(&common);
        // Extra field, comment, disk, internal attributes.
        self.directory.extend([0; 8]);
        self.directory.extend(PERMISSIONS.to_le_bytes());
        self.directory.extend(header_at.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.entries = self.entries.checked_add(1).ok_or_else(too_large)?;
        Ok(())
    }

    /// Writes the directory and hands the target back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let directory_at = u32::try_from(self.written_bytes).map_err(|_| too_large())?;
        let directory_bytes = u32::try_from(self.directory.len()).map_err(|_| too_large())?;
        let mut end = std::mem::take(&mut self.directory);
        end.extend(END_SIGNATURE.to_le_bytes());
        for value in [0, 0, self.entries, self.entries] {
            end.extend(value.to_le_bytes());
        }
        end.extend(directory_bytes.to_le_bytes());
        end.extend(directory_at.to_le_bytes());
        end.extend([0; 2]);
        self.put(&end)?;
        self.target.flush()?;
        Ok(self.target)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.target.write_all(bytes)?;
        self.written_bytes += crate::units::count(bytes.len());
        Ok(())
    }

    /// The extra field that moves the data behind `at` to the next border; its own head takes 6 bytes.
    fn padding_after(&self, at: u64) -> Vec<u8> {
        let alignment = u64::from(self.alignment_bytes);
        let missing = at.next_multiple_of(alignment) - at;
        let length = match missing {
            0 => return Vec::new(),
            1..=5 => missing + alignment,
            _ => missing,
        };
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        let mut field = Vec::new();
        for value in [ALIGNMENT_FIELD, length - 4, self.alignment_bytes] {
            field.extend(value.to_le_bytes());
        }
        field.resize(usize::from(length), 0);
        field
    }
}

fn too_large() -> io::Error {
    io::Error::other("the bundle is larger than a zip without ZIP64 can be")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_starts_on_a_border_for_every_length_of_name() {
        for length in 1..80 {
            let mut packer = Packer::new(Vec::new(), 64);
            for first in ["a", "b"] {
                packer.add(&first.repeat(length), &[7; 13]).unwrap();
            }
            let bytes = packer.finish().unwrap();
            let starts: Vec<usize> =
                bytes.windows(13).enumerate().filter(|(_, part)| *part == [7; 13]).map(|(at, _)| at).collect();
            assert_eq!(starts.len(), 2);
            assert!(starts.iter().all(|at| at % 64 == 0), "{length}: {starts:?}");
            assert_eq!(zip::ZipArchive::new(io::Cursor::new(bytes)).unwrap().len(), 2);
        }
    }
}
