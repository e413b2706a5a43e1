//! The timing cache: what TensorRT measured, kept per version and target for the next build.

use crate::aside::AsideFile;
use crate::error::Result;
use crate::ffi::tensorrt::callbacks::ReportedError;
use crate::ffi::tensorrt::version::{Flavour, Version};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the environment variable with the folder.
pub const FOLDER_VARIABLE: &str = "EDGE_CACHE_DIR";
/// A cache larger than this is not ours.
const MOST_BYTES: u64 = 256 << 20;

/// The folder: `EDGE_CACHE_DIR`, else the user's cache folder, else none (no home: nothing is kept).
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(FOLDER_VARIABLE)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("edge-trt")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/edge-trt")))
}

/// The file for one version of a family and one target: a GPU's name, or the compute capabilities built for.
pub fn file(folder: &Path, flavour: Flavour, version: Version, target: &str) -> PathBuf {
    let target: String = target.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    folder.join(format!("{flavour}-{version}-{target}.timings"))
}

/// What was kept; empty when there is none or it cannot be read, which only costs time.
pub fn read(path: &Path) -> Vec<u8> {
    let about = std::fs::metadata(path).ok().filter(|about| about.is_file() && about.len() <= MOST_BYTES);
    match about.map(|_| std::fs::read(path)) {
        Some(Ok(bytes)) => bytes,
        Some(Err(error)) => {
            log::warn!("the timing cache `{}` cannot be read: {error}", path.display());
            vec![]
        }
        None => vec![],
    }
}

/// Whether a build failed for the timings it was given: TensorRT 8.6 stumbles over those of another model.
pub fn is_to_blame(error: &ReportedError) -> bool {
    error.text.contains("myelinCache")
}

/// Keeps timings for the next build: aside, to the disk, renamed.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when the folder or the file cannot be written.
pub fn keep(path: &Path, timings: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| crate::aside::cannot_write(path, error))?;
    }
    let mut file = AsideFile::create(path)?;
    file.write_all(timings).map_err(|error| crate::aside::cannot_write(path, error))?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_tried_again_only_where_the_timings_are_to_blame() {
        let error = |text: &str| ReportedError { code: 1, text: text.to_owned() };
        let blamed =
            "[myelinCache.h::deserializeFromBuffer::52] Error Code 1: Myelin (Myelin error from unknown graph)";
        assert!(is_to_blame(&error(blamed)), "as TensorRT 8.6.1 said on an H200");
        assert!(!is_to_blame(&error("Could not find any implementation for node")));
    }

    #[test]
    fn timings_are_kept_per_version_and_target_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let version = Version { major: 8, minor: 6, patch: 1 };
        let path = file(&folder.path().join("new"), Flavour::Trt8, version, "NVIDIA H200/MIG 1");
        assert_eq!(path.file_name().unwrap(), "trt8-8.6.1-NVIDIA-H200-MIG-1.timings");
        assert!(read(&path).is_empty());
        keep(&path, b"abc").unwrap();
        keep(&path, b"abcd").unwrap();
        assert_eq!(read(&path), b"abcd");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        assert_ne!(path, file(&folder.path().join("new"), Flavour::Trt8, version, "cc8.6"));
        assert!(keep(Path::new("/proc/no/such/place/x.timings"), b"").is_err());
    }
}
