//! The timing cache: what TensorRT measured, kept for the next build of the same graph with the same settings.
//!
//! Not shared between graphs: TensorRT 8.6.1 takes what it measured for another build without measuring again, and of what that one
//! did not look at it knows nothing. On an H200 plans came out up to 11 % slower after other builds (`docs/measurements/gpu-h200.md`),
//! and some not at all. So a plan does not depend on what was built before it.

use crate::aside::AsideFile;
use crate::bundle::sha256;
use crate::error::Result;
use crate::ffi::tensorrt::callbacks::ReportedError;
use crate::ffi::tensorrt::version::{Flavour, Version};
use crate::onnx::Model;
use crate::onnx::tensor::{self, DataType};
use protobuf::Message;
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the environment variable with the folder.
pub const FOLDER_VARIABLE: &str = "EDGE_CACHE_DIR";
/// A cache larger than this is not ours.
const MOST_BYTES: u64 = 256 << 20;
/// So many files are kept; the oldest go first.
const MOST_FILES: usize = 64;

/// The folder: `EDGE_CACHE_DIR`, else the user's cache folder, else none (no home: nothing is kept).
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(FOLDER_VARIABLE)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("edge-trt")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/edge-trt")))
}

/// The file for one version of a family, one target (a GPU's name, or the compute capabilities built for) and one
/// [`structure`].
pub fn file(folder: &Path, flavour: Flavour, version: Version, target: &str, structure: &str) -> PathBuf {
    let target: String = target.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let structure = structure.get(..12).unwrap_or(structure);
    folder.join(format!("{flavour}-{version}-{target}-{structure}.timings"))
}

/// What the kernels of a build are chosen by: the graph without its weights and scales, and the settings. SHA-256, 64 hexadecimal
/// digits; of a graph that cannot be read, over its bytes.
pub fn structure(model: &[u8], settings: &impl Debug) -> String {
    let graph = Model::from_bytes(model).ok().and_then(|mut model| {
        let graph = model.graph_mut();
        for tensor in &mut graph.initializer {
            // Whole numbers say sizes, axes and places.
            if !matches!(tensor::data_type(tensor), DataType::I64 | DataType::I32) {
                tensor.raw_data.clear();
                tensor.float_data.clear();
                tensor.double_data.clear();
                tensor.int32_data.clear();
            }
        }
        graph.write_to_bytes().ok()
    });
    let mut all = graph.unwrap_or_else(|| model.to_vec());
    all.extend_from_slice(format!("{settings:?}").as_bytes());
    sha256(&all)
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
    file.commit()?;
    path.parent().into_iter().for_each(remove_oldest);
    Ok(())
}

/// Removes the oldest files beyond [`MOST_FILES`]. One that stays costs only room.
fn remove_oldest(folder: &Path) {
    let kept = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        path.extension().is_some_and(|extension| extension == "timings").then_some(())?;
        Some((std::fs::metadata(&path).and_then(|about| about.modified()).ok()?, path))
    };
    let mut files: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().filter_map(kept).collect();
    files.sort();
    for (_, path) in files.iter().rev().skip(MOST_FILES) {
        if let Err(error) = std::fs::remove_file(path) {
            log::debug!("the timing cache `{}` cannot be removed: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::node::make;
    use crate::onnx::samples::{Sample, value};

    #[test]
    fn a_build_is_tried_again_only_where_the_timings_are_to_blame() {
        let error = |text: &str| ReportedError { code: 1, text: text.to_owned() };
        let blamed =
            "[myelinCache.h::deserializeFromBuffer::52] Error Code 1: Myelin (Myelin error from unknown graph)";
        assert!(is_to_blame(&error(blamed)), "as TensorRT 8.6.1 said on an H200");
        assert!(!is_to_blame(&error("Could not find any implementation for node")));
    }

    #[test]
    fn timings_are_kept_per_version_target_and_graph_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let version = Version { major: 8, minor: 6, patch: 1 };
        let of = |target: &str, graph: &str| file(&folder.path().join("new"), Flavour::Trt8, version, target, graph);
        let path = of("NVIDIA H200/MIG 1", &"ab12".repeat(16));
        assert_eq!(path.file_name().unwrap(), "trt8-8.6.1-NVIDIA-H200-MIG-1-ab12ab12ab12.timings");
        assert!(read(&path).is_empty());
        keep(&path, b"abc").unwrap();
        keep(&path, b"abcd").unwrap();
        assert_eq!(read(&path), b"abcd");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        assert_ne!(of("cc8.6", "a"), of("cc8.7", "a"));
        assert_ne!(of("cc8.6", "a"), of("cc8.6", "b"));
        assert!(keep(Path::new("/proc/no/such/place/x.timings"), b"").is_err());
    }

    #[test]
    fn only_the_newest_timings_stay() {
        let folder = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        let write = |name: &str, age_s: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, b"x").unwrap();
            let age = std::time::Duration::from_secs(60 * u64::try_from(age_s).unwrap());
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(now - age).unwrap();
            path
        };
        let other = write("notes.txt", 1000);
        let old: Vec<_> = (0..MOST_FILES + 1).map(|age| write(&format!("{age}.timings"), age + 1)).collect();
        let new = folder.path().join("new.timings");
        keep(&new, b"y").unwrap();
        assert!(new.exists() && other.exists() && old[MOST_FILES - 2].exists());
        assert!(!old[MOST_FILES - 1].exists() && !old[MOST_FILES].exists());
    }

    #[test]
    fn timings_belong_to_a_graph_and_its_settings_whatever_its_weights() {
        let graph = |weight: f32, kernel: i64, batch: i64, comment: &str| {
            let elements = usize::try_from(3 * kernel * kernel).unwrap();
            let weight = tensor::from_f32("w", &[1, 3, kernel, kernel], &vec![weight; elements]);
            let nodes = vec![make::node("Conv", "conv", &["images", "w"], &["y"], vec![])];
            let outputs = vec![value("y", DataType::F32, &[batch, 1, 9 - kernel, 9 - kernel])];
            let model = Sample { weights: vec![weight], ..Sample::new(&[batch, 3, 8, 8], nodes, outputs) }.model();
            let mut file = model.proto().clone();
            file.doc_string = comment.to_owned();
            file.write_to_bytes().unwrap()
        };
        let first = structure(&graph(0.5, 3, 1, ""), &1);
        assert_eq!(first.len(), 64);
        assert_eq!(first, structure(&graph(0.25, 3, 1, "exported again"), &1));
        assert_ne!(first, structure(&graph(0.5, 3, 1, ""), &2), "another setting");
        assert_ne!(first, structure(&graph(0.5, 1, 1, ""), &1), "another kernel");
        assert_ne!(first, structure(&graph(0.5, 3, 8, ""), &1), "another batch");
        assert_ne!(structure(b"no graph", &1), structure(b"none", &1));
    }
}
