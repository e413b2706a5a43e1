//! A folder of its own for each test, and programs run in it.

use crate::common::{graphs, lacks};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

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

    /// Asserts one error with a way out (a hint, or the usage that flags get) that holds `words`.
    #[track_caller]
    pub(crate) fn explains(self, words: &[&str]) -> Ran {
        let way_out = ["hint: ", "For more information, try"].iter().any(|way| self.people.contains(way));
        assert!(way_out, "no way out in:\n{}", self.people);
        self.says_one_error(words)
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

    /// Runs `edge-run`.
    pub(crate) fn edge_run(&self, arguments: &[&str]) -> Ran {
        self.command(Path::new(edge_run()), arguments).output().unwrap().into()
    }

    /// Runs `edge-run` with the sample bundle on the built-in CPU engine.
    pub(crate) fn run_sample(&self, arguments: &[&str]) -> Ran {
        self.sample_command(arguments).output().unwrap().into()
    }

    /// Starts `edge-run` with the sample bundle and reads along.
    pub(crate) fn start_sample(&self, arguments: &[&str]) -> Running {
        Running::start(self.sample_command(arguments))
    }

    /// Starts `edge-run` and reads along.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(Path::new(edge_run()), arguments))
    }

    /// `edge-run` with the sample bundle on the built-in CPU engine, not started yet.
    pub(crate) fn sample_command(&self, arguments: &[&str]) -> Command {
        let mut command =
            self.command(Path::new(edge_run()), &["--engine", sample(), "--cpu-backend", "rten", "--threads", "1"]);
        command.args(arguments);
        command
    }

    /// A command that runs `program` as an ordinary user: root is refused nothing. `None`, said aloud, where this
    /// process can become nobody else.
    pub(crate) fn as_ordinary_user(&self, program: &str, arguments: &[&str]) -> Option<Ran> {
        use std::os::unix::fs::PermissionsExt;
        if !is_root() {
            return Some(self.command(Path::new(program), arguments).output().unwrap().into());
        }
        let copy = self.path("program");
        std::fs::copy(program, &copy).unwrap();
        std::fs::set_permissions(self.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", copy.to_str().unwrap()];
        // A test that forks beside this one holds the copy open for writing until it execs: the file is "busy" for a moment.
        let runs = || {
            let probe = self.command(Path::new("setpriv"), &user).arg("--version").output();
            probe.is_ok_and(|output| output.status.success())
        };
        let can = (0..20).any(|attempt| {
            std::thread::sleep(std::time::Duration::from_millis(50 * attempt));
            runs()
        });
        if !can {
            lacks("setpriv", "setpriv, or the right to become another user");
            return None;
        }
        let ran = self.command(Path::new("setpriv"), &user).args(arguments).output().unwrap();
        std::fs::remove_file(&copy).unwrap();
        Some(ran.into())
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

/// The other program under test.
pub(crate) fn edge_run() -> &'static str {
    env!("CARGO_BIN_EXE_edge-run")
}

/// The sample bundle.
pub(crate) fn sample() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/engines/sample/sample.edge")
}

/// A program that runs; what it says to people can be waited for. Dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
    data: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let people = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || people.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut data = child.stdout.take().unwrap();
        let data = std::thread::spawn(move || {
            let mut text = String::new();
            data.read_to_string(&mut text).unwrap();
            text
        });
        Running { child, lines, heard: Vec::new(), data: Some(data) }
    }

    /// Waits for a line on standard error that holds `word`, and returns it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, word: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.heard.push(line.clone());
            if line.contains(word) {
                return line;
            }
        }
        panic!("`{word}` was never said:\n{}", self.heard.join("\n"));
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ran {
        let until = Instant::now() + Duration::from_secs(120);
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > until => panic!("the program does not end:\n{}", self.heard.join("\n")),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        self.heard.extend(self.lines.iter());
        let data = self.data.take().unwrap().join().unwrap();
        Ran { code: status.code(), data, people: self.heard.join("\n") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A small file system of its own, unmounted when dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: &Path, options: &str) -> Option<SmallDisk> {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            lacks("mount", "the right to mount a small tmpfs");
            return None;
        }
        Some(SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ignored = Command::new("umount").arg(&self.0).output();
    }
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
