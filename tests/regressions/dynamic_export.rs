//! P02 and S11 on exports that compute their grid from the input: every size and batch resolves, and the written graph runs.

use crate::common::cases::python;
use edge_trt::build::{self, Options, Prepared};
use edge_trt::engine::Layout;
use edge_trt::onnx::{Model, shapes};
use edge_trt::units::SizePx;
use std::path::PathBuf;
use std::process::Command;

fn file(opset: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/models/dynamic_opset{opset}.onnx"))
}

fn prepare(opset: u32, size: Option<SizePx>, batch: Option<u32>) -> edge_trt::Result<Prepared> {
    let options = Options { imgsz: size, batch, ..Options::default() };
    build::prepare(Model::read(&file(opset))?, &options)
}

#[test]
fn every_size_and_batch_resolves() {
    for opset in [11, 17] {
        for (size, batch) in [(None, None), (Some(SizePx::new(640, 640)), None), (Some(SizePx::new(160, 32)), Some(4))]
        {
            let prepared = prepare(opset, size, batch).unwrap();
            let (width_px, height_px) = size.map_or((96, 64), |size| (size.width_px, size.height_px));
            let anchors = (width_px / 8) * (height_px / 8)
                + (width_px / 16) * (height_px / 16)
                + (width_px / 32) * (height_px / 32);
            assert_eq!(prepared.layout, Layout::Raw { output: "output0".into(), classes: 3, anchors });
            assert_eq!(prepared.input.batch, batch.unwrap_or(1));
            let inferred = shapes::infer(&Model::from_bytes(&prepared.model_bytes).unwrap()).unwrap();
            assert_eq!(inferred.unknown, []);
            let output = [prepared.input.batch, 7, anchors].map(i64::from);
            assert_eq!(inferred.fixed("output0").unwrap(), output);
        }
    }
}

#[test]
fn unpinned_the_grid_is_unknown_and_not_guessed() {
    let inferred = shapes::infer(&Model::read(&file(17)).unwrap()).unwrap();
    assert_eq!(inferred.fixed("output0"), None);
}

#[test]
fn a_size_off_the_stride_is_refused() {
    assert!(prepare(17, Some(SizePx::new(100, 64)), None).unwrap_err().message().contains("stride 32"));
}

/// The inferred shapes are those that ONNX Runtime finds, and it accepts the written graph.
#[test]
fn onnx_runtime_agrees() {
    let Some(python) = python() else { return };
    let script = "import sys, numpy, onnxruntime as ort\n\
        s = ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n\
        i = s.get_inputs()[0]\n\
        print(list(s.run(None, {i.name: numpy.zeros(i.shape, numpy.float32)})[0].shape))";
    let folder = tempfile::tempdir().unwrap();
    for opset in [11, 17] {
        let prepared = prepare(opset, Some(SizePx::new(160, 96)), Some(2)).unwrap();
        let path = folder.path().join("pinned.onnx");
        std::fs::write(&path, &prepared.model_bytes).unwrap();
        let output = Command::new(&python).args(["-c", script]).arg(&path).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("No module named 'onnxruntime'") {
            return crate::common::lacks("onnxruntime", "onnxruntime for Python");
        }
        assert!(output.status.success(), "{errors}");
        let anchors = prepared.layout.capacity();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("[2, 7, {anchors}]"));
    }
}
