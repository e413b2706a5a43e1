#!/usr/bin/env bash
# Puts TensorRT-RTX with its ONNX parser into a folder, from NVIDIA's wheel, and prints what to set.
# usage: tests/fetch_tensorrt_rtx.sh [FOLDER]     default: ~/.cache/edge-trt/tensorrt-rtx
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/edge-trt/tensorrt-rtx}
python=${PYTHON:-python3}
name=onnxruntime_ep_nv_tensorrt_rtx
if ! compgen -G "$folder/$name/libtensorrt_rtx.so.1.*" >/dev/null; then
    mkdir -p "$folder"
    "$python" -m pip install --quiet --no-deps --upgrade --target "$folder" "onnxruntime-ep-nv-tensorrt-rtx-cu13==0.5.0"
fi
compgen -G "$folder/$name/libtensorrt_rtx.so.1.*" >/dev/null || { echo "the wheel holds no libtensorrt_rtx.so.1" >&2; exit 1; }
echo "export EDGE_TENSORRT_RTX_DIR=$folder/$name"
