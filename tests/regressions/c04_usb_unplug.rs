//! C04: a USB camera is unplugged, comes back under another number, or cannot get its mode.

use crate::camera_child::run;
use crate::common::fake_camera::write_jpegs;

const NODE: &str = "/dev/video90";
const BACK: &str = "/dev/video92";

#[test]
fn unplugged_at_frame_50_it_is_found_again_by_its_link_with_everything_set_anew() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("usb-Fake_Camera-index0");
    std::os::unix::fs::symlink(NODE, &link).unwrap();
    let link = link.to_str().unwrap();
    let request = "rate_fps = 60\nexposure_us = 5000\ngain = 7\npower_line_hz = 60\nwhite_balance_k = 5000";
    let Some(run) = run(
        folder.path(),
        &[
            ("NODE", NODE),
            ("UNPLUG_AT", "50"),
            ("BACK_NODE", BACK),
            ("BACK_MS", "600"),
            ("LINK", link),
            ("CHILD_SOURCE", link),
            ("CHILD_REQUEST", request),
            ("CHILD_FRAMES", "60"),
            ("CHILD_REOPENS", "1"),
        ],
    ) else {
        return;
    };
    let opened = run.said("open");
    assert_eq!(opened.len(), 2, "{:?}", run.lines);
    let set = "exposure 5000 µs, gain 7, white_balance_k 5000, power line 60 Hz";
    for description in opened {
        assert!(
            description.contains("640×480 yuyv, 60 frames/s, fixed exposure; set ") && description.contains(set),
            "{description}"
        );
    }
    let lost = run.said("lost");
    assert!(lost.len() == 1 && lost[0].contains("the camera is lost"), "{lost:?}");
    assert!(run.said("error").iter().all(|error| error.starts_with("Source no such camera")));
    let numbers: Vec<u64> = run.frames().iter().map(|frame| frame.0).collect();
    assert_eq!(numbers.len(), 60);
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "numbers go on: {numbers:?}");
    let count = |word: &str| run.calls.iter().filter(|call| call.starts_with(word)).count();
    assert_eq!((count("open"), count("close with 0 mapped"), count("s_ctrl 9a0902 50")), (2, 2, 2), "{:?}", run.calls);
    assert_eq!(count("mmap"), count("munmap"));
}

#[test]
fn another_camera_under_the_same_number_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("NODE", NODE),
        ("UNPLUG_AT", "5"),
        ("BACK_NODE", NODE),
        ("BACK_MS", "100"),
        ("BACK_CARD", "Stranger"),
        ("CHILD_SOURCE", NODE),
        ("CHILD_FRAMES", "9"),
    ];
    let Some(first) = run(folder.path(), &settings) else { return };
    assert!((1..=5).contains(&first.frames().len()), "{:?}", first.lines);
    // With re-opening the child would try until it gives up, so the source is asked for no more than it gets.
    let mut settings = settings.to_vec();
    settings.extend([("CHILD_REOPENS", "1"), ("CHILD_GIVE_UP_MS", "1500")]);
    let run = run(folder.path(), &settings).unwrap();
    let errors = run.said("error");
    let expected = "found the camera `Stranger` at usb-0000:00:14.0-1, expected `Fake Camera` at usb-0000:00:14.0-1";
    assert!(errors.iter().any(|error| error.contains(expected)), "{errors:?}");
    assert!(run.frames().len() <= 5 && run.said("open").len() == 1, "{:?}", run.lines);
}

#[test]
fn no_bandwidth_is_explained_and_mjpg_is_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    write_jpegs(folder.path(), 640, 480);
    let settings = [("NODE", NODE), ("START_ERRNO", "28"), ("CHILD_SOURCE", NODE)];
    let Some(refused) = run(folder.path(), &settings) else { return };
    let errors = refused.said("error");
    assert!(errors[0].starts_with("Source the USB bus has no bandwidth") && errors[0].contains("mjpg"), "{errors:?}");
    assert!(refused.calls.last().unwrap().starts_with("close with 0 mapped"), "{:?}", refused.calls);
    let mut settings = settings.to_vec();
    settings.push(("CHILD_REQUEST", "pixel_format = \"mjpg\""));
    assert_eq!(run(folder.path(), &settings).unwrap().frames().len(), 5);
}

#[test]
fn mjpg_is_chosen_above_vga_and_decoded_without_tables() {
    let folder = tempfile::tempdir().unwrap();
    write_jpegs(folder.path(), 1280, 720);
    let settings = [("NODE", NODE), ("CHILD_SOURCE", NODE), ("CHILD_REQUEST", "size_px = \"1280x720\"\nrate_fps = 30")];
    let Some(run) = run(folder.path(), &settings) else { return };
    assert!(run.said("open")[0].contains("1280×720 mjpg, 30 frames/s, automatic exposure"), "{:?}", run.lines);
    assert!(run.said("frame")[0].contains("1280×720 Rgb8"), "{:?}", run.lines);
    assert_eq!(run.frames().len(), 5);
}

#[test]
fn a_mode_that_is_not_offered_is_refused_with_what_is() {
    let folder = tempfile::tempdir().unwrap();
    for (request, expected) in [
        ("size_px = \"1920x1080\"", "does not offer 1920×1080 px | it offers mjpg: 640×480, 320×240, 1280×720"),
        (
            "size_px = \"1280x720\"\npixel_format = \"yuyv\"\nrate_fps = 30",
            "30 frames/s at 1280×720 px | it offers yuyv: 10, 5",
        ),
        ("pixel_format = \"nv12\"", "found the pixel formats mjpg, yuyv, expected nv12"),
        ("focus = 3", "no control for `focus`"),
        ("gain = 1000", "found gain 1000, expected 0 to 100"),
    ] {
        let settings = [("NODE", NODE), ("CHILD_SOURCE", NODE), ("CHILD_REQUEST", request)];
        let Some(run) = run(folder.path(), &settings) else { return };
        let errors = run.said("error");
        assert!(errors[0].contains(expected), "{request}: {errors:?}");
        assert!(run.frames().is_empty());
    }
    let settings = [("NODE", NODE), ("CHILD_SOURCE", NODE), ("CHILD_REQUEST", "gain = 50"), ("FORGETS", "1")];
    let error = run(folder.path(), &settings).unwrap();
    assert!(error.said("error")[0].contains("keeps gain 0, expected 50"), "{:?}", error.lines);
}

#[test]
fn nodes_without_pictures_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    for (settings, expected) in [
        ([("CAPS", "0x04a00000"), ("X", "")], "found a node with data about pictures (`Fake Camera`)"),
        ([("CAPS", "0x04001000"), ("X", "")], "multi-planar"),
        ([("CAPS", "0x1"), ("X", "")], "without mapped buffers"),
        ([("FORMATS", "RGGB,BG10"), ("X", "")], "found raw Bayer pictures (RGGB, BG10)"),
        ([("FORMATS", "H264"), ("X", "")], "found the pixel formats H264, expected MJPG"),
        ([("OPEN_ERRNO", "16"), ("X", "")], "in use by another program"),
        ([("OPEN_ERRNO", "19"), ("X", "")], "no camera is behind it"),
    ] {
        let mut settings = settings.to_vec();
        settings.extend([("NODE", NODE), ("CHILD_SOURCE", NODE)]);
        let Some(run) = run(folder.path(), &settings) else { return };
        let errors = run.said("error");
        assert!(errors[0].contains(expected) && errors[0].ends_with(NODE), "{expected}: {errors:?}");
    }
}

#[test]
fn damaged_and_missing_pictures_are_counted_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    write_jpegs(folder.path(), 640, 480);
    let common = [("NODE", NODE), ("CHILD_SOURCE", NODE), ("CHILD_FRAMES", "16")];
    for (format, settings) in [
        ("yuyv", [("ERROR_EVERY", "5"), ("SHORT_EVERY", "7")]),
        ("mjpg", [("ERROR_EVERY", "5"), ("SHORT_EVERY", "7")]),
        ("yuyv", [("GAP_AT", "10"), ("X", "")]),
    ] {
        let request = format!("rate_fps = 60\npixel_format = \"{format}\"");
        let mut settings = settings.to_vec();
        settings.extend(common);
        settings.push(("CHILD_REQUEST", &request));
        let Some(run) = run(folder.path(), &settings) else { return };
        let frames = run.frames();
        let numbers: Vec<u64> = frames.iter().map(|frame| frame.0).collect();
        let losses: Vec<u64> = run.said("losses")[0].split(' ').map(|word| word.parse().unwrap()).collect();
        assert_eq!(losses.iter().sum::<u64>(), numbers[15] - 15, "every gap is counted: {numbers:?} {losses:?}");
        match settings[0].0 {
            "GAP_AT" => assert!(losses == [0, 3] || losses[1] > 3, "{losses:?}"),
            _ => {
                assert!(losses[0] >= 4, "{losses:?}");
                assert!(
                    numbers.iter().all(|number| number % 5 != 4 && number % 7 != 6) || losses[1] > 0,
                    "{numbers:?}"
                );
            }
        }
        if format == "yuyv" && losses[1] == 0 {
            assert!(frames.iter().all(|&(number, first)| u64::from(first) == number), "{frames:?}");
        }
    }
}

#[test]
fn every_uncompressed_format_arrives() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in [("YUYV", "Yuyv"), ("UYVY", "Uyvy"), ("NV12", "Nv12"), ("GREY", "Gray8")] {
        let settings = [("NODE", NODE), ("CHILD_SOURCE", NODE), ("FORMATS", format)];
        let Some(run) = run(folder.path(), &settings) else { return };
        let frames = run.said("frame");
        assert!(frames[0].contains(&format!("640×480 {name}")), "{frames:?}");
        assert!(run.frames().windows(2).all(|pair| pair[0].1 < pair[1].1), "{frames:?}");
    }
}

#[test]
fn a_silent_camera_and_one_that_is_always_damaged_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    for (settings, expected) in [
        (("SILENT_FROM", "3"), "found no picture for 0.3 s, expected one"),
        (("ERROR_EVERY", "1"), "damaged pictures and no whole one for 0.3 s"),
    ] {
        let settings = [settings, ("NODE", NODE), ("CHILD_SOURCE", NODE), ("CHILD_REQUEST", "silence_ms = 300")];
        let Some(run) = run(folder.path(), &settings) else { return };
        let lost = run.said("lost");
        assert!(lost.len() == 1 && lost[0].contains(expected), "{lost:?}");
        assert!(run.calls.last().unwrap().starts_with("close with 0 mapped"));
    }
}
