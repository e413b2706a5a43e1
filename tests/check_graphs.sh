#!/usr/bin/env bash
# Every graph that --fp16 and --int8 write, held against ONNX and ONNX Runtime in Python: the checker and the runtime take it, and
# its answers there score as those of edge-run's built-in engine do. With EDGE_TENSORRT_RTX_DIR it is compiled for 8.6 and 7.5 too.
#   tests/check_graphs.sh [MODEL...]      default: the four test models
# PICTURES (20) test pictures and CALIBRATION (6) calibration pictures are used: this looks at the files, not at what the precision
# costs (tests/full.sh does). Needs EDGE_PYTHON, the test inputs (EDGE_SHARED, default ../shared) and the release programs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${EDGE_BUILD:-$PWD/target/release/edge-build}
run=${build%build}run
python=${EDGE_PYTHON:-python3}
shared=$(realpath "${EDGE_SHARED:-../shared}")
[ -d "$shared/models" ] || { echo "check_graphs: left out, for want of $shared/models"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EDGE_CACHE_DIR=$work/cache
mkdir "$work/calib" "$work/val"
pick() { printf '%s\n' "$1"/* | LC_ALL=C sort | awk -v n="$2" '{all[NR]=$0} END {for (i=1; i<=n; i++) print all[int(i*NR/n)]}'; }
pick "$shared/data/pcb/calib/images" "${CALIBRATION:-6}" | xargs ln -st "$work/calib"
pick "$shared/data/pcb/val/images" "${PICTURES:-20}" | xargs ln -st "$work/val"
labels=$shared/data/pcb/val/labels

# A gate that lets everything pass: few pictures say nothing about accuracy.
recipe() {
  cat <<END
model = "$1"
precision = "$2"
calibration = "$work/calib"
[gate]
pictures = "$work/val"
labels = "$labels"
limits = { map50 = 1.0, recall = 1.0, false_boxes = 1000.0 }
END
}
# Every rule for where INT8 goes, at work.
rules='[int8]
first = true
sums = true
head_inputs = true
few_channels = 32
depthwise = false
attention = false'

quiet() { "$@" >"$work/said" 2>&1 || { cat "$work/said"; echo "check_graphs: failed: $*"; exit 1; }; }

score() {
  "$python" "$shared/tools/eval_map.py" "$1" "$labels" "$work/val"
  "$python" tools/operating_point.py "$1" "$labels" "$work/val" | sed -n 1p
}

models=("$@")
[ "${#models[@]}" -gt 0 ] || models=(pcb-yolov8n pcb-yolo11n pcb-yolo26n pcb-yolov10n)
for model in "${models[@]}"; do
  kinds=(fp16 int8 int8-gpu)
  [ "$model" != "${models[0]}" ] || kinds+=(int8-rules)
  for kind in "${kinds[@]}"; do
    recipe "$shared/models/$model.onnx" "${kind%-*}" >"$work/recipe.toml"
    [ "$kind" != int8-rules ] || printf '%s\n' "$rules" >>"$work/recipe.toml"
    target=(--target cpu)
    [ "$kind" = "${kind%-*}" ] || target=(--target h200 --flavour trt10 --portable)
    quiet "$build" "$work/recipe.toml" "${target[@]}" -o "$work/made.edge"
    unzip -qo "$work/made.edge" model.onnx -d "$work"
    about=$("$python" - "$work/model.onnx" "$kind" <<'END'
import collections, sys
import onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
kinds = collections.Counter(onnx.TensorProto.DataType.Name(weight.data_type) for weight in model.graph.initializer)
said = ""
if sys.argv[2] == "int8-gpu":
    # The convolutions of attention stay in half, by their names in these exports; those around them do not.
    made = {output: node for node in model.graph.node for output in node.output}
    stored = {node.name: node.input[1] in made and made[node.input[1]].op_type == "DequantizeLinear"
              for node in model.graph.node if node.op_type == "Conv"}
    attention = [name for name in stored if "/attn/" in name]
    assert not any(stored[name] for name in attention), [name for name in attention if stored[name]]
    assert all(stored[name] for name in stored if "/ffn" in name), "feed-forward networks are in INT8"
    said = f", convolutions of attention in half: {len(attention)}"
print("opset", model.opset_import[0].version, "weights", dict(kinds), end=said + "\n")
END
) || { echo "check_graphs: the graph of $model $kind is not as expected"; exit 1; }
    echo "$model $kind: $about"
    # ONNX Runtime 1.32 joins Q/DQ pairs around a concatenation to an operator that knows no half scales, and then refuses its own
    # graph: the graph is run as written.
    "$python" - "$shared/tools/reference_detect.py" "$work/model.onnx" "$work/val" "$work/python.jsonl" <<'END' >/dev/null
import functools, runpy, sys
import onnxruntime
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.disable_quant_qdq", "1")
onnxruntime.InferenceSession = functools.partial(onnxruntime.InferenceSession, sess_options=options)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
END
    # Boards that are nearly all white are no fault here: so few calibration pictures do not say so.
    printf 'model = "model.onnx"\n[guard]\noff = ["over_exposed"]\n' >"$work/cpu.toml"
    quiet "$build" "$work/cpu.toml" --target cpu --cpu-backend rten --golden "$work/calib" -o "$work/cpu.edge"
    quiet "$run" --engine "$work/cpu.edge" --cpu-backend rten --source "$work/val" --conf 0.001 --output "$work/ours.jsonl"
    score "$work/python.jsonl" >"$work/python.score"
    score "$work/ours.jsonl" >"$work/ours.score"
    "$python" - "$work/python.score" "$work/ours.score" "${PICTURES:-20}" <<'END' || { cat "$work"/*.score; exit 1; }
import re, sys
numbers = [[float(x) for x in re.findall(r"(?:mAP50 |found |false boxes )([\d.]+)", open(path).read())] for path in sys.argv[1:3]]
(map_a, found_a, false_a), (map_b, found_b, false_b) = ([part[0], part[-2], part[-1]] for part in numbers)
print(f"  mAP50 {map_a:.4f} and {map_b:.4f}, found {found_a:.0f} and {found_b:.0f}, false {false_a:.0f} and {false_b:.0f}: ONNX Runtime, edge-run")
sys.exit(abs(map_a - map_b) > 0.15 / int(sys.argv[3]) or abs(found_a - found_b) > 2 or abs(false_a - false_b) > 5)
END
    # The CPU's form keeps its attention in float, which RTX does not build for 7.5 (case P05).
    if [ -n "${EDGE_TENSORRT_RTX_DIR:-}" ] && [ "$kind" != int8 ]; then
      for capability in 8.6 7.5; do
        EDGE_TENSORRT_DIR=$EDGE_TENSORRT_RTX_DIR quiet "$build" "$work/model.onnx" --target "$capability" --flavour rtx \
          --gpu-budget 4GiB --golden "$work/calib" -o "$work/plan.edge"
        unzip -l "$work/plan.edge" | grep 'plans/.*\.plan' >/dev/null || { echo "check_graphs: no plan for $capability"; exit 1; }
        echo "  compiled for $capability by TensorRT-RTX"
      done
    fi
  done
done
echo "check_graphs: all as expected"
