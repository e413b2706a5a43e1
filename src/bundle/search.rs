//! Finding the one bundle that is meant when none is named.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The only bundle in the current folder, `engines/` (and the folders in it), `/etc/edge-trt/` and the folders of `extra`.
///
/// The sample (`engines/sample/sample.edge`) is for demonstrations and never found.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when there is none (with the folders looked at) or more than one (with all of them).
pub fn search(extra: &[PathBuf]) -> Result<PathBuf> {
    let usual = [".", "engines", "/etc/edge-trt"].map(PathBuf::from);
    search_in(&usual.iter().chain(extra).cloned().collect::<Vec<_>>())
}

fn search_in(folders: &[PathBuf]) -> Result<PathBuf> {
    let mut found = Vec::new();
    for folder in folders {
        collect(folder, folder.file_name().is_some_and(|name| name == "engines"), &mut found);
    }
    found.sort();
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|path| seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => {
            let places: Vec<_> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
            Err(Error::usage(format!("found no bundle (`*.edge`) in {}", places.join(", ")))
                .hint("name one with `--engine FILE`, or build one with `edge-build MODEL.onnx`"))
        }
        several => {
            let names: Vec<_> = several.iter().map(|path| format!("`{}`", path.display())).collect();
            Err(Error::usage(format!("found {} bundles, expected one: {}", several.len(), names.join(", ")))
                .hint("choose one with `--engine FILE`"))
        }
    }
}

fn collect(folder: &Path, with_subfolders: bool, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "edge") && path.is_file() && !is_sample(&path) {
            found.push(match path.strip_prefix("./") {
                Ok(short) => short.to_owned(),
                Err(_) => path,
            });
        } else if with_subfolders && path.is_dir() {
            collect(&path, false, found);
        }
    }
}

fn is_sample(path: &Path) -> bool {
    std::fs::canonicalize(path).is_ok_and(|whole| whole.ends_with("engines/sample/sample.edge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_found_none_and_several_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let engines = folder.path().join("engines");
        std::fs::create_dir_all(engines.join("sample")).unwrap();
        std::fs::create_dir_all(engines.join("line1")).unwrap();
        std::fs::write(engines.join("sample/sample.edge"), "").unwrap();
        let places = [folder.path().to_owned(), engines.clone()];
        let none = search_in(&places).unwrap_err().to_string();
        assert!(none.contains("found no bundle") && none.contains("engines"), "{none}");

        std::fs::write(engines.join("line1/line1.edge"), "").unwrap();
        assert_eq!(search_in(&places).unwrap(), engines.join("line1/line1.edge"));

        std::fs::write(folder.path().join("other.edge"), "").unwrap();
        let several = search_in(&places).unwrap_err().to_string();
        assert!(several.contains("line1.edge") && several.contains("other.edge"), "{several}");
    }

    #[test]
    fn a_link_to_the_same_file_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.edge"), "").unwrap();
        std::os::unix::fs::symlink("a.edge", folder.path().join("current.edge")).unwrap();
        assert!(search_in(&[folder.path().to_owned()]).is_ok());
    }
}
