//! P02: a dynamic export is pinned from metadata or flags, said aloud, and never to 1×1.

use crate::common::cases::{self, path, prepare, prepared};
use edge_trt::build::{self, Options};
use edge_trt::onnx::{Model, dump};
use edge_trt::units::SizePx;
use onnx_protobuf::{Message, ModelProto};

fn sized(width_px: u32, height_px: u32) -> Options {
    Options { imgsz: Some(SizePx::new(width_px, height_px)), ..Options::default() }
}

#[test]
fn metadata_pins_size_and_batch_and_both_are_said() {
    let Some(prepared) = prepared("dynhw") else { return };
    assert_eq!((prepared.input.size, prepared.input.batch), (SizePx::new(640, 640), 1));
    let said = prepared.decided.join("\n");
    assert!(
        said.contains("input size pinned to 640×640 from the model's metadata") && said.contains("batch pinned to 1"),
        "{said}"
    );
    let text = dump::graph(&Model::from_bytes(&prepared.model_bytes).unwrap());
    assert!(text.contains("input images f32 [1, 3, 640, 640]"), "{text}");
}

#[test]
fn without_metadata_the_size_is_asked_for() {
    let Some(path) = path("dynhw") else { return };
    let mut proto = ModelProto::parse_from_bytes(&std::fs::read(path).unwrap()).unwrap();
    proto.metadata_props.clear();
    let bytes = proto.write_to_bytes().unwrap();
    let error = build::prepare(Model::from_bytes(&bytes).unwrap(), &Options::default()).unwrap_err();
    assert!(error.hint_text().unwrap().contains("--imgsz"), "{error}");
    let names = (0..80).map(|class| format!("c{class}")).collect();
    let options = Options { names: Some(names), ..sized(640, 640) };
    let prepared = build::prepare(Model::from_bytes(&bytes).unwrap(), &options).unwrap();
    assert!(prepared.decided.iter().any(|said| said.contains("batch pinned to 1")), "{:?}", prepared.decided);
}

#[test]
fn a_size_that_the_stride_does_not_divide_is_refused() {
    let Some(outcome) = prepare("dynhw", &sized(641, 641)) else { return };
    let error = outcome.unwrap_err();
    assert!(error.message().contains("641×641") && error.message().contains("stride 32"), "{error}");
    assert!(error.hint_text().unwrap().contains("--imgsz 640,640"), "{error}");
}

#[test]
fn a_size_that_the_rest_of_the_graph_contradicts_is_refused() {
    let Some(outcome) = prepare("dynhw", &sized(320, 320)) else { return };
    assert!(outcome.unwrap_err().to_string().contains("2100"), "anchors of 320×320 are named");
}

#[test]
fn a_fixed_export_keeps_its_size_and_batch() {
    let Some(outcome) = prepare("ok", &sized(320, 320)) else { return };
    assert!(outcome.unwrap_err().message().contains("fixed at 640×640"));
    assert!(prepare("ok", &sized(640, 640)).unwrap().is_ok());
    for name in ["ok", "dynhw"] {
        let options = Options { batch: Some(2), ..Options::default() };
        let error = prepare(name, &options).unwrap().unwrap_err();
        // These graphs answer from constants: no result follows the pictures, so there is nothing to widen.
        assert!(error.message().contains("batch") && error.place().is_some(), "{error}");
        assert!(error.hint_text().unwrap().contains("batch=2"), "{error}");
    }
}

#[test]
fn the_pinned_graph_is_a_valid_model() {
    let (Some(prepared), Some(python)) = (prepared("dynhw"), cases::python()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pinned.onnx");
    std::fs::write(&file, &prepared.model_bytes).unwrap();
    let check = "import onnx, sys; onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)";
    let output = std::process::Command::new(python).args(["-c", check]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
