//! The accuracy gate judges the plan itself where one can run. The double computes nothing: its plan finds no box, which is right
//! for a model that finds none either, and off for one that does.

use crate::build_plan::{MODEL, Machine};
use crate::common::graphs;
use crate::workbench::Ran;
use edge_trt::bundle::Bundle;
use edge_trt::bundle::gate::GateResult;

const PLAN: &str = "trt10-10.3.0-cc8.7";

/// A model that finds one box of class 0, in the middle, with `score`.
fn machine(score: f32) -> Machine {
    let machine = Machine::trt10(&[]);
    let head = graphs::raw_head(2, 84, &[[32.0, 32.0, 20.0, 12.0, score, 0.0]]);
    let model = graphs::constant(graphs::Type::F32, [1, 3, 64, 64], vec![head]);
    machine.bench.write("model.onnx", &graphs::with_convolutions(&model));
    machine.bench.pictures("val", 12);
    for number in 0..12 {
        // Pictures of 80×60 stand in the 64×64 input scaled by 0.8: the box there is 25×15 px around the middle here.
        machine.bench.write(&format!("right/{number:03}.txt"), b"0 0.5 0.5 0.3125 0.25\n");
        machine.bench.write(&format!("empty/{number:03}.txt"), b"");
    }
    machine
}

fn build(machine: &Machine, more: &[&'static str]) -> Ran {
    let flags = ["--target", "orin-nano-8gb", "--flavour", "trt10", "--fp16", "--gate", "val", "-o", "o.edge"];
    machine.run(&[&MODEL[..], &flags, more].concat())
}

fn gate_of_plan(machine: &Machine) -> Option<GateResult> {
    let bundle = Bundle::open(&machine.bench.path("o.edge")).unwrap();
    bundle.plan_facts(PLAN).unwrap().gate
}

/// Answers as the original's: the bundle holds the plan's verdict, and who ran it.
#[test]
fn a_plan_that_answers_as_the_export_passes_and_the_manifest_says_that_it_was_judged() {
    let machine = machine(0.01);
    let built = build(&machine, &["--keep-unproved", "--json"]).ends_with(0);
    assert!(built.people.contains("gate: plan `trt10-10.3.0-cc8.7` answers for 12 pictures"), "{}", built.people);
    assert!(
        built.people.contains("gate passed by the plan on Double 0 (TensorRT 10 10.3.0): 0 found"),
        "{}",
        built.people
    );
    let bundle = Bundle::open(&machine.bench.path("o.edge")).unwrap();
    let gate = bundle.manifest().gate.clone().unwrap();
    assert_eq!(gate.judged, "plan");
    assert!(gate.backend.starts_with("rten"), "{}", gate.backend);
    let plan = gate.plan.as_ref().unwrap();
    assert_eq!((plan.name.as_str(), plan.gpu.as_str()), (PLAN, "Double 0"));
    assert_eq!(plan.tensorrt, "TensorRT 10 10.3.0");
    assert!(plan.graph.is_some(), "the graph was judged before, on the CPU");
    assert_eq!(gate_of_plan(&machine), Some(gate.clone()));
    let json: serde_json::Value = serde_json::from_str(&built.data).unwrap();
    assert_eq!(json["gate"]["judged"], "plan");
    let report: serde_json::Value = serde_json::from_slice(&machine.bench.read("o.report.json")).unwrap();
    assert_eq!(report["gate"]["plan"]["gpu"], "Double 0");
    let page = String::from_utf8(machine.bench.read("o.report.html")).unwrap();
    assert!(page.contains("the plan trt10-10.3.0-cc8.7 by TensorRT 10 10.3.0 on Double 0"), "{page}");
    let shown = machine.bench.edge_build(&["inspect", "o.edge"]).ends_with(0).data;
    assert!(shown.contains("plan's gate") && shown.contains("passed: plan `trt10-10.3.0-cc8.7`"), "{shown}");

    let again = build(&machine, &["--keep-unproved"]).ends_with(0);
    assert!(again.people.contains("unchanged"), "{}", again.people);
}

/// The graph passes on the CPU and the plan finds nothing: exit code 5, nothing is written but the report that was asked for.
/// `--keep-unproved` does not keep it.
#[test]
fn a_plan_whose_answers_are_off_fails_although_its_graph_passed() {
    let machine = machine(0.9);
    let before = machine.bench.names();
    for more in [&["--keep-unproved"][..], &["--keep-unproved", "--labels", "right"]] {
        let ran = build(&machine, more).ends_with(5);
        assert!(ran.people.contains("gate failed by the plan on Double 0"), "{}", ran.people);
        let first =
            if more.len() == 1 { "boxes that only the original has worse by 12" } else { "mAP50 worse by 1.0000" };
        ran.says_one_error(&[first, "accuracy gate, plan `trt10-10.3.0-cc8.7`", "the graph passed on the CPU"]);
        let after = machine.bench.names();
        assert!(after.iter().all(|name| before.contains(name) || name == "cache"), "{after:?}");
    }
    std::fs::create_dir(machine.bench.path("told")).unwrap();
    build(&machine, &["--keep-unproved", "--labels", "right", "--report", "told"]).ends_with(5);
    let report: serde_json::Value = serde_json::from_slice(&machine.bench.read("told/o.report.json")).unwrap();
    assert_eq!((&report["written"], &report["gate"]["judged"]), (&false.into(), &"plan".into()));
    assert_eq!(report["gate"]["plan"]["graph"]["operating"]["found"], 12);
    assert!(!machine.bench.path("o.edge").exists());
}

/// Where no GPU is, the graph is judged and the manifest says so.
#[test]
fn without_a_gpu_the_graph_is_judged() {
    let machine = machine(0.9);
    build(&machine, &["--portable"]).ends_with(0);
    let bundle = Bundle::open(&machine.bench.path("o.edge")).unwrap();
    let gate = bundle.manifest().gate.as_ref().unwrap();
    assert_eq!(gate.judged, "graph in half arithmetic");
    assert_eq!(gate.plan, None);
}

/// On the device the plan is held against what the export reached when the bundle was built.
#[test]
fn finish_judges_by_the_pictures_and_labels_that_judged_the_bundle() {
    let machine = machine(0.9);
    let finish = |more: &[&str]| machine.run(&[&["finish", "o.edge", "--keep-unproved"][..], more].concat());
    let gate = ["--gate", "val", "--labels", "right"];

    build(&machine, &["--portable"]).ends_with(0);
    finish(&gate).ends_with(2).says_one_error(&["judged without labels", "`--gate DIR --labels DIR`"]);
    build(&machine, &["--portable", "--labels", "right"]).ends_with(0);
    let unfinished = machine.bench.read("o.edge");
    finish(&["--gate", "val"]).ends_with(2);
    machine.bench.pictures("fewer", 3);
    finish(&["--gate", "fewer", "--labels", "right"])
        .ends_with(2)
        .says_one_error(&["found 3 pictures that are not those that judged the bundle, expected the same 12"]);
    finish(&["--gate", "val", "--labels", "empty"])
        .ends_with(2)
        .says_one_error(&["found [0, 0] true boxes by class, expected [12, 0]"]);
    let failed = finish(&gate).ends_with(5);
    assert!(failed.people.contains("gate failed by the plan on Double 0"), "{}", failed.people);
    failed.says_one_error(&["mAP50 worse by 1.0000", "found boxes worse by 12.0000", "accuracy gate, plan"]);
    assert_eq!(machine.bench.read("o.edge"), unfinished, "the bundle is as it was");

    let unjudged = finish(&[]).ends_with(0);
    assert!(unjudged.people.contains("this plan is not; `--gate DIR --labels DIR`"), "{}", unjudged.people);
    assert_eq!(gate_of_plan(&machine), None);

    // No box is right: the plan, which finds none, is better than the export.
    build(&machine, &["--portable", "--labels", "empty"]).ends_with(0);
    let id = Bundle::open(&machine.bench.path("o.edge")).unwrap().id().to_owned();
    finish(&["--gate", "val", "--labels", "empty"]).ends_with(0);
    let result = gate_of_plan(&machine).unwrap();
    assert_eq!((result.judged.as_str(), result.passed(), result.shift), ("plan", true, None));
    assert_eq!((result.original.operating.false_boxes, result.candidate.operating.false_boxes), (12, 0));
    assert_eq!(
        Bundle::open(&machine.bench.path("o.edge")).unwrap().id(),
        id,
        "a plan does not change what the bundle is"
    );
}
