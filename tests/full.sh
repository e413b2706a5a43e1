#!/usr/bin/env bash
# Everything that is promised, at its full length: the gate, then every test with EDGE_FULL=1 (the whole simulated day,
# 100,000 clean frames without an alarm, 10,000 parts, 1,000 frames of the sample), the accuracy of the four test models on all
# 500 pictures in FP32, FP16 and INT8, longer fuzzing.
# Takes hours. Needs what .ci/run needs, and ../shared (or EDGE_SHARED) for models and pictures.
#   tests/full.sh
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(realpath "${EDGE_CI_TOOLS:-target/ci}")
shared=$(realpath "${EDGE_SHARED:-../shared}")
[ -d "$shared/models" ] || { echo "found no models in $shared, expected the folder of test inputs (EDGE_SHARED)"; exit 2; }

FUZZ_SECONDS=${FUZZ_SECONDS:-600} .ci/run

EDGE_PYTHON=$tools/venv/bin/python
EDGE_ORT_LIB=$(find "$tools/venv" -name 'libonnxruntime.so*' | sort | head -n 1)
export EDGE_PYTHON EDGE_ORT_LIB EDGE_SHARED=$shared EDGE_FULL=1 EDGE_REQUIRE=onnxruntime,cc,shared,cases
cargo test --release -- --nocapture

# mAP of models/README.md, to be met within 0.001 (mAP50) and 0.002 (mAP50-95).
work=$tools/full
rm -rf "$work"
mkdir -p "$work"
while read -r model map50 map; do
  target/release/edge-build "$shared/models/$model.onnx" --target cpu --calibration "$shared/data/pcb/calib/images" \
    -o "$work/$model.edge"
  target/release/edge-run --engine "$work/$model.edge" --source "$shared/data/pcb/val/images" --conf 0.001 --iou 0.7 \
    --output "$work/$model.jsonl"
  "$EDGE_PYTHON" "$shared/tools/eval_map.py" "$work/$model.jsonl" "$shared/data/pcb/val/labels" \
    "$shared/data/pcb/val/images" --min-map50 "$map50" --min-map "$map"
done <<'END'
pcb-yolov8n 0.9545 0.6311
pcb-yolo11n 0.9442 0.6779
pcb-yolo26n 0.9218 0.5910
pcb-yolov10n 0.9179 0.5246
END
# What FP16 and INT8 cost, on all pictures and on those that judged nothing (docs/measurements/precision.md).
tests/check_graphs.sh
tests/exports.sh > "$work/exports.md"
tests/precision_accuracy.sh "$work/precision"
echo "everything holds"
