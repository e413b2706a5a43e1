#!/usr/bin/env bash
# What FP16 and INT8 cost on the test pictures: all four models, calibrated on all 125 calibration pictures, judged by the even test
# pictures, run on all 500, scored by COCO's evaluator on all and on the odd ones. Prints the table of docs/measurements/precision.md
# and ends with 1 when a bound is missed. About 80 minutes of CPU time; JOBS (all cores) run side by side, one thread each.
#   tests/precision_accuracy.sh WORK [MODEL...]
# Needs EDGE_PYTHON, EDGE_ORT_LIB (ONNX Runtime), the test inputs (EDGE_SHARED, default ../shared), the release programs.
set -euo pipefail
cd "$(dirname "$0")/.."
export build=${EDGE_BUILD:-$PWD/target/release/edge-build}
export run=${build%build}run
work=$1
shift
models=("$@")
[ "${#models[@]}" -gt 0 ] || models=(pcb-yolov10n pcb-yolo26n pcb-yolo11n pcb-yolov8n)
shared=$(realpath "${EDGE_SHARED:-../shared}")
mkdir -p "$work"
work=$(realpath "$work")
mkdir -p "$work/even"
ls "$shared"/data/pcb/val/images/* | awk 'NR%2==0' | xargs ln -sft "$work/even"
export work shared

job() {
  local model=$1 kind=$2 name=$1.$2 flags=() half=() backend=()
  case $kind in
    fp32) flags=(--target cpu) ;;
    fp16) flags=(--target cpu --fp16) half=(--emulate-half) ;;
    int8) flags=(--target cpu --int8) ;;
    int8-gpu) flags=(--target h200 --flavour trt10 --portable --int8) half=(--emulate-half) ;;
  esac
  [ "$kind" = fp32 ] || flags+=(--gate "$work/even" --labels "$shared/data/pcb/val/labels" --report "$work")
  local engine=$work/$name.edge
  "$build" "$shared/models/$model.onnx" "${flags[@]}" --threads 1 --calibration "$shared/data/pcb/calib/images" -o "$engine"
  if [ "$kind" = int8-gpu ]; then
    # The GPU's graph, run here: half arithmetic emulated. ONNX Runtime's fused kernels round so differently from it that the known
    # answers they gave are refused.
    backend=(--cpu-backend rten)
    mkdir -p "$work/$name" && unzip -qo "$engine" model.onnx -d "$work/$name"
    engine=$work/$name.cpu.edge
    "$build" "$work/$name/model.onnx" --target cpu "${backend[@]}" --threads 1 --calibration "$shared/data/pcb/calib/images" -o "$engine"
  fi
  "$run" --engine "$engine" "${backend[@]}" --threads 1 --source "$shared/data/pcb/val/images" --conf 0.001 --iou 0.7 "${half[@]}" \
    --output "$work/$name.jsonl"
}
export -f job
for kind in int8-gpu fp16 int8 fp32; do printf "%s $kind\n" "${models[@]}"; done |
  xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'set -- $1; job "$@" >"$work/$1.$2.log" 2>&1 || echo "failed: $1 $2"' _ {}
"${EDGE_PYTHON:-python3}" tools/precision_table.py "$work" "$shared"
