//! Where unit tests find inputs that are not part of the project.

use std::path::{Path, PathBuf};

/// A file or folder of the shared test inputs (`EDGE_SHARED`, else `../shared` beside the project). `None`, said loudly, when it
/// is not there; `EDGE_REQUIRE=shared` makes that a failure.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = std::env::var_os("EDGE_SHARED").map(PathBuf::from);
    let folders = folders.into_iter().chain([project.join("../shared"), project.join("../../shared")]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        skipped("shared", &format!("no `{name}` in the shared test inputs"));
    }
    found
}

/// Says that a test lacks something, which is a failure when `EDGE_REQUIRE` lists it.
pub(crate) fn skipped(what: &str, why: &str) {
    let required = std::env::var("EDGE_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|required| required.trim() == what), "EDGE_REQUIRE={what}: {why}");
    eprintln!("NOT TESTED: {why}");
}

/// The folder with TensorRT-RTX (`EDGE_TENSORRT_RTX_DIR`; `tests/fetch_tensorrt_rtx.sh` fills one).
pub(crate) fn tensorrt_rtx() -> Option<PathBuf> {
    let found = std::env::var_os("EDGE_TENSORRT_RTX_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    if found.is_none() {
        skipped("tensorrt-rtx", "EDGE_TENSORRT_RTX_DIR names no folder with TensorRT-RTX");
    }
    found
}
