//! S09: a batch-1 export rewritten to more pictures answers in every slot as it did alone, in another program too.

use crate::common::{cases, shared};
use edge_trt::build::{self, Options};
use edge_trt::onnx::{Model, shapes};
use std::process::Command;

const MODELS: [&str; 4] = ["pcb-yolov8n", "pcb-yolo11n", "pcb-yolo26n", "pcb-yolov10n"];

/// Runs both files in ONNX Runtime on different pictures and compares whole output tensors, slot by slot.
const COMPARE: &str = "
import sys, numpy, onnx, onnxruntime
batch = int(sys.argv[3])
onnx.checker.check_model(onnx.load(sys.argv[2]), full_check=True)
one, many = (onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider']) for path in sys.argv[1:3])
assert many.get_inputs()[0].shape == [batch, 3, 640, 640] and many.get_outputs()[0].shape == [batch, 10, 8400]
rng = numpy.random.default_rng(7)
coarse = rng.random((batch, 3, 20, 20), dtype=numpy.float32)
pictures = numpy.kron(coarse, numpy.ones((1, 1, 32, 32), dtype=numpy.float32)).astype(numpy.float32)
name = one.get_inputs()[0].name
alone = [one.run(None, {name: pictures[slot:slot + 1]})[0][0] for slot in range(batch)]
together = many.run(None, {name: pictures})[0]
for slot in range(batch):
    box = numpy.abs(together[slot, :4] - alone[slot][:4]).max()
    score = numpy.abs(together[slot, 4:] - alone[slot][4:]).max()
    assert box < 0.05 and score < 1e-4, (slot, box, score)
    other = numpy.abs(alone[slot] - alone[(slot + 1) % batch]).max()
    assert other > 1, 'the pictures are answered alike'
";

#[test]
fn all_four_exports_run_as_batches_and_onnx_runtime_agrees() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let path = shared.join(format!("models/{name}.onnx"));
        for batch in [2, 8] {
            let options = Options { batch: Some(batch), ..Options::default() };
            let prepared = build::prepare(Model::read(&path).unwrap(), &options).unwrap();
            assert_eq!(prepared.input.batch, batch);
            let said = prepared.decided.join("\n");
            assert!(said.contains(&format!("batch rewritten from 1 to {batch}")), "{name}: {said}");
            let written = Model::from_bytes(&prepared.model_bytes).unwrap();
            let inferred = shapes::infer(&written).unwrap();
            assert_eq!(inferred.fixed("output0").unwrap(), [i64::from(batch), 10, 8400]);
            let Some(python) = cases::python() else { continue };
            let file = folder.path().join("many.onnx");
            std::fs::write(&file, &prepared.model_bytes).unwrap();
            let output = Command::new(python)
                .args(["-c", COMPARE])
                .args([&path, &file])
                .arg(batch.to_string())
                .output()
                .unwrap();
            assert!(output.status.success(), "{name} {batch}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn batches_beyond_the_largest_and_smaller_than_the_export_are_refused() {
    let Some(shared) = shared() else { return };
    let path = shared.join("models/pcb-yolov8n.onnx");
    for batch in [33, 64] {
        let options = Options { batch: Some(batch), ..Options::default() };
        let error = build::prepare(Model::read(&path).unwrap(), &options).unwrap_err();
        assert!(error.message().contains("batch 1 fixed in the export"), "{error}");
        assert!(error.hint_text().unwrap().contains(&format!("batch={batch}")), "{error}");
    }
}
