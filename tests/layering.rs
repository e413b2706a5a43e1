//! Which module may import which: the directions of the architecture page, held by reading the source.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// module → the modules of this crate that it may name besides itself and the common ground.
const ALLOWED: &[(&str, &[&str])] = &[
    ("onnx", &[]),
    ("platform", &[]),
    ("frame", &[]),
    ("camera", &["frame", "ffi"]),
    ("engine", &["frame", "onnx", "ffi", "gpu"]),
    ("detections", &["engine"]),
    ("guard", &["engine", "detections", "frame"]),
    ("decision", &["guard", "detections", "frame"]),
    ("sinks", &["decision", "guard", "detections", "engine", "frame", "ffi"]),
    ("bundle", &["engine", "detections", "guard", "decision", "frame", "ffi", "gpu"]),
    ("config", &["camera", "run", "bundle", "engine", "detections", "guard", "decision"]),
    (
        "build",
        &[
            "onnx",
            "bundle",
            "engine",
            "detections",
            "guard",
            "decision",
            "frame",
            "config",
            "platform",
            "ffi",
            "gpu",
            "camera",
        ],
    ),
    (
        "run",
        &[
            "camera",
            "engine",
            "detections",
            "guard",
            "decision",
            "sinks",
            "bundle",
            "frame",
            "config",
            "platform",
            "ffi",
            "gpu",
        ],
    ),
    ("ffi", &[]),
    ("gpu", &["ffi", "engine", "frame"]),
    ("telemetry", &[]),
    ("aside", &[]),
    ("test_inputs", &[]),
    ("error", &[]),
    ("units", &[]),
    ("cli", &["*"]),
];

/// What everybody may name.
const COMMON: &[&str] = &["error", "units", "aside", "telemetry", "test_inputs", "Error", "ErrorKind", "Result"];

/// (importer, path prefix that must not appear), on top of the table.
const NEVER: &[(&str, &str)] = &[
    ("guard", "crate::engine::cpu"),
    ("guard", "crate::engine::Engine"),
    ("guard", "crate::engine::canned"),
    ("build", "crate::camera::v4l2"),
    ("build", "crate::camera::open"),
    ("build", "crate::sinks"),
    ("build", "crate::run"),
    ("run", "crate::build"),
    ("run", "crate::onnx"),
    // Bench measures what a memory plan says; the kernels belong to the engine.
    ("run", "crate::gpu::kernels"),
    ("config", "crate::run::start"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn module_of(root: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(root).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Code without comments and without the unit tests at the end of a file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Names after `crate::`, also inside `use crate::{a::b, c}`.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if at > 0 && code[..at].ends_with("$") {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let heads: Vec<String> = if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut heads = vec![String::new()];
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 1 => heads.push(String::new()),
                    _ if depth == 1 => heads.last_mut().unwrap().push(c),
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            heads
        } else {
            vec![rest.to_owned()]
        };
        for head in heads {
            let name: String = head.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                names.insert(name);
            }
        }
    }
    names
}

#[test]
fn modules_name_only_what_the_architecture_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let module = module_of(&root, &file);
        if module == "lib" || module == "bin" {
            continue;
        }
        let Some(may) = allowed.get(module.as_str()) else {
            wrong.push(format!("{}: module `{module}` has no row in tests/layering.rs", file.display()));
            continue;
        };
        let code = code(&std::fs::read_to_string(&file).unwrap());
        for name in named(&code) {
            let fine =
                name == module || COMMON.contains(&name.as_str()) || may.contains(&name.as_str()) || may.contains(&"*");
            if !fine {
                wrong.push(format!("{}: `{module}` names `crate::{name}`", file.display()));
            }
        }
        for (importer, path) in NEVER {
            let banned = code
                .match_indices(path)
                .any(|(at, _)| !code[at + path.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'));
            if *importer == module && banned {
                wrong.push(format!("{}: `{module}` must not name `{path}`", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_lives_in_ffi_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| module_of(&root, file) != "ffi") {
        for (number, line) in std::fs::read_to_string(file).unwrap().lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            let has = line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
            if has && !line.contains("forbid(unsafe") && !line.contains("deny(unsafe") {
                wrong.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe outside src/ffi:\n{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_imports_sees_groups_and_paths() {
    let seen = named("use crate::{error::{Error, Result}, engine::Layout};\nlet x = crate::units::index(3);");
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["engine", "error", "units"]);
}
