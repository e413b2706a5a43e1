//! `edge-run bench`, and what a bundle for a GPU meets on a machine without one.

use crate::build_plan::MODEL;
use crate::workbench::{Bench, sample};
use serde_json::Value;

#[test]
fn a_cpu_bundle_is_measured_as_json_and_markdown() {
    let bench = Bench::new();
    let flags = ["bench", sample(), "--runs", "2", "--cpu-backend", "rten", "--threads", "1"];
    let ran = bench.edge_run(&[&flags[..], &["--json", "--json-file", "figures.json"]].concat()).ends_with(0);
    let report: Value = serde_json::from_str(&ran.data).unwrap();
    let figures = report["figures"].as_array().unwrap();
    let median = figures.iter().find(|figure| figure["what"] == "frame in memory → final boxes, median").unwrap();
    assert!(median["value"].as_f64().unwrap() > 0.0 && median["unit"] == "ms", "{median}");
    assert!(report["engine"].as_str().unwrap().starts_with("rten"));
    let file = std::fs::read_to_string(bench.path("figures.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap(), report);
    let ran = bench.edge_run(&flags).ends_with(0);
    assert!(ran.data.contains("| what | value | bound | holds |"), "{}", ran.data);
}

#[test]
fn without_a_gpu_every_gpu_path_says_what_is_missing() {
    let bench = Bench::new();
    let ran = bench.edge_run(&["bench", "--check"]);
    if ran.code == Some(0) {
        assert!(!ran.data.contains("FAIL"), "{}", ran.data);
    } else {
        let ran = ran.ends_with(10);
        assert!(ran.people.contains("found no CUDA driver") || ran.people.contains("CUDA"), "{}", ran.people);
    }
    let flags = [&MODEL[..], &["--target", "t4", "--portable", "-o", "t4.edge"]].concat();
    let ran = bench.edge_build(&flags).ends_with(0);
    assert!(ran.people.contains("GPU memory, estimated from the graph"), "{}", ran.people);
    for flags in [&["bench", "t4.edge"][..], &["--engine", "t4.edge", "--source", "sim:"]] {
        let ran = bench.edge_run(flags).ends_with(3);
        assert!(ran.people.contains("not finished") && ran.people.contains("edge-build finish t4.edge"), "{ran:?}");
    }
}

#[test]
fn a_budget_that_nothing_fits_is_refused_before_any_work() {
    let bench = Bench::new();
    let flags = [&MODEL[..], &["--target", "t4", "--portable", "--gpu-budget", "300MiB", "-o", "t4.edge"]].concat();
    let ran = bench.edge_build(&flags).ends_with(4);
    assert!(ran.people.contains("expected at most the budget of 300.0 MiB"), "{}", ran.people);
    assert!(!bench.path("t4.edge").exists());
    // The same asked for by a recipe.
    bench.write("engines/x/recipe.toml", b"model = '../../model.onnx'\nnames = ['hole', 'short']\ntarget = 't4'\n");
    let ran = bench.edge_build(&["engines/x", "--portable", "--gpu-budget", "300MiB"]).ends_with(4);
    assert!(ran.people.contains("expected at most the budget of 300.0 MiB"), "{}", ran.people);
    assert_eq!(crate::workbench::names(&bench.path("engines/x")), ["recipe.toml"], "nothing half-made is left");
}

#[test]
fn a_kit_is_one_archive_and_says_what_could_not_be_had() {
    let bench = Bench::new();
    let flags = ["bench", sample(), "--runs", "2", "--cpu-backend", "rten", "--threads", "1", "--kit", "kit.zip"];
    let ran = bench.edge_run(&flags);
    assert!(matches!(ran.code, Some(0 | 10)), "{ran:?}");
    let names = |file: &str| {
        let archive = zip::ZipArchive::new(std::fs::File::open(bench.path(file)).unwrap()).unwrap();
        archive.file_names().map(|name| name.unwrap().into_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let found = names("kit.zip");
    for name in ["kit.json", "doctor.txt", "doctor.json", "manifest.json", "bench.md", "bench.json"] {
        assert!(found.contains(name), "{found:?}");
    }
    if ran.code == Some(10) {
        assert!(ran.people.contains("kit: check of the kernels: not made, exit code 10"), "{}", ran.people);
    }
    // A bundle without a plan: the archive is there all the same.
    let flags = [&MODEL[..], &["--target", "t4", "--portable", "-o", "t4.edge"]].concat();
    bench.edge_build(&flags).ends_with(0);
    let ran = bench.edge_run(&["bench", "t4.edge", "--kit", "t4.zip"]).ends_with(3);
    assert!(ran.people.contains("kit: plan: not made, exit code 3"), "{}", ran.people);
    assert!(names("t4.zip").contains("kit.json") && !names("t4.zip").contains("bench.md"));
}

#[test]
fn loads_that_must_fail_need_a_plan_for_this_machine() {
    let bench = Bench::new();
    let flags = [&MODEL[..], &["--target", "t4", "--portable", "-o", "t4.edge"]].concat();
    bench.edge_build(&flags).ends_with(0);
    let ran = bench.edge_run(&["bench", "t4.edge", "--failed-loads", "2"]).ends_with(3);
    assert!(ran.people.contains("not finished"), "{}", ran.people);
}

#[test]
fn several_streams_on_several_engines_get_their_own_answers() {
    let bench = Bench::new();
    let flags = ["bench", sample(), "--runs", "6", "--cpu-backend", "rten", "--threads", "1"];
    let ran = bench.edge_run(&[&flags[..], &["--streams", "3", "--devices", "0,1", "--json"]].concat()).ends_with(0);
    let report: serde_json::Value = serde_json::from_str(&ran.data).unwrap();
    let figure = |what: &str| {
        let figures = report["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["what"].as_str().unwrap().starts_with(what)).unwrap()["value"].as_f64()
    };
    assert_eq!(figure("answers of another frame"), Some(0.0));
    assert!(figure("3 streams on one device, median").unwrap() > 0.0);
    assert!(figure("2 devices against one").unwrap() > 0.0);
    let ran = bench.edge_run(&[&flags[..], &["--streams", "1", "--devices", "0,1"]].concat()).ends_with(2);
    assert!(ran.people.contains("found 1 streams for 2 devices"), "{}", ran.people);
    let ran = bench.edge_run(&[&flags[..], &["--devices", "0,1"]].concat()).ends_with(2);
    assert!(ran.people.contains("--streams"), "{}", ran.people);
}
