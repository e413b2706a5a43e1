//! The selected product in the state folder, and requests for another one by `edge-run product`.

use crate::aside::{AsideFile, cannot_write};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Name of the file with the selected product in the state folder.
pub const FILE: &str = "product.json";
/// A file of this name in the state folder holds the id of the product that is asked for: `edge-run product`.
pub const REQUEST: &str = "product.request";

/// What the state folder says of products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The selected one.
    pub product: String,
    /// All of them.
    pub known: Vec<String>,
}

/// Keeps the selected product; the file holds the old one or the new one, never half of it.
pub(in crate::run) fn write(folder: &Path, kept: &Kept) -> Result<()> {
    let text = serde_json::to_string(kept)
        .map_err(|error| Error::unexpected("the product cannot be written as JSON").because(error))?;
    put(&folder.join(FILE), &text)
}

/// The selected product; `None` when none was selected yet.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] for a file that somebody else has written.
pub fn read(folder: &Path) -> Result<Option<Kept>> {
    let file = folder.join(FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::usage("the selected product cannot be read").because(error).at(file.display()));
        }
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Error::usage("the selected product cannot be read")
            .because(error)
            .at(file.display())
            .hint("remove the file and say which product the line makes: `edge-run --product ID`")
    })
}

/// Asks for a product; the running line takes it between two frames, else the next start does.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when the request cannot be written.
pub fn ask(folder: &Path, product: &str) -> Result<()> {
    put(&folder.join(REQUEST), product)
}

/// Takes the request away and returns it.
pub(in crate::run) fn take_request(folder: &Path) -> Result<Option<String>> {
    let file = folder.join(REQUEST);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::usage("the request cannot be read").because(error).at(file.display())),
    };
    std::fs::remove_file(&file).map_err(|error| cannot_write(&file, error))?;
    Ok(Some(text.trim().to_owned()))
}

fn put(file: &Path, text: &str) -> Result<()> {
    let mut aside = AsideFile::create(file)?;
    aside.write_all(text.as_bytes()).map_err(|error| cannot_write(file, error))?;
    aside.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_and_requests_come_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!((read(folder.path()).unwrap(), take_request(folder.path()).unwrap()), (None, None));
        let kept = Kept { product: "b".into(), known: vec!["a".into(), "b".into()] };
        write(folder.path(), &kept).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(kept));
        ask(folder.path(), "a").unwrap();
        assert_eq!(take_request(folder.path()).unwrap().as_deref(), Some("a"));
        assert_eq!(take_request(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("--product ID"));
    }
}
