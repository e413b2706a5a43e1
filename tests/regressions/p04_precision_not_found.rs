//! P04: FP16 was asked for, the plan is FP32, and nothing may call that done.

use edge_trt::build::compile::asked::{AsAsked, GraphPrecision};
use edge_trt::build::compile::readback::{add_read_back, judge};
use edge_trt::build::compile::{PlanOrder, ReadBack};
use edge_trt::build::watcher::Watcher;
use edge_trt::bundle::plan::{PLAN_SCHEMA, PlanFacts};
use edge_trt::bundle::{Files, sha256};
use edge_trt::error::Result;
use edge_trt::ffi::lane::LaneShape;
use edge_trt::ffi::tensorrt::probe::Search;
use edge_trt::ffi::tensorrt::version::Flavour;
use edge_trt::gpu::layers::LayerReport;
use edge_trt::gpu::plan::{Basis, MemoryInputs, MemoryPlan};
use edge_trt::units::Bytes;
use std::path::Path;

#[derive(Default)]
struct Heard(Vec<String>);

impl Watcher for Heard {
    fn say(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn warn(&mut self, line: &str) {
        self.0.push(format!("warning: {line}"));
    }
    fn step(&mut self, _what: &str, _done: u64, _of: u64) {}
    fn check_stop(&self) -> Result<()> {
        Ok(())
    }
}

fn memory(budget: Bytes) -> MemoryPlan {
    let shape = LaneShape {
        batch: 1,
        channels: 3,
        width: 640,
        height: 640,
        picture_bytes: 1 << 20,
        anchors: 8400,
        cap: 8400,
        ahead: false,
    };
    MemoryPlan::of(&MemoryInputs {
        basis: Basis::Measured,
        weights: Bytes::mib(6),
        activations: Bytes::mib(12),
        tensors: vec![Bytes::mib(5)],
        shape,
        overhead: Bytes::mib(500),
        libraries: Bytes::mib(10),
        contexts: 1,
        budget,
        alarm_percent: 85,
    })
    .unwrap()
}

/// The inspector's words for a plan of one convolution, in FP32 or FP16.
fn found(half: bool, budget: Bytes) -> ReadBack {
    let weights = if half { "Half" } else { "Float" };
    let text = format!(
        r#"{{"Layers": [{{"Name": "/conv", "LayerType": "CaskConvolution", "Weights": {{"Type": "{weights}"}},
        "Inputs": [{{"Format/Datatype": "Row major linear FP32"}}], "Outputs": [{{"Format/Datatype": "Row major linear FP32"}}]}}]}}"#
    );
    let nodes = ["/conv".to_owned()];
    let graph = GraphPrecision { nodes: nodes.clone().into(), half: nodes.into(), ..GraphPrecision::default() };
    let (layers, parts) = LayerReport::parse(&text, &graph.nodes).unwrap();
    let troubles = judge(&[("f16".to_owned(), 1)].into(), &graph, &layers, &parts);
    let as_asked = AsAsked::of(&graph, &layers, &parts);
    ReadBack { memory: memory(budget), layers, as_asked, proof: "6 known answers came out right".into(), troubles }
}

fn full_precision(_path: &Path, _plan: &str, _search: &Search) -> Result<ReadBack> {
    Ok(found(false, Bytes::gib(4)))
}

fn half_precision(_path: &Path, _plan: &str, _search: &Search) -> Result<ReadBack> {
    Ok(found(true, Bytes::gib(4)))
}

fn too_large(_path: &Path, _plan: &str, _search: &Search) -> Result<ReadBack> {
    Ok(found(true, Bytes::mib(520)))
}

fn entries() -> Files {
    let facts = PlanFacts {
        schema: PLAN_SCHEMA,
        bundle: "0".repeat(64),
        sha256: sha256(b"a plan"),
        bytes: 6,
        flavour: "trt8".into(),
        tensorrt: "8.6.1".into(),
        compute_capability: "7.5".into(),
        made_on: Some("a GPU".into()),
        architecture: "x86_64".into(),
        workspace: Bytes::gib(1),
        optimization_level: None,
        tensors: vec![],
        memory: None,
        layers: None,
        gate: None,
    };
    facts.entries(b"a plan".to_vec()).unwrap()
}

fn order(read_back: fn(&Path, &str, &Search) -> Result<ReadBack>) -> PlanOrder {
    PlanOrder {
        flavour: Flavour::Trt8,
        compute_capability: 75,
        budget: Bytes::gib(4),
        workspace: Bytes::gib(1),
        optimization_level: None,
        time_limit: None,
        search: Search::default(),
        read_back: Some(read_back),
        keep_unproved: false,
    }
}

#[test]
fn p04_a_plan_without_the_precision_that_was_asked_for_is_refused() {
    let mut heard = Heard::default();
    let error = add_read_back(entries(), &order(full_precision), Path::new("x.edge"), &mut heard).unwrap_err();
    assert_eq!(error.kind().exit_code(), 3);
    assert!(
        error.message().contains("asked for 1 convolutions and products in f16, the plan has none in it but 1 in f32")
    );
    assert!(error.place().unwrap().contains("trt8-8.6.1-cc7.5"));
    // For measuring it can be kept, and says so.
    let kept = PlanOrder { keep_unproved: true, ..order(full_precision) };
    assert!(add_read_back(entries(), &kept, Path::new("x.edge"), &mut heard).is_ok());
    assert!(heard.0.iter().any(|line| line.starts_with("warning: kept although asked for 1")), "{:?}", heard.0);
    let more = "warning: read back: 1 of 1 layers compute in more than asked: `/conv` in f32 for f16";
    assert!(heard.0.iter().any(|line| line == more), "{:?}", heard.0);
}

#[test]
fn a_plan_as_asked_keeps_what_was_read_back() {
    let mut heard = Heard::default();
    let files = add_read_back(entries(), &order(half_precision), Path::new("x.edge"), &mut heard).unwrap();
    let facts: PlanFacts = serde_json::from_slice(&files["plans/trt8-8.6.1-cc7.5.json"]).unwrap();
    assert_eq!(facts.layers.unwrap().products["f16"], 1);
    assert_eq!(facts.memory.unwrap().basis, Basis::Measured);
    let line = "read back: as asked: all of the 1 layers that the graph asks a precision of";
    assert!(heard.0.iter().any(|heard| heard == line), "{:?}", heard.0);
    assert_eq!(files["plans/trt8-8.6.1-cc7.5.plan"], b"a plan");
    assert!(heard.0.iter().any(|line| line.contains("convolutions and products: 1 f16")), "{:?}", heard.0);
    assert!(heard.0.iter().any(|line| line.contains("GPU memory, measured")), "{:?}", heard.0);
}

#[test]
fn a_plan_that_takes_more_than_its_budget_is_refused_after_the_build() {
    let error = add_read_back(entries(), &order(too_large), Path::new("x.edge"), &mut Heard::default()).unwrap_err();
    assert_eq!(error.kind().exit_code(), 4);
    assert!(error.message().contains("expected at most the budget of 520.0 MiB"), "{}", error.message());
}
