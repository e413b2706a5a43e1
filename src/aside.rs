//! Files written aside: the final name appears only when everything is on the disk; an error leaves nothing behind.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Whether a file could be written to `target` now: an early answer before long work.
///
/// # Errors
/// As [`AsideFile::create`].
pub fn check(target: &Path) -> Result<()> {
    AsideFile::create(target).map(drop)
}

/// A file under construction in the folder of its final name. Dropped without [`AsideFile::commit`], it is removed.
#[derive(Debug)]
pub struct AsideFile {
    target: PathBuf,
    aside: PathBuf,
    file: Option<File>,
}

impl AsideFile {
    /// Starts a file that will become `target`. A link is followed: what it points at will be replaced.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when `target` is a folder or a device, or its folder is missing or cannot be written.
    pub fn create(target: &Path) -> Result<AsideFile> {
        let target = match std::fs::metadata(target) {
            Ok(about) if !about.is_file() => {
                let found = if about.is_dir() { "a folder" } else { "a device or pipe" };
                return Err(Error::output(format!("found {found}, expected the name of a file to write"))
                    .at(target.display())
                    .hint("give a file name in a folder that exists"));
            }
            Ok(_) => std::fs::canonicalize(target).map_err(|error| cannot_write(target, error))?,
            Err(_) => target.to_owned(),
        };
        let Some(name) = target.file_name() else {
            return Err(Error::output("found no file name, expected one").at(target.display()));
        };
        remove_leftovers(folder_of(&target), &name.to_string_lossy());
        let aside = folder_of(&target).join(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let create = || OpenOptions::new().write(true).create_new(true).open(&aside);
        let file = match create() {
            // Left by a process of the same number that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&aside).and_then(|()| create())
            }
            other => other,
        }
        .map_err(|error| cannot_write(&target, error))?;
        // Held for as long as it is written: nobody takes it for a leftover. Not every file system has locks.
        let _held = file.try_lock();
        Ok(AsideFile { target, aside, file: Some(file) })
    }

    /// Where the bytes lie until [`AsideFile::commit`], to be read back before that.
    pub fn path(&self) -> &Path {
        &self.aside
    }

    /// Puts the file under its final name: data to the disk, rename, folder to the disk.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`]; what had the final name before is still there.
    pub fn commit(mut self) -> Result<()> {
        let fail = |error| cannot_write(&self.target, error);
        if let Some(file) = self.file.take()
            && let Err(error) = file.sync_all().and_then(|()| std::fs::rename(&self.aside, &self.target))
        {
            self.file = Some(file);
            return Err(fail(error));
        }
        // A folder that cannot be opened for reading can still hold the file: the data itself is on the disk.
        if let Ok(folder) = File::open(folder_of(&self.target)) {
            folder.sync_all().map_err(fail)?;
        }
        Ok(())
    }
}

impl Write for AsideFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?.flush()
    }
}

impl Seek for AsideFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?.seek(position)
    }
}

impl Drop for AsideFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _removed = std::fs::remove_file(&self.aside);
        }
    }
}

/// An error of kind `Output` for `target`, with the way out that fits the cause.
pub fn cannot_write(target: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space there, or choose another place",
        io::ErrorKind::NotFound => "make the folder first, or choose another place",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a folder that this user may write to"
        }
        _ => "choose another place for the output",
    };
    Error::output("the file cannot be written").because(error).at(target.display()).hint(hint)
}

/// Removes what killed processes have left of `name`: files that nobody holds, of processes that are gone.
fn remove_leftovers(folder: &Path, name: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let number = found.to_string_lossy().strip_prefix(&format!(".{name}.")).and_then(|rest| {
            rest.strip_suffix(".part")
                .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
                .map(str::to_owned)
        });
        let Some(number) = number.filter(|number| !Path::new("/proc").join(number).exists()) else { continue };
        let path = entry.path();
        if OpenOptions::new().write(true).open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            log::debug!("{}: left by process {number}, removed", path.display());
            let _removed = std::fs::remove_file(&path);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_dropped_file_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.edge");
        std::fs::write(&target, "old").unwrap();
        let mut file = AsideFile::create(&target).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["x.edge"]);
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let gone = u32::MAX;
        let own = std::process::id();
        for name in [format!(".x.edge.{gone}.part"), format!(".y.edge.{gone}.part"), ".x.edge.own.part".into()] {
            std::fs::write(folder.path().join(name), "half").unwrap();
        }
        let held = folder.path().join(format!(".x.edge.{}.part", gone - 1));
        let held_file = File::create(&held).unwrap();
        held_file.try_lock().unwrap();
        let mut file = AsideFile::create(&folder.path().join("x.edge")).unwrap();
        file.write_all(b"whole").unwrap();
        file.commit().unwrap();
        let left = [format!(".x.edge.{}.part", gone - 1), ".x.edge.own.part".into(), format!(".y.edge.{gone}.part")];
        let mut expected: Vec<String> = left.into_iter().chain(["x.edge".into()]).collect();
        expected.sort();
        assert_eq!(names(folder.path()), expected, "own process: {own}");
    }

    #[test]
    fn commit_replaces_and_follows_links() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("x.edge"), folder.path().join("current.edge"));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink("x.edge", &link).unwrap();
        let mut file = AsideFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["current.edge", "x.edge"]);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn folders_devices_and_missing_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for target in [folder.path(), Path::new("/dev/null"), &folder.path().join("missing/x.edge")] {
            let error = AsideFile::create(target).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Output, "{}", target.display());
        }
        assert!(names(folder.path()).is_empty());
    }
}
