//! Bundles (`*.edge`): one zip with stored, page-aligned entries that holds a model and all that is needed to prove it.
//!
//! | entry | holds | in the manifest's hashes |
//! | --- | --- | --- |
//! | `manifest.json` | [`manifest::Manifest`]; its SHA-256 is the bundle's id | (it is the manifest) |
//! | `signature` | signature over `manifest.json` | no |
//! | `model.onnx` | the graph as it runs | yes |
//! | `golden.json`, `golden/*.png` | known answers ([`golden`]) | yes |
//! | `plans/NAME.plan`, `plans/NAME.json` | a TensorRT plan for one machine, and what it was made from ([`plan`]) | no |
//!
//! Reading trusts nothing: see [`Bundle::open`]. The manifest's `cache_key` is computed by the build stage over everything
//! that makes the bundle what it is, its parts stand in `cache_key_fields`.

mod archive;
mod check;
pub mod gate;
pub mod golden;
mod hash;
pub mod manifest;
mod pack;
pub mod plan;
mod search;
pub mod signature;
mod write;

pub use archive::EntryRange;
pub use hash::{RunningHash, sha256};
pub use manifest::Manifest;
pub use search::search;
pub use write::{
    ALIGNMENT_BYTES, Files, Staged, check_output, stage, stage_with, stage_with_additions, write, write_archive,
    write_with_additions,
};

use crate::error::{Error, Result};
pub(crate) use archive::{Archive, ArchiveKind, crc32};
pub(crate) use check::parse as parse_manifest;
pub(crate) use pack::Packer;

use std::path::{Path, PathBuf};

/// Entry with the manifest.
pub const MANIFEST: &str = "manifest.json";
/// Entry with the signature over the manifest.
pub const SIGNATURE: &str = "signature";
/// Entry with the graph as it runs.
pub const MODEL: &str = "model.onnx";
/// Entry with the known answers.
pub const GOLDEN_ANSWERS: &str = "golden.json";

const MOST_MANIFEST_BYTES: u64 = 16 << 20;
const MOST_ENTRY_BYTES: u64 = u32::MAX as u64;

/// A bundle that has been opened and whose hashes are right. It keeps the file open: a rename over it changes nothing here.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    archive: Archive,
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    id: String,
}

impl Bundle {
    /// Opens `path` and checks container, schema, fields and the hash of every entry but plans.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] naming the entry or field that is wrong.
    pub fn open(path: &Path) -> Result<Bundle> {
        Bundle::open_at(path, path)
    }

    /// Opens the file at `real_path`; errors and [`Bundle::path`] call it `path`.
    fn open_at(real_path: &Path, path: &Path) -> Result<Bundle> {
        let archive = Archive::open(real_path, path)?;
        let manifest_bytes = archive.read(MANIFEST, MOST_MANIFEST_BYTES)?;
        let stated = archive.entries().get(MANIFEST).map_or(0, |range| range.crc32);
        if archive::crc32(&manifest_bytes) != stated {
            return Err(Error::refused("the manifest does not match its checksum")
                .at(archive.place(MANIFEST))
                .hint("the file was damaged; copy it again, or build it again with `edge-build MODEL.onnx`"));
        }
        let manifest = check::parse(&manifest_bytes).map_err(|error| match error.place() {
            Some(field) => {
                let place = format!("{}, {field}", path.display());
                error.moved_to(place).hint("build it again with `edge-build MODEL.onnx`")
            }
            None => error.at(archive.place(MANIFEST)),
        })?;
        check::check_files(&archive, &manifest)?;
        let id = sha256(&manifest_bytes);
        Ok(Bundle { path: path.to_owned(), archive, manifest, manifest_bytes, id })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest as it stands in the file: what a signature covers.
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.manifest_bytes
    }

    /// SHA-256 of `manifest.json`, lower-case hex.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The graph as it runs.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when the file has changed since it was opened.
    pub fn model(&self) -> Result<Vec<u8>> {
        self.read(MODEL)
    }

    /// The known answers with their pictures.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when a picture or the answers cannot be read.
    pub fn golden(&self) -> Result<golden::GoldenSet> {
        golden::GoldenSet::read(self)
    }

    /// Names of all entries.
    pub fn entry_names(&self) -> impl Iterator<Item = &str> {
        self.archive.entries().keys().map(String::as_str)
    }

    /// Names of the plans it holds (`plans/NAME.plan` → `NAME`).
    pub fn plan_names(&self) -> impl Iterator<Item = &str> {
        self.entry_names().filter_map(|name| name.strip_prefix("plans/")?.strip_suffix(".plan"))
    }

    /// Where the entry `name` lies in [`Bundle::file`], to be mapped. The hash of a plan is for the caller to check.
    pub fn entry_range(&self, name: &str) -> Option<EntryRange> {
        self.archive.entries().get(name).copied()
    }

    /// The open file.
    pub fn file(&self) -> &std::fs::File {
        self.archive.file()
    }

    /// The bytes of entry `name`; those that the manifest knows are hashed again.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when there is no such entry or it has changed since the bundle was opened.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let bytes = self.archive.read(name, MOST_ENTRY_BYTES)?;
        if let Some(expected) = self.manifest.files.get(name) {
            check::compare_hash(&sha256(&bytes), &expected.sha256)
                .map_err(|error| error.at(self.archive.place(name)))?;
        }
        Ok(bytes)
    }

    /// File and entry, for errors about an entry's content.
    pub fn place(&self, name: &str) -> String {
        self.archive.place(name)
    }
}

#[cfg(test)]
mod tests;
