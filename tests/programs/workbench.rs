//! A folder of its own for each test, and programs run in it.

use crate::common::graphs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a program left: exit code, both outputs.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) data: String,
    pub(crate) people: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            data: String::from_utf8_lossy(&output.stdout).into_owned(),
            people: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Asserts the exit code; prints everything when it is another one.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.data, self.people);
        assert!(!self.people.contains("panicked"), "{}", self.people);
        self
    }

    /// Asserts one error line that holds `words`, and nothing on standard output.
    #[track_caller]
    pub(crate) fn says_one_error(self, words: &[&str]) -> Ran {
        let errors: Vec<&str> = self.people.lines().filter(|line| line.starts_with("error:")).collect();
        assert_eq!(errors.len(), 1, "{}", self.people);
        for word in words {
            assert!(self.people.contains(word), "no `{word}` in:\n{}", self.people);
        }
        assert_eq!(self.data, "");
        self
    }
}

/// A folder with a small model (`model.onnx`, two classes, input 64 × 64) and its class names (`names.txt`).
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let bench = Bench { folder: tempfile::tempdir().unwrap() };
        bench.write("model.onnx", &model(0.9));
        bench.write("names.txt", b"hole\nshort\n");
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(self.folder.path())
    }

    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("EDGE_LOG")
            .env_remove("RUST_LOG")
            .env_remove("EDGE_ORT_LIB")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs `edge-build`.
    pub(crate) fn edge_build(&self, arguments: &[&str]) -> Ran {
        self.command(Path::new(edge_build()), arguments).output().unwrap().into()
    }

    /// Runs `edge-build` on the small model with `more` flags, on the built-in CPU engine.
    pub(crate) fn build(&self, more: &[&str]) -> Ran {
        let mut arguments = vec!["model.onnx", "--names", "names.txt", "--target", "cpu", "--cpu-backend", "rten"];
        arguments.extend(more);
        self.edge_build(&arguments)
    }

    /// Writes pictures that differ from each other into the folder `name`.
    pub(crate) fn pictures(&self, name: &str, count: u32) {
        std::fs::create_dir_all(self.path(name)).unwrap();
        for number in 0..count {
            let shade = u8::try_from(number * 37 % 200 + 30).unwrap();
            let picture = image::RgbImage::from_fn(80, 60, |x, y| {
                image::Rgb([shade, u8::try_from(x * 3).unwrap(), u8::try_from(y * 4).unwrap()])
            });
            picture.save(self.path(name).join(format!("{number:03}.png"))).unwrap();
        }
    }
}

/// The program under test.
pub(crate) fn edge_build() -> &'static str {
    env!("CARGO_BIN_EXE_edge-build")
}

/// Names in `folder`, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A detector of two classes on 64 × 64 pixels that always answers one box of class 0 with `score`.
pub(crate) fn model(score: f32) -> Vec<u8> {
    let head = graphs::raw_head(2, 84, &[[32.0, 32.0, 20.0, 12.0, score, 0.0], [10.0, 10.0, 8.0, 8.0, 0.6, 1.0]]);
    graphs::constant(graphs::Type::F32, [1, 3, 64, 64], vec![head])
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}
