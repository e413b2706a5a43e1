//! Small files in the state folder that are believed only when they are whole: JSON with its own hash behind it.

use crate::aside::AsideFile;
use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Larger files are none of ours.
const MOST_BYTES: u64 = 64 << 20;

/// Writes `value` aside and gives it its name when it is on the disk.
///
/// # Errors
/// [`crate::ErrorKind::Output`]; an older file of this name is still there then.
pub(super) fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let failed = |error: std::io::Error| crate::aside::cannot_write(path, error);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| failed(error.into()))?;
    let hash = hash(&text);
    text.extend_from_slice(format!("\n{hash}\n").as_bytes());
    let mut file = AsideFile::create(path)?;
    file.write_all(&text).map_err(failed)?;
    file.commit()
}

/// Reads a file that [`write()`] has written; `None` when there is none.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for anything that is not whole or not understood.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let length = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::refused("it cannot be read").because(error).at(path.display())),
        Ok(about) => about.len(),
    };
    if length > MOST_BYTES {
        return Err(Error::refused(format!("found {length} bytes, expected at most {MOST_BYTES}")).at(path.display()));
    }
    let bytes =
        std::fs::read(path).map_err(|error| Error::refused("it cannot be read").because(error).at(path.display()))?;
    let damaged = || Error::refused("it is damaged: its hash does not fit").at(path.display());
    let text = bytes.strip_suffix(b"\n").ok_or_else(damaged)?;
    let end = text.iter().rposition(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (text, known) = (&text[..end], &text[end + 1..]);
    if hash(text).as_bytes() != known {
        return Err(damaged());
    }
    serde_json::from_slice(text)
        .map(Some)
        .map_err(|error| Error::refused("it was written by another version").because(error).at(path.display()))
}

/// Renames a file that is not believed, so that it can be looked at and is in nobody's way; its new name.
pub(super) fn set_aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".aside");
    let aside = PathBuf::from(name);
    if let Err(error) = std::fs::rename(path, &aside) {
        log::warn!("{} cannot be set aside: {error}", path.display());
    }
    aside
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_files_come_back_and_damaged_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.json");
        assert_eq!(read::<Vec<u32>>(&path).unwrap(), None);
        write(&path, &vec![1_u32, 2, 3]).unwrap();
        assert_eq!(read::<Vec<u32>>(&path).unwrap(), Some(vec![1, 2, 3]));
        assert!(read::<String>(&path).unwrap_err().message().contains("another version"));
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(read::<Vec<u32>>(&path).is_err(), "{cut}");
        }
        let mut flipped = whole.clone();
        flipped[6] ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        assert!(read::<Vec<u32>>(&path).unwrap_err().message().contains("damaged"));
        let aside = set_aside(&path);
        assert!(aside.is_file() && !path.exists());
    }
}
