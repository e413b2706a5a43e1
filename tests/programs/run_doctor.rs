//! `edge-run doctor`: exit code 10 exactly when this machine cannot run what is asked for, with all reasons.

use crate::build_plan::{MODEL, Machine};
use crate::common::lacks;
use crate::workbench::{Bench, Ran, edge_run, sample};
use serde_json::Value;

fn doctor(machine: &Machine, arguments: &[&str]) -> Ran {
    machine.command_of(edge_run(), &[&["doctor"], arguments].concat()).output().unwrap().into()
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.data).unwrap_or_else(|error| panic!("{error}: {}", ran.data))
}

#[test]
fn a_report_alone_ends_well_and_a_cpu_bundle_runs_anywhere() {
    let bench = Bench::new();
    let ran = bench.edge_run(&["doctor"]).ends_with(0);
    for word in ["machine", "CUDA driver", "TensorRT 10", "TensorRT-RTX", "memory", "user"] {
        assert!(ran.data.lines().any(|line| line.starts_with(word)), "no `{word}` in:\n{}", ran.data);
    }
    let ran = bench.edge_run(&["doctor", "--engine", sample()]).ends_with(0);
    assert!(ran.data.contains("by the CPU engine"), "{}", ran.data);
    let ran = bench.edge_run(&["doctor", "--engine", "missing.edge"]);
    assert!(matches!(ran.code, Some(2 | 3)) && ran.people.contains("missing.edge"), "{ran:?}");
    bench.edge_run(&["doctor", "--flavour", "trt7"]).ends_with(2);
}

#[test]
fn a_bundle_for_a_gpu_is_judged_by_driver_plan_and_library() {
    let machine = Machine::trt10(&[]);
    let bench = &machine.bench;
    let portable = [&MODEL[..], &["--target", "orin-nano-8gb", "--gpu-budget", "64MiB", "--portable", "-o", "o.edge"]];
    machine.run(&portable.concat()).ends_with(0);

    let unfinished = doctor(&machine, &["--engine", "o.edge"]).ends_with(10);
    assert!(unfinished.people.contains("no plan yet"), "{}", unfinished.people);
    assert!(unfinished.people.contains("edge-build finish o.edge"), "{}", unfinished.people);

    machine.run(&["finish", "o.edge", "--keep-unproved"]).ends_with(0);
    let ran = doctor(&machine, &["--engine", "o.edge", "--json"]).ends_with(0);
    let report = json(&ran);
    assert_eq!(report["asked"]["can_run"], true, "{}", ran.data);
    assert_eq!(report["asked"]["by"], "plan trt10-10.3.0-cc8.7");
    assert_eq!(report["driver"]["facts"]["gpus"][0]["compute_capability"], "8.7");
    let library =
        report["libraries"].as_array().unwrap().iter().find(|library| library["name"] == "TensorRT 10").unwrap();
    assert_eq!(library["facts"]["version"], "10.3.0");

    // The same bundle where there is neither driver nor TensorRT: both are told at once.
    let ran = bench.edge_run(&["doctor", "--engine", "o.edge", "--json"]);
    if ran.code == Some(0) {
        eprintln!("not tested: this machine has a driver and TensorRT 10.3");
        return;
    }
    let report = json(&ran);
    let ran = ran.ends_with(10);
    assert!(ran.people.contains("cannot run `o.edge`"), "{}", ran.people);
    let reasons = report["asked"]["reasons"].as_array().unwrap();
    assert!(reasons.len() >= 2 && reasons.iter().all(|reason| reason["way_out"].is_string()), "{reasons:?}");
}

/// The real TensorRT-RTX is found with its version; without a driver it still cannot run anything.
#[test]
fn a_real_library_is_found_with_its_version() {
    let Some(folder) = std::env::var("EDGE_TENSORRT_RTX_DIR").ok().filter(|folder| !folder.is_empty()) else {
        lacks("tensorrt-rtx", "the folder EDGE_TENSORRT_RTX_DIR with TensorRT-RTX");
        return;
    };
    let ran = Bench::new().edge_run(&["doctor", "--flavour", "rtx", "--tensorrt-dir", &folder, "--json"]);
    let report = json(&ran);
    let rtx = report["libraries"].as_array().unwrap().iter().find(|library| library["name"] == "TensorRT-RTX").unwrap();
    assert!(rtx["facts"]["version"].as_str().unwrap().starts_with("1."), "{rtx}");
    assert!(rtx["facts"]["path"].as_str().unwrap().starts_with(&folder), "{rtx}");
    let driver = !report["driver"]["facts"].is_null();
    assert_eq!(report["asked"]["can_run"], driver);
    ran.ends_with(if driver { 0 } else { 10 });
}

/// Case R07 seen from outside, in a made-up root folder.
#[test]
fn r07_wrong_device_nodes_are_reported() {
    let bench = Bench::new();
    for folder in ["root/dev/video0", "root/etc"] {
        std::fs::create_dir_all(bench.path(folder)).unwrap();
    }
    bench.write("root/dev/nvmap", b"");
    let ran = bench.edge_run(&["doctor", "--root", "root"]).ends_with(0);
    for words in ["found folder at /dev/video0, expected a character device", "found file at /dev/nvmap"] {
        assert!(ran.data.contains(words), "no `{words}` in:\n{}", ran.data);
    }
}
