//! The files of the field cases, made once by their Python script and kept in the target folder.

use super::{lacks, shared};
use edge_trt::build::{self, Options, Prepared};
use edge_trt::onnx::Model;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A Python with the packages `onnx`, `numpy` and `PIL`: `EDGE_PYTHON`, else `python3`.
pub(crate) fn python() -> Option<String> {
    static PYTHON: OnceLock<Option<String>> = OnceLock::new();
    PYTHON
        .get_or_init(|| {
            let python = std::env::var("EDGE_PYTHON").unwrap_or("python3".to_owned());
            let works = Command::new(&python)
                .args(["-c", "import onnx, numpy, PIL"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
            works.then_some(python)
        })
        .clone()
}

/// The folder with the files of the field cases.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let script = shared()?.join("field/make_cases.py");
        let python = python()?;
        let length = fs::metadata(&script).ok()?.len();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cases-{length}"));
        if target.is_dir() {
            return Some(target);
        }
        let aside = target.with_extension(std::process::id().to_string());
        let output = Command::new(python).arg(&script).arg(&aside).output().unwrap();
        assert!(output.status.success(), "make_cases.py failed: {}", String::from_utf8_lossy(&output.stderr));
        if fs::rename(&aside, &target).is_err() {
            fs::remove_dir_all(&aside).unwrap();
        }
        Some(target)
    });
    if folder.is_none() {
        lacks("cases", "../shared/field/make_cases.py or a Python with onnx, numpy and pillow (EDGE_PYTHON)");
    }
    folder.as_deref()
}

/// The path of the case `name`, as in `ok` for `ok.onnx`.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join(format!("{name}.onnx")))
}

/// Reads and prepares the case `name`; `None` where the files cannot be made.
pub(crate) fn prepare(name: &str, options: &Options) -> Option<edge_trt::Result<Prepared>> {
    path(name).map(|path| Model::read(&path).and_then(|model| build::prepare(model, options)))
}

/// [`prepare`] without options, which must succeed.
pub(crate) fn prepared(name: &str) -> Option<Prepared> {
    prepare(name, &Options::default()).map(|outcome| outcome.unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// The whole error text of [`prepare`] without options, which must fail as a refusal or a question to the user.
pub(crate) fn refused(name: &str) -> Option<String> {
    let error = prepare(name, &Options::default())?.expect_err(name);
    assert!(matches!(error.kind().exit_code(), 2 | 3), "{name}: {error}");
    assert!(error.hint_text().is_some(), "{name} has no way out: {error}");
    Some(error.to_string())
}
