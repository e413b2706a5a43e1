//! The real TensorRT-RTX builder, on the CPU. Needs `EDGE_TENSORRT_RTX_DIR`; `EDGE_REQUIRE=tensorrt-rtx` makes a skip a failure.

use super::plan::Request;
use super::*;
use crate::build::compile::asked::Held;
use crate::build::compile::faults::GraphFacts;
use crate::build::watcher::Watcher;
use crate::error::ErrorKind;
use crate::ffi::tensorrt::{DataType, Library, ProfilingVerbosity, Runtime};
use crate::onnx::node::make;
use crate::onnx::samples::{Sample, value};
use crate::onnx::{Model, tensor};
use crate::test_inputs;
use std::path::PathBuf;

#[derive(Default)]
struct Listener {
    said: Vec<String>,
    warned: Vec<String>,
    stop: bool,
}

impl Watcher for Listener {
    fn say(&mut self, line: &str) {
        self.said.push(line.to_owned());
    }

    fn warn(&mut self, line: &str) {
        self.warned.push(line.to_owned());
    }

    fn step(&mut self, _what: &str, _done: u64, _of: u64) {}

    fn check_stop(&self) -> Result<()> {
        if self.stop { Err(Error::new(ErrorKind::Interrupted, "stop")) } else { Ok(()) }
    }
}

fn request(folder: PathBuf, model: Vec<u8>, compute_capability: u32) -> Request {
    Request {
        model,
        order: PlanOrder {
            flavour: Flavour::Rtx,
            compute_capability,
            budget: Bytes::gib(4),
            workspace: Bytes::gib(1),
            optimization_level: None,
            time_limit: None,
            search: Search { directory: Some(folder) },
            read_back: None,
            keep_unproved: false,
        },
        graph: GraphFacts::default(),
        precisions: vec![],
        held: Held::default(),
        verbosity: ProfilingVerbosity::Detailed,
        timings: None,
    }
}

/// 1×3×8×8 → convolution → 1×4×8×8.
fn convolution() -> Model {
    let weight = tensor::from_f32("w", &[4, 3, 3, 3], &(0..108).map(|i| i as f32 * 0.01).collect::<Vec<_>>());
    let pads = vec![make::ints("pads", &[1, 1, 1, 1])];
    let nodes = vec![make::node("Conv", "conv", &["images", "w"], &["y"], pads)];
    let outputs = vec![value("y", tensor::DataType::F32, &[1, 4, 8, 8])];
    Sample { weights: vec![weight], ..Sample::new(&[1, 3, 8, 8], nodes, outputs) }.model()
}

/// 1×8×8 times itself.
fn product() -> Model {
    let nodes = vec![make::node("MatMul", "attention", &["images", "images"], &["y"], vec![])];
    Sample::new(&[1, 8, 8], nodes, vec![value("y", tensor::DataType::F32, &[1, 8, 8])]).model()
}

#[test]
fn a_plan_is_made_without_a_gpu_and_needs_one_to_be_read() {
    let Some(folder) = test_inputs::tensorrt_rtx() else { return };
    let cache = tempfile::tempdir().unwrap();
    let mut listener = Listener::default();
    let mut first = request(folder.clone(), convolution().to_bytes().unwrap(), 86);
    first.timings = Some(cache.path().join("made"));
    let again = first.clone();
    let compiled = compile(first, &mut listener).unwrap();
    assert!(compiled.plan.len() > 1000);
    assert_eq!(
        compiled.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.input)).collect::<Vec<_>>(),
        [("images", true), ("y", false)]
    );
    assert_eq!(compiled.tensors[0].sizes, [1, 3, 8, 8]);
    assert_eq!(compiled.tensors[0].data_type, DataType::Float);
    assert!(listener.said[0].starts_with("compiling: TensorRT-RTX 1."), "{:?}", listener.said);
    assert!(listener.said[0].contains("compute capability 8.6, workspace 1.0 GiB"));
    assert!(listener.said.last().unwrap().starts_with("compiled: "));

    let kept = compiled.timings.unwrap();
    let name = kept.file_name().unwrap().to_string_lossy();
    assert!(name.starts_with(&format!("rtx-{}-cc8.6-", compiled.version)) && name.ends_with(".timings"), "{name}");
    let second = compile(again, &mut listener).unwrap();
    assert_eq!(second.plan, compiled.plan, "timings of an earlier build do not change the plan");

    let library = Library::open(Flavour::Rtx, &Search { directory: Some(folder) }).unwrap();
    let runtime = Runtime::new(&library, None).unwrap();
    assert_eq!(runtime.accepts(b"garbage").unwrap(), Some(false));
    let error = runtime
        .deserialize(b"garbage of some length that is no plan at all, but long enough for a header.....")
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    if crate::ffi::cuda::Driver::load().is_err() {
        let error = runtime.deserialize(&compiled.plan).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::MachineLacks, "{error}");
        assert!(error.message().contains("needs a GPU and its driver to read a plan"), "{error}");
    }
}

#[test]
fn models_that_the_parser_refuses_are_refused_with_its_words() {
    let Some(folder) = test_inputs::tensorrt_rtx() else { return };
    let whole = convolution().to_bytes().unwrap();
    for bytes in [whole[..whole.len() / 2].to_vec(), vec![0x5a; 4096], vec![]] {
        let error = compile(request(folder.clone(), bytes, 86), &mut Listener::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.message().contains("TensorRT's ONNX parser refused the model"), "{error}");
    }
    let nodes = vec![make::node("Frobnicate", "/model.7/Frobnicate", &["images"], &["y"], vec![])];
    let unknown = Sample::new(&[1, 3], nodes, vec![value("y", tensor::DataType::F32, &[1, 3])]).model();
    let error = compile(request(folder, unknown.to_bytes().unwrap(), 86), &mut Listener::default()).unwrap_err();
    assert!(error.place().unwrap_or_default().contains("/model.7/Frobnicate"), "{error}");
}

#[test]
fn stopping_and_running_out_of_time_end_a_build_with_their_own_codes() {
    let Some(folder) = test_inputs::tensorrt_rtx() else { return };
    let Some(model) = test_inputs::shared("models/pcb-yolov8n.onnx") else { return };
    let model = std::fs::read(model).unwrap();
    let stopped =
        compile(request(folder.clone(), model.clone(), 86), &mut Listener { stop: true, ..Listener::default() });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
    let mut late = request(folder, model, 86);
    late.order.time_limit = Some(Duration::from_millis(1));
    let error = compile(late, &mut Listener::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimeLimit);
    assert!(error.message().contains("0.001 s"), "{error}");
}

/// Case P05: said before the build, and TensorRT's own refusal is explained when it comes to that.
#[test]
fn p05_float_attention_for_turing_is_refused_before_the_build() {
    let Some(folder) = test_inputs::tensorrt_rtx() else { return };
    let model = product();
    let facts = GraphFacts::of(&model, false).unwrap();
    assert_eq!((facts.float_products.count, facts.float_products.first.contains("attention")), (1, true));
    let bytes = model.to_bytes().unwrap();
    let announced = Request { graph: facts, ..request(folder.clone(), bytes.clone(), 75) };
    let error = compile(announced.clone(), &mut Listener::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("1 FP32 matrix product") && error.message().contains("7.5"), "{error}");
    assert!(error.hint_text().unwrap().contains("FP16"));
    let mut newer = announced;
    newer.order.compute_capability = 86;
    compile(newer, &mut Listener::default()).unwrap();

    let error = compile(request(folder.clone(), bytes, 75), &mut Listener::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.hint_text().unwrap_or_default().contains("cannot do that for compute capability 7.5"), "{error}");
    compile(request(folder, convolution().to_bytes().unwrap(), 75), &mut Listener::default()).unwrap();
}

#[test]
fn a_capability_that_the_library_does_not_know_is_refused_by_it_too() {
    let Some(folder) = test_inputs::tensorrt_rtx() else { return };
    for capability in [87, 90] {
        let error =
            compile(request(folder.clone(), convolution().to_bytes().unwrap(), capability), &mut Listener::default());
        let error = error.unwrap_err();
        assert!(error.message().contains("does not build for compute capability"), "{error}");
    }
}

/// TensorRT 8 gets an FP16 graph as floats with the tail named that must stay there; every other family gets the graph as it is.
#[test]
fn tensorrt_8_gets_the_float_form_of_a_half_graph() {
    let weight = tensor::from_f32_as_f16("w", &[4, 3, 3, 3], &[0.25; 108]);
    let cast = |name: &str, from: &str, to: &str, element: tensor::DataType| {
        make::node("Cast", name, &[from], &[to], vec![make::int("to", i64::from(element.code()))])
    };
    let nodes = vec![
        cast("in", "images", "half", tensor::DataType::F16),
        make::node("Conv", "conv", &["half", "w"], &["features"], vec![make::ints("pads", &[1, 1, 1, 1])]),
        cast("out", "features", "wide", tensor::DataType::F32),
        make::node("Softmax", "tail", &["wide"], &["y"], vec![]),
    ];
    let outputs = vec![value("y", tensor::DataType::F32, &[1, 4, 8, 8])];
    let model =
        Sample { weights: vec![weight], ..Sample::new(&[1, 3, 8, 8], nodes, outputs) }.model().to_bytes().unwrap();
    let layout = crate::engine::Layout::Raw { output: "y".into(), classes: 2, anchors: 64 };
    let of = |flavour: Flavour| {
        let order = PlanOrder { flavour, ..request(PathBuf::new(), vec![], 75).order };
        Request::new(order, &model, &layout, &[("f16".to_owned(), 1)].into()).unwrap()
    };
    let on_8 = of(Flavour::Trt8);
    assert_eq!(on_8.held, Held { float: vec!["y".to_owned()], half: vec!["features".to_owned()] });
    assert_eq!(on_8.precisions, [DataType::Half]);
    let given = Model::from_bytes(&on_8.model).unwrap();
    assert!(!crate::onnx::twin::has_half(&given));
    assert!(given.graph().node.iter().all(|node| node.op_type != "Cast"), "{:?}", given.graph().node);
    let on_10 = of(Flavour::Trt10);
    assert_eq!((on_10.held, on_10.model), (Held::default(), model.clone()));
}
