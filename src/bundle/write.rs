//! Writing a bundle: manifest first, stored entries on page borders, fixed dates, so that equal inputs give equal bytes.

use super::archive::is_entry_name;
use super::hash::sha256;
use super::manifest::{FileEntry, Manifest};
use super::pack::Packer;
use super::{Bundle, MANIFEST, SIGNATURE};
use crate::aside::{self, AsideFile, cannot_write};
use crate::error::{Error, Result};
use crate::units::count;
use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Entries of a bundle: name → bytes. `manifest.json` is not among them.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Entry data starts at multiples of this, so that a plan can be mapped.
pub const ALIGNMENT_BYTES: u16 = 4096;

/// A bundle that lies whole beside its final name. Dropped without [`Staged::commit`], it is removed.
#[derive(Debug)]
pub struct Staged {
    aside: AsideFile,
    path: PathBuf,
    id: String,
}

impl Staged {
    /// Opens what was written, as [`Bundle::open`] does, so that it can prove itself before it gets its name.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn open(&self) -> Result<Bundle> {
        Bundle::open_at(self.aside.path(), &self.path)
    }

    /// Where it lies until then.
    pub fn aside(&self) -> &Path {
        self.aside.path()
    }

    /// Gives the bundle its name and returns its id.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`]; what had the name before is still there.
    pub fn commit(self) -> Result<String> {
        self.aside.commit()?;
        Ok(self.id)
    }
}

/// Writes the bundle `path`, aside and then renamed, and gives its id (SHA-256 of `manifest.json`).
///
/// `manifest.files` is filled in here from `files`; plans and the signature are left out of it.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when it cannot be written, or when `path` holds something that is no bundle; nothing is
/// left behind, and what was there before is untouched. [`crate::ErrorKind::Unexpected`] for a name that no bundle may hold.
pub fn write(path: &Path, manifest: &Manifest, files: &Files) -> Result<String> {
    stage(path, manifest, files)?.commit()
}

/// [`write()`] without the last step.
///
/// # Errors
/// As [`write()`].
pub fn stage(path: &Path, manifest: &Manifest, files: &Files) -> Result<Staged> {
    stage_with(path, manifest, files, |_id| Ok(Files::new()))
}

/// [`stage`] with plans, which name the bundle's id: `additions` is given it.
///
/// # Errors
/// As [`write()`], and those of `additions`; [`crate::ErrorKind::Unexpected`] when it adds a hashed entry.
pub fn stage_with(
    path: &Path,
    manifest: &Manifest,
    files: &Files,
    additions: impl FnOnce(&str) -> Result<Files>,
) -> Result<Staged> {
    let mut manifest = manifest.clone();
    let hashed = files.iter().filter(|(name, _)| is_hashed(name));
    manifest.files = hashed.map(|(name, bytes)| (name.clone(), entry(bytes))).collect();
    let mut text = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| Error::unexpected("the manifest cannot be written as JSON").because(error))?;
    text.push(b'\n');
    let id = sha256(&text);
    let additions = additions(&id)?;
    if let Some(name) = additions.keys().find(|name| is_hashed(name)) {
        return Err(Error::unexpected(format!("entry `{name}` belongs to the manifest and cannot be added later")));
    }
    let mut all: BTreeMap<&str, &[u8]> = BTreeMap::new();
    all.extend(files.iter().chain(&additions).map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
    Ok(Staged { aside: write_entries(path, &text, &all)?, path: path.to_owned(), id })
}

/// Whether a bundle could be written to `path` now: an early answer before long work.
///
/// # Errors
/// [`crate::ErrorKind::Output`] as [`write()`] would give it.
pub fn check_output(path: &Path) -> Result<()> {
    refuse_to_replace_foreign_file(path)?;
    aside::check(path)
}

/// Writes `bundle` to `path` with `additions` (plans, a signature) beside what it holds. The id stays the same.
///
/// # Errors
/// As [`write()`]; [`crate::ErrorKind::Unexpected`] when an addition would change a hashed entry.
pub fn write_with_additions(path: &Path, bundle: &Bundle, additions: &Files) -> Result<()> {
    stage_with_additions(path, bundle, additions)?.commit().map(|_id| ())
}

/// [`write_with_additions`] without the last step.
///
/// # Errors
/// As [`write_with_additions`].
pub fn stage_with_additions(path: &Path, bundle: &Bundle, additions: &Files) -> Result<Staged> {
    let mut files = Files::new();
    for name in bundle.entry_names().filter(|name| *name != MANIFEST) {
        files.insert(name.to_owned(), bundle.read(name)?);
    }
    for (name, bytes) in additions {
        if is_hashed(name) {
            return Err(Error::unexpected(format!("entry `{name}` belongs to the manifest and cannot be added later")));
        }
        files.insert(name.clone(), bytes.clone());
    }
    let all = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let aside = write_entries(path, bundle.manifest_bytes(), &all)?;
    Ok(Staged { aside, path: path.to_owned(), id: bundle.id().to_owned() })
}

/// Writes a plain archive of `files`, aside and then renamed: a zip that any unzip program reads.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when it cannot be written.
pub fn write_archive(path: &Path, files: &Files) -> Result<()> {
    let fail = |error| cannot_write(path, error);
    let mut packer = Packer::new(BufWriter::with_capacity(1 << 20, AsideFile::create(path)?), ALIGNMENT_BYTES);
    for (name, bytes) in files {
        packer.add(name, bytes).map_err(fail)?;
    }
    let buffered = packer.finish().map_err(fail)?;
    buffered.into_inner().map_err(|error| fail(error.into_error()))?.commit()
}

/// Whether the manifest holds the hash of `name`.
pub(super) fn is_hashed(name: &str) -> bool {
    name != MANIFEST && name != SIGNATURE && !name.starts_with("plans/")
}

fn entry(bytes: &[u8]) -> FileEntry {
    FileEntry { sha256: sha256(bytes), bytes: count(bytes.len()) }
}

fn write_entries(path: &Path, manifest: &[u8], files: &BTreeMap<&str, &[u8]>) -> Result<AsideFile> {
    refuse_to_replace_foreign_file(path)?;
    if let Some(name) = files.keys().find(|name| **name == MANIFEST || !is_entry_name(name)) {
        return Err(Error::unexpected(format!("found entry name `{name}`, which no bundle may hold")));
    }
    // The manifest and its signature come first and plans last: whoever streams the file can decide early.
    let (plans, rest): (Vec<_>, Vec<_>) = files.iter().partition(|(name, _)| name.starts_with("plans/"));
    let (signature, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(name, _)| **name == SIGNATURE);
    let fail = |error| cannot_write(path, error);
    let mut packer = Packer::new(BufWriter::with_capacity(1 << 20, AsideFile::create(path)?), ALIGNMENT_BYTES);
    packer.add(MANIFEST, manifest).map_err(fail)?;
    for (name, bytes) in signature.into_iter().chain(rest).chain(plans) {
        packer.add(name, bytes).map_err(fail)?;
    }
    let buffered = packer.finish().map_err(fail)?;
    buffered.into_inner().map_err(|error| fail(error.into_error()))
}

/// A slip like `-o model.onnx` must not cost the model.
fn refuse_to_replace_foreign_file(path: &Path) -> Result<()> {
    let Ok(about) = std::fs::metadata(path) else { return Ok(()) };
    if !about.is_file() || about.len() == 0 || path.extension().is_some_and(|extension| extension == "edge") {
        return Ok(());
    }
    let mut start = [0; 4];
    let found = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    if found.is_ok() && start == *b"PK\x03\x04" {
        return Ok(());
    }
    Err(Error::output("found a file that is no bundle under the output's name; it is left as it is")
        .at(path.display())
        .hint("give the output another name with `-o NAME.edge`"))
}
