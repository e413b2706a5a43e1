//! A kernel that faults takes every context of its process along, on every device: the program says so and ends at once, so that
//! its supervisor can start it again.

use crate::build_plan::{MODEL, Machine};
use crate::common::graphs;
use crate::run_sim::rows;
use crate::workbench::{Ran, edge_run};
use std::time::{Duration, Instant};

#[test]
fn a_lost_process_ends_without_asking_the_device_for_anything() {
    let two = "DEVICES=2";
    let machine = Machine::trt10_with_driver(&["BATCH=1"], &[two]);
    let bench = &machine.bench;
    bench.write(
        "model.onnx",
        &graphs::constant(
            graphs::Type::F32,
            [1, 3, 64, 64],
            vec![graphs::raw_head(2, 84, &[[32.0, 32.0, 20.0, 12.0, 0.001, 0.0]])],
        ),
    );
    let target = ["--target", "orin-nano-8gb", "--flavour", "trt10", "--gpu-budget", "48MiB", "-o", "o.edge"];
    machine.run(&[&MODEL[..], &target, &["--keep-unproved"]].concat()).ends_with(0);
    bench.pictures("cam1", 3);
    machine.change_driver(&[two, "LOST_AFTER=200", "MEMORY_BYTES=(512u<<20)"]);
    let since = Instant::now();
    let source = ["--source", "cam1=replay:cam1?loop&fps=100", "--source", "cam2=replay:cam1?loop&fps=100"];
    let run = ["--engine", "o.edge", "--devices", "0,1", "--duration", "60s", "--output", "rows.jsonl"];
    let ran: Ran = machine.command_of(edge_run(), &[&run[..], &source].concat()).output().unwrap().into();
    let ran = ran.ends_with(7);
    assert!(since.elapsed() < Duration::from_secs(30), "it ran on until the end of its time");
    assert!(ran.people.contains("device 1 goes on in place of device 0"), "{}", ran.people);
    assert!(ran.people.contains("the device is lost and no other one stands by"), "{}", ran.people);
    assert!(ran.people.contains("GPU memory is left to the end of the process"), "{}", ran.people);
    // One by one TensorRT's own would take seconds.
    assert!(!ran.people.contains("while freeing"), "{}", ran.people);
    let rows = rows(&String::from_utf8(bench.read("rows.jsonl")).unwrap());
    let first_fault = rows.iter().position(|row| row["trust"] == "fault").expect("the fault has a row");
    assert!(rows[..first_fault].iter().all(|row| row["trust"] == "trusted"));
    assert!(rows[first_fault..].iter().all(|row| row["trust"] != "trusted"), "nothing is trusted after it");
}
