//! edge-run on the simulated line and on folders: results, how runs end, and the small commands around them.

use crate::workbench::{Bench, Ran, names};
use serde_json::Value;
use std::collections::BTreeMap;

/// Every line as JSON, with the fields that outsiders rely on checked.
#[track_caller]
pub(crate) fn rows(text: &str) -> Vec<Value> {
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in &rows {
        let fields: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        for field in [
            "stream",
            "frame",
            "captured_at",
            "source",
            "trust",
            "reasons",
            "decision",
            "part",
            "proved_at",
            "detections",
            "boxes_before_nms",
            "timings_ms",
            "memory_bytes",
            "engine",
        ] {
            assert!(fields.contains(&field), "no `{field}` in {row}");
        }
        let trust = row["trust"].as_str().unwrap();
        assert_eq!(row["detections"].is_null(), trust == "fault", "{row}");
        assert_eq!(row["reasons"].as_array().unwrap().is_empty(), trust == "trusted", "{row}");
        assert!(trust != "fault" || !matches!(row["decision"].as_str(), Some("pass" | "reject")), "{row}");
        for found in row["detections"].as_array().into_iter().flatten() {
            let score = found["score"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&score) && found["box"].as_array().unwrap().len() == 4, "{row}");
            assert!(found["class"].is_string() && found["class_id"].is_u64(), "{row}");
        }
    }
    rows
}

/// The rows of frames; a part that nobody answered in time has a row of its own, without a frame.
fn of_frames(rows: Vec<Value>) -> Vec<Value> {
    rows.into_iter().filter(|row| !row["frame"].is_null()).collect()
}

/// Part → its decision; no part may have two.
fn one_decision_a_part(rows: &[Value]) -> BTreeMap<String, String> {
    let mut decided = BTreeMap::new();
    for row in rows.iter().filter(|row| !row["part"].is_null()) {
        let (part, decision) = (row["part"].as_str().unwrap(), row["decision"].as_str().unwrap());
        assert_eq!(decided.insert(part.to_owned(), decision.to_owned()), None, "{part} has two decisions");
    }
    decided
}

fn truth(bench: &Bench, name: &str) -> Vec<Value> {
    let text = String::from_utf8(bench.read(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_sample_finds_the_parts_of_the_simulated_line() {
    let bench = Bench::new();
    let source = "sim:?fast&frames=12&triggers=only&defects=0.5&seed=4";
    let flags = ["--source", source, "--delivery", "every", "--listen", "none", "--truth", "truth.jsonl"];
    let ran = bench.run_sample(&[&flags[..], &["--output", "-"]].concat()).ends_with(0);
    assert!(ran.people.contains("12 results"), "{}", ran.people);
    let (decided, truth) = (one_decision_a_part(&rows(&ran.data)), truth(&bench, "truth.jsonl"));
    let rows = of_frames(rows(&ran.data));
    assert_eq!((rows.len(), decided.len(), truth.len()), (12, 12, 12));
    let mut defective = 0;
    for (row, truth) in rows.iter().zip(&truth) {
        assert_eq!((&row["frame"], &row["trust"]), (&truth["frame"], &"trusted".into()), "in order");
        let classes = |value: &Value| {
            let mut classes: Vec<_> = value.as_array().unwrap().iter().map(|b| b["class"].to_string()).collect();
            classes.sort();
            classes
        };
        let asked: Vec<Value> =
            truth["boxes"].as_array().unwrap().iter().filter(|b| b["visible"].as_f64() >= Some(0.5)).cloned().collect();
        assert_eq!(classes(&row["detections"]), classes(&Value::Array(asked)), "{row}\n{truth}");
        let decision = decided[truth["part"]["id"].as_str().unwrap()].as_str();
        let bad = truth["part"]["defective"].as_bool().unwrap();
        defective += u32::from(bad);
        // A machine under load may be late; it must never be wrong.
        assert_ne!(decision, if bad { "pass" } else { "reject" }, "{row}");
    }
    assert!((2..=10).contains(&defective), "{defective} of 12 parts are defective");
}

#[test]
fn flags_change_the_report_and_not_the_judgement() {
    let bench = Bench::new();
    let run = |more: &[&str]| {
        let flags = [
            "--source",
            "sim:?fast&frames=4&triggers=only",
            "--delivery",
            "every",
            "--listen",
            "none",
            "--output",
            "-",
        ];
        of_frames(rows(&bench.run_sample(&[&flags[..], more].concat()).ends_with(0).data))
    };
    let (plain, low, high) = (run(&[]), run(&["--conf", "0.001"]), run(&["--conf", "1"]));
    let count = |rows: &[Value]| rows.iter().map(|row| row["detections"].as_array().unwrap().len()).sum::<usize>();
    assert!(count(&low) > count(&plain) && count(&high) == 0, "{} {}", count(&plain), count(&low));
    let trust = |rows: &[Value]| rows.iter().map(|row| row["trust"].clone()).collect::<Vec<_>>();
    assert_eq!(trust(&plain), trust(&high));
}

#[test]
fn frames_and_duration_end_a_run() {
    let bench = Bench::new();
    let endless = ["--source", "sim:?fast", "--delivery", "every", "--listen", "none", "--output"];
    let ran = bench.run_sample(&[&endless[..], &["-", "--frames", "3"]].concat()).ends_with(0);
    assert_eq!(rows(&ran.data).len(), 3);
    let ran = bench.run_sample(&[&endless[..], &["timed.jsonl", "--duration", "3s"]].concat()).ends_with(0);
    assert!(ran.people.contains(" results: "), "{}", ran.people);
    assert!(!rows(&String::from_utf8(bench.read("timed.jsonl")).unwrap()).is_empty());
    bench.run_sample(&[&endless[..], &["-", "--frames", "0"]].concat()).ends_with(2).explains(&["--frames"]);
}

fn interrupted(signal: &str) {
    let bench = Bench::new();
    let mut running = bench.start_sample(&["--source", "sim:", "--listen", "127.0.0.1:0", "--output", "live.jsonl"]);
    running.wait_for("page: http://127.0.0.1:");
    while std::fs::read_to_string(bench.path("live.jsonl")).unwrap_or_default().lines().count() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.signal(signal);
    let ran = running.end().ends_with(130);
    let ran = ran.says_one_error(&["interrupted; results so far are written"]);
    assert!(ran.people.lines().count() < 40, "{}", ran.people);
    let text = String::from_utf8(bench.read("live.jsonl")).unwrap();
    assert!(text.ends_with('\n') && rows(&text).len() >= 3);
}

#[test]
fn sigterm_flushes_and_ends_with_130() {
    interrupted("TERM");
}

#[test]
fn ctrl_c_flushes_and_ends_with_130() {
    interrupted("INT");
}

#[test]
fn an_interrupted_folder_leaves_no_file_that_looks_whole() {
    let bench = Bench::new();
    bench.pictures("many", 400);
    let before = bench.names();
    let running = bench.start_sample(&["--source", "many", "--output", "many.jsonl", "--save", "drawn"]);
    while names_or_none(&bench, "drawn").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.signal("TERM");
    running.end().ends_with(130).says_one_error(&["interrupted; the file of results is written only when"]);
    std::fs::remove_dir_all(bench.path("drawn")).unwrap();
    assert_eq!(bench.names(), before);
}

fn names_or_none(bench: &Bench, folder: &str) -> Vec<String> {
    if bench.path(folder).is_dir() { names(&bench.path(folder)) } else { Vec::new() }
}

#[test]
fn one_unreadable_picture_is_one_fault_and_the_rest_goes_on() {
    let bench = Bench::new();
    bench.pictures("mixed", 4);
    bench.write("mixed/001a.jpg", b"\xff\xd8\xffno picture");
    let ran = bench.run_sample(&["--source", "mixed", "--output", "mixed.jsonl", "--save", "drawn"]).ends_with(6);
    ran.explains(&["1 of 5 pictures could not be read", "001a.jpg"]);
    let rows = rows(&String::from_utf8(bench.read("mixed.jsonl")).unwrap());
    let sources: Vec<&str> = rows.iter().map(|row| row["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["000.png", "001.png", "001a.jpg", "002.png", "003.png"]);
    for row in &rows {
        let broken = row["source"] == "001a.jpg";
        assert_eq!(row["reasons"] == serde_json::json!(["unreadable"]), broken, "{row}");
        assert!(row["captured_at"].is_null(), "{row}");
    }
    let alone = bench.run_sample(&["--source", "mixed/000.png", "--output", "-"]).ends_with(0);
    assert_eq!(self::rows(&alone.data).len(), 1);
    let by_pattern = bench.run_sample(&["--source", "mixed/*.png", "--output", "-"]).ends_with(0);
    assert_eq!(self::rows(&by_pattern.data).len(), 4);
}

#[test]
fn several_streams_keep_their_names() {
    let bench = Bench::new();
    bench.pictures("left", 3);
    bench.pictures("right", 2);
    let ran = bench.run_sample(&["--source", "l=left", "--source", "r=right", "--output", "-"]).ends_with(0);
    let mut counts = BTreeMap::new();
    for row in rows(&ran.data) {
        *counts.entry(row["stream"].to_string()).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([("\"l\"".into(), 3), ("\"r\"".into(), 2)]));
}

#[test]
fn the_example_configuration_is_valid_and_a_configuration_runs() {
    let bench = Bench::new();
    let example = bench.edge_run(&["config", "example"]).ends_with(0);
    bench.write("edge.toml", example.data.as_bytes());
    let checked = bench.edge_run(&["config", "check", "edge.toml"]).ends_with(0);
    assert!(checked.data.contains("stream left") && checked.data.contains("edge.toml: valid"), "{}", checked.data);
    bench.pictures("pictures", 2);
    let engine = crate::workbench::sample();
    bench.write(
        "small.toml",
        format!(
            "engine = \"{engine}\"\n[[stream]]\nname = \"a\"\nsource = \"pictures\"\n[output]\nfile = \"a.jsonl\"\n\
             [cpu]\nbackend = \"rten\"\nthreads = 1\n"
        )
        .as_bytes(),
    );
    bench.edge_run(&["--config", "small.toml"]).ends_with(0);
    assert_eq!(rows(&String::from_utf8(bench.read("a.jsonl")).unwrap()).len(), 2);
}

#[test]
fn the_simulated_line_is_rendered_to_files() {
    let bench = Bench::new();
    let render = |folder: &str| {
        bench.edge_run(&["sim", "render", folder, "--frames", "3", "--seed", "9"]).ends_with(0);
        names(&bench.path(&format!("{folder}/images")))
    };
    let images = render("one");
    assert_eq!(images, render("two"));
    assert_eq!(images.len(), 3);
    assert_eq!(names(&bench.path("one/labels")).len(), 3);
    for name in images {
        assert!(bench.read(&format!("one/images/{name}")) == bench.read(&format!("two/images/{name}")), "{name}");
    }
}

#[test]
fn help_and_version_are_data() {
    let bench = Bench::new();
    let help: Ran = bench.edge_run(&["--help"]).ends_with(0);
    assert!(help.data.contains("--camera") && help.people.is_empty());
    assert!(bench.edge_run(&["--version"]).ends_with(0).data.contains(env!("CARGO_PKG_VERSION")));
}
