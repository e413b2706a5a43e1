//! edge-run on a made-up UVC camera (tests/v4l2_preload): good frames, unplug and return, no bandwidth.

use crate::common::fake_camera::{library, write_jpegs};
use crate::run_sim::rows;
use crate::workbench::{Bench, Ran};

const NODE: &str = "/dev/video90";

/// Runs `edge-run` with the sample bundle and the made-up camera in front of the kernel.
fn with_camera(bench: &Bench, settings: &[(&str, &str)], arguments: &[&str]) -> Option<Ran> {
    let library = library()?;
    let mut command = bench.sample_command(arguments);
    command.env("LD_PRELOAD", library).env("FAKE_V4L2_NODE", NODE).env("FAKE_V4L2_JPEGS", bench.path(""));
    for (name, value) in settings {
        command.env(format!("FAKE_V4L2_{name}"), value);
    }
    Some(command.output().unwrap().into())
}

#[test]
fn frames_of_a_camera_become_results_and_the_mode_is_said() {
    let bench = Bench::new();
    let flags = ["--camera", NODE, "--listen", "none", "--output", "-", "--frames", "5", "--delivery", "every"];
    let Some(ran) = with_camera(&bench, &[], &flags) else { return };
    let ran = ran.ends_with(0);
    assert!(ran.people.contains("stream cam0:") && ran.people.contains("640×480 yuyv"), "{}", ran.people);
    let rows = rows(&ran.data);
    let numbers: Vec<u64> = rows.iter().map(|row| row["frame"].as_u64().unwrap()).collect();
    assert!(numbers.len() == 5 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert!(rows.iter().all(|row| row["captured_at"].is_string() && row["stream"] == "cam0"));
}

#[test]
fn an_unplugged_camera_comes_back_and_the_run_goes_on() {
    let bench = Bench::new();
    let link = bench.path("usb-camera-index0");
    std::os::unix::fs::symlink(NODE, &link).unwrap();
    let link = link.to_str().unwrap();
    let settings = [("UNPLUG_AT", "6"), ("BACK_NODE", "/dev/video91"), ("BACK_MS", "300"), ("LINK", link)];
    let flags = ["--camera", link, "--listen", "none", "--output", "-", "--frames", "14", "--delivery", "every"];
    let Some(ran) = with_camera(&bench, &settings, &flags) else { return };
    let ran = ran.ends_with(0);
    assert!(ran.people.contains("the camera is lost") && !ran.people.contains("error:"), "{}", ran.people);
    let numbers: Vec<u64> = rows(&ran.data).iter().filter_map(|row| row["frame"].as_u64()).collect();
    assert!(numbers.len() >= 14 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[test]
fn no_bandwidth_is_one_error_with_the_way_out_and_mjpg_works() {
    let bench = Bench::new();
    write_jpegs(&bench.path(""), 640, 480);
    let flags = ["--camera", NODE, "--listen", "none", "--output", "cam.jsonl", "--frames", "2"];
    let settings = [("START_ERRNO", "28")];
    let Some(ran) = with_camera(&bench, &settings, &flags) else { return };
    ran.ends_with(6).explains(&["the USB bus has no bandwidth", NODE, "mjpg"]);
    assert!(!bench.names().contains(&"cam.jsonl".to_owned()), "{:?}", bench.names());
    let ran = with_camera(&bench, &settings, &[&flags[..], &["--pixel-format", "mjpg"]].concat()).unwrap().ends_with(0);
    assert!(ran.people.contains("640×480 mjpg"), "{}", ran.people);
}

#[test]
fn cameras_that_cannot_be_used_are_explained() {
    let bench = Bench::new();
    for (settings, words) in [
        ([("OPEN_ERRNO", "16")], ["in use by another program", NODE]),
        ([("FORMATS", "RGGB")], ["raw Bayer", NODE]),
        ([("CAPS", "0x04a00000")], ["a node with data about pictures", NODE]),
    ] {
        let Some(ran) = with_camera(&bench, &settings, &["--camera", NODE, "--listen", "none"]) else { return };
        ran.ends_with(6).explains(&words);
    }
}
