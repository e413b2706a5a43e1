//! A whole archive with one entry replaced: its names and checksums are right, so that the fuzzer gets past them.

use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// The archive `whole` with `bytes` as its entry `name`, every entry stored.
pub fn with_entry(whole: &[u8], name: &str, bytes: &[u8]) -> zip::result::ZipResult<Vec<u8>> {
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut whole = ZipArchive::new(Cursor::new(whole))?;
    let mut packed = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..whole.len() {
        let mut entry = whole.by_index(index)?;
        let found = entry.name()?.into_owned();
        packed.start_file(&found, stored)?;
        if found == name {
            packed.write_all(bytes)?;
        } else {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            packed.write_all(&bytes)?;
        }
    }
    Ok(packed.finish()?.into_inner())
}
