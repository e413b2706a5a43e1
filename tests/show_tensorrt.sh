#!/usr/bin/env bash
# What edge-build does with real TensorRT libraries on a machine without a GPU, command by command.
# Needs EDGE_TENSORRT_RTX_DIR (tests/fetch_tensorrt_rtx.sh) and the test inputs (EDGE_SHARED, default ../shared);
# EDGE_TENSORRT_10_DIR and EDGE_TENSORRT_8_DIR add the families that need a driver; without the first, mvn fetches it
# within EDGE_FETCH_LIMIT (default 300s; 0 leaves it out).
set -euo pipefail
cd "$(dirname "$0")/.."
program=${EDGE_BUILD:-$PWD/target/debug/edge-build}
model=${EDGE_SHARED:-../shared}/models/pcb-yolov8n.onnx
[ -f "$model" ] || { echo "show_tensorrt: left out, for want of $model"; exit 0; }
: "${EDGE_TENSORRT_RTX_DIR:?run tests/fetch_tensorrt_rtx.sh}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EDGE_CACHE_DIR=$work/cache
has_driver=$(ldconfig -p 2>/dev/null | grep 'libcuda\.so\.1' >/dev/null && echo yes || true)

# expect CODE WORDS COMMAND...: runs it and compares exit code and message.
expect() {
  local code=$1 words=$2 found=0
  shift 2
  printf '$ %s\n' "${*//"${program%build}"/edge-}"
  "$@" >"$work/said" 2>&1 || found=$?
  tail -n 6 "$work/said" | cut -c1-220
  if [ "$found" != "$code" ] || ! grep -q -- "$words" "$work/said"; then
    cat "$work/said"
    echo "show_tensorrt: found exit code $found, expected $code and the words: $words"
    exit 1
  fi
}

for target in a2 8.0 8.9 12.0 7.5; do
  EDGE_TENSORRT_DIR=$EDGE_TENSORRT_RTX_DIR expect 0 'compiling: TensorRT-RTX 1\.' "$program" "$model" \
    --target "$target" --flavour rtx --workspace 1GiB --gpu-budget 4GiB -o "$work/$target.edge"
  # Without -q: grep must read to the end, or unzip dies of a closed pipe and the pipeline with it.
  unzip -l "$work/$target.edge" | grep 'plans/.*\.plan' >/dev/null || { echo "no plan in $target.edge"; exit 1; }
done

if [ -z "$has_driver" ]; then
  expect 10 'portable' "$program" "$model" --target orin-nano-8gb -o "$work/orin.edge"
  grep -q 'runner' "$work/said"
  expect 0 'edge-build finish' "$program" "$model" --target orin-nano-8gb --portable -o "$work/orin.edge"
  expect 10 'found no CUDA driver' "$program" finish "$work/orin.edge"

  ten=${EDGE_TENSORRT_10_DIR:-}
  limit=${EDGE_FETCH_LIMIT:-300s}
  if [ -z "$ten" ] && [ "$limit" != 0 ] && command -v mvn >/dev/null; then
    ten=${EDGE_CI_TOOLS:-$PWD/target/ci}/tensorrt-10
    timeout "$limit" tests/fetch_tensorrt_10.sh "$ten" || { echo "TensorRT 10 not fetched within $limit"; ten=''; }
  fi
  for family in "10:$ten" "8:${EDGE_TENSORRT_8_DIR:-}"; do
    folder=${family#*:}
    if [ -z "$folder" ]; then
      echo "LEFT OUT: TensorRT ${family%%:*} without a driver, for want of its libraries"
      continue
    fi
    EDGE_TENSORRT_DIR=$folder expect 10 'this machine has no GPU' "$program" "$model" --target orin-nano-8gb \
      --flavour "trt${family%%:*}" -o "$work/real.edge"
    EDGE_TENSORRT_DIR=$folder expect 10 'found no CUDA driver' "${program%build}run" doctor --flavour "trt${family%%:*}"
    grep -q "^TensorRT ${family%%:*} .* in $folder" "$work/said" || { cat "$work/said"; echo "the library was not found"; exit 1; }
    EDGE_TENSORRT_DIR=$folder expect 10 'found no CUDA driver' "$program" finish "$work/orin.edge"
    [ ! -e "$work/real.edge" ] || { echo "a refused build left a file"; exit 1; }
  done
else
  echo "LEFT OUT: what a machine without a driver is told, since this one has a driver"
fi
echo "show_tensorrt: all as expected"
