//! Helpers of all test programs.
#![allow(dead_code, reason = "every test program uses only some of them")]

pub(crate) mod cases;
pub(crate) mod fake_camera;
pub(crate) mod graphs;
pub(crate) mod score;

use std::path::{Path, PathBuf};

/// Whether `EDGE_REQUIRE` (a list with commas) names `need`: a test that lacks it must fail then, not skip.
pub(crate) fn required(need: &str) -> bool {
    std::env::var("EDGE_REQUIRE").is_ok_and(|list| list.split(',').any(|word| word.trim() == need))
}

/// Says loudly that a test is skipped for lack of `need`; fails where `EDGE_REQUIRE` names it.
pub(crate) fn lacks(need: &str, what: &str) {
    assert!(!required(need), "EDGE_REQUIRE names `{need}`, but this machine lacks {what}");
    eprintln!("SKIPPED: this machine lacks {what} (EDGE_REQUIRE={need} turns this into a failure)");
}

/// The folder with models and pictures beside the project: `EDGE_SHARED`, else `../shared`.
pub(crate) fn shared() -> Option<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("EDGE_SHARED").map(PathBuf::from);
    let found = named
        .into_iter()
        .chain([project.join("../shared"), project.join("../../shared")])
        .find(|folder| folder.join("models").is_dir());
    if found.is_none() {
        lacks("shared", "the folder ../shared (or EDGE_SHARED) with models and pictures");
    }
    found
}
