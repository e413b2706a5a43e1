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
}
