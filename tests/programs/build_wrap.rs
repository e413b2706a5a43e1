//! `edge-build wrap`: engine files of others. Without a GPU the file is still taken apart, and the refusal says where to wrap.

use crate::workbench::Bench;

const JSON: &str = r#"{"task": "detect", "imgsz": [64, 64], "stride": 32, "names": {"0": "hole", "1": "short"}}"#;

/// A plan as far as its first bytes go.
fn plan(version: [u8; 4]) -> Vec<u8> {
    let mut plan = vec![0; 4096];
    plan[..4].copy_from_slice(b"ftrt");
    plan[24..28].copy_from_slice(&version);
    plan
}

fn of_ultralytics(json: &str, plan: &[u8]) -> Vec<u8> {
    [&u32::try_from(json.len()).unwrap().to_le_bytes()[..], json.as_bytes(), plan].concat()
}

#[test]
fn files_that_are_no_engine_are_refused_before_any_library_is_touched() {
    let bench = Bench::new();
    bench.write("empty.engine", b"");
    bench.write("text.engine", b"hello, this is no plan");
    bench.write("half.engine", &of_ultralytics(JSON, &plan([8, 6, 1, 6]))[..60]);
    bench.write("headless.engine", &of_ultralytics(JSON, b"no plan behind"));
    bench.write("names.engine", &of_ultralytics("{\"names\": {\"0\": \"a\", \"2\": \"b\"}}", &plan([8, 6, 1, 6])));
    bench.write("old.engine", &plan([7, 2, 3, 4]));
    std::fs::create_dir(bench.path("folder.engine")).unwrap();
    let before = bench.names();
    for (code, file, words) in [
        (3, "empty.engine", "neither a TensorRT plan nor an engine file of Ultralytics"),
        (3, "text.engine", "neither a TensorRT plan nor an engine file of Ultralytics"),
        (3, "half.engine", "found a header of"),
        (3, "headless.engine", "no TensorRT plan behind"),
        (3, "names.engine", "class id 2"),
        (3, "model.onnx", "edge-build MODEL.onnx"),
        (10, "old.engine", "7.2.3"),
        (2, "missing.engine", "cannot be read"),
        (2, "folder.engine", "found no file"),
    ] {
        let ran = bench.edge_build(&["wrap", file, "-o", "x.edge"]).ends_with(code);
        ran.says_one_error(&[words, file]);
        assert_eq!(bench.names(), before, "{file}");
    }
    bench.edge_build(&["wrap"]).ends_with(2);
    bench.edge_build(&["wrap", "text.engine", "--layout", "sideways"]).ends_with(2);
}

#[test]
fn without_a_driver_the_place_to_wrap_is_named() {
    if edge_trt::ffi::cuda::Driver::load().is_ok() {
        eprintln!("not tested: this machine has a CUDA driver");
        return;
    }
    let bench = Bench::new();
    bench.write("plain.plan", &plan([10, 3, 0, 26]));
    bench.write("yolo.engine", &of_ultralytics(JSON, &plan([8, 6, 1, 6])));
    let before = bench.names();
    for file in ["plain.plan", "yolo.engine"] {
        let ran = bench.edge_build(&["wrap", file]).ends_with(10);
        ran.says_one_error(&["a plan is wrapped where it runs", "found no CUDA driver", "that is to run it"]);
        assert_eq!(bench.names(), before);
    }
}
