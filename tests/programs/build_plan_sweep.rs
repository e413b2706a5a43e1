//! `edge-build sweep` on a machine with the double of a GPU: finalists get a plan and its time.

use crate::build_plan::Machine;

/// Flags of a sweep over the small model, which the double takes at batch 1 alone.
const SWEEP: [&str; 12] = [
    "sweep",
    "model.onnx",
    "--names",
    "names.txt",
    "--target",
    "orin-nano-8gb",
    "--flavour",
    "trt10",
    "--precision",
    "as-exported",
    "--batch",
    "1,2",
];

fn lines(data: &str) -> Vec<serde_json::Value> {
    let found: serde_json::Value = serde_json::from_str(data).unwrap();
    found["lines"].as_array().unwrap().clone()
}

#[test]
fn finalists_are_timed_with_a_plan_where_the_gpu_is() {
    let machine = Machine::trt10(&[]);
    let ran = machine.run(&[&SWEEP[..], &["--json"]].concat()).ends_with(0);
    let lines = lines(&ran.data);
    let time = &lines[0]["time"];
    assert_eq!((&time["target"], &time["batch"]), (&"orin-nano-8gb".into(), &1.into()), "{lines:?}");
    assert_eq!(time["engine"], "TensorRT 10 10.3.0 on Double 0");
    assert!(time["ms_a_picture"].as_f64().unwrap() > 0.0);
    let search = &lines[0]["batch_search"];
    assert_eq!((&search["best"], &search["ended"]["why"]), (&1.into(), &"cannot_run".into()));
    assert_eq!(search["ended"]["batch"], 2, "the double's plans hold one picture: {search}");
    assert_eq!(lines[1]["time"], serde_json::Value::Null);
    assert!(!ran.people.contains("not timed"), "{}", ran.people);

    // One family is there, but two serve the target: it is said, and the rest is measured.
    let flavourless: Vec<&str> =
        SWEEP.iter().filter(|flag| !matches!(**flag, "--flavour" | "trt10")).copied().collect();
    let ran = machine.run(&flavourless).ends_with(0);
    assert!(ran.people.contains("not timed on orin-nano-8gb: found several families"), "{}", ran.people);
}

/// The limit ends a compilation, not the sweep: what was measured before is told, with exit code 9.
#[test]
fn the_time_limit_ends_a_compilation_and_keeps_the_lines() {
    let machine = Machine::trt10(&["SLOW"]);
    let ran = machine.run(&[&SWEEP[..], &["--json", "--time-limit", "3s"]].concat()).ends_with(9);
    let lines = lines(&ran.data);
    assert_eq!(lines.len(), 2);
    assert!(lines[0]["memory"]["total"].is_number() || lines[0]["memory"]["total"].is_string(), "{lines:?}");
    let ended = &lines[0]["batch_search"]["ended"];
    assert!(ended["reason"].as_str().unwrap().contains("time limit"), "{ended}");
    assert!(ran.people.contains("error: the time limit was reached"), "{}", ran.people);
}
