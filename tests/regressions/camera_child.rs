//! The program that the camera tests run with the made-up camera preloaded: this test binary itself.

use crate::common::fake_camera;
use edge_trt::camera::reopen::Backoff;
use edge_trt::camera::{CameraRequest, Capture, SourceSpec, open};
use edge_trt::frame::PixelFormat;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a run printed, line by line, and what reached the made-up camera.
pub(crate) struct Run {
    pub(crate) lines: Vec<String>,
    pub(crate) calls: Vec<String>,
}

impl Run {
    /// Lines that start with `word`, without it.
    pub(crate) fn said(&self, word: &str) -> Vec<&str> {
        self.lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    }

    /// Capture number and first luma sample of every frame.
    pub(crate) fn frames(&self) -> Vec<(u64, u8)> {
        let pair = |text: &str| {
            let mut words = text.split(' ');
            (words.next().unwrap().parse().unwrap(), words.next_back().unwrap().parse().unwrap())
        };
        self.said("frame").into_iter().map(pair).collect()
    }
}

/// Runs the child with `settings` for the made-up camera (names without `FAKE_V4L2_`) or for itself (`CHILD_…`).
pub(crate) fn run(folder: &Path, settings: &[(&str, &str)]) -> Option<Run> {
    let library = fake_camera::library()?;
    let log = folder.join("calls.log");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "camera_child::child", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("LD_PRELOAD", library).env("FAKE_V4L2_LOG", &log).env("FAKE_V4L2_JPEGS", folder);
    for (name, value) in settings {
        let name = if name.starts_with("CHILD_") { (*name).to_owned() } else { format!("FAKE_V4L2_{name}") };
        command.env(name, value);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().filter_map(|line| Some(line.split_once("CHILD ")?.1.to_owned())).collect();
    let calls = std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect();
    Some(Run { lines, calls })
}

fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

#[test]
#[ignore = "run by the camera tests with the made-up camera preloaded"]
fn child() {
    let Ok(source) = std::env::var("CHILD_SOURCE") else { return };
    let request: CameraRequest = toml::from_str(&variable("CHILD_REQUEST", "")).unwrap();
    let spec = SourceSpec::parse_camera(&source).unwrap().with_request(request).unwrap();
    let wanted: u64 = variable("CHILD_FRAMES", "5").parse().unwrap();
    let reopens = std::env::var("CHILD_REOPENS").is_ok();
    let give_up_ms: u64 = variable("CHILD_GIVE_UP_MS", "20000").parse().unwrap();
    let give_up = Instant::now() + Duration::from_millis(give_up_ms);
    let mut waits = Backoff::new(Duration::from_millis(20), Duration::from_millis(100), 1);
    let mut seen = 0;
    while seen < wanted && Instant::now() < give_up {
        let mut camera = match open(&spec, "cam".into()) {
            Ok(camera) => camera,
            Err(error) => {
                let hint = error.hint_text().unwrap_or("-");
                println!("CHILD error {:?} {} | {hint} | {}", error.kind(), error.message(), error.place().unwrap());
                if !reopens {
                    return;
                }
                std::thread::sleep(waits.next().unwrap());
                continue;
            }
        };
        println!("CHILD open {}", camera.info().description);
        while seen < wanted {
            match camera.next(Duration::from_millis(100)) {
                Ok(Capture::Frame(frame)) => {
                    assert!(frame.picture.is_whole() && frame.captured_at.is_some());
                    assert!(frame.arrived.elapsed() < Duration::from_secs(2));
                    let luma = usize::from(frame.picture.format == PixelFormat::Uyvy);
                    let first = frame.picture.pixels.as_slice()[luma];
                    let (size, format) = (frame.picture.size, frame.picture.format);
                    println!("CHILD frame {} {size} {format:?} {first}", frame.number);
                    waits.reset();
                    seen += 1;
                }
                Ok(Capture::Nothing) => {}
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    println!("CHILD lost {:?} {error}", error.kind());
                    break;
                }
            }
        }
        let losses = camera.losses();
        println!("CHILD losses {} {}", losses.damaged, losses.missed);
        if seen < wanted && !reopens {
            return;
        }
    }
}
