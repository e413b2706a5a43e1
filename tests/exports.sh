#!/usr/bin/env bash
# Exports of every family that the package `ultralytics` writes, fresh and with random weights, through edge-build: as exported, in FP16 and
# in INT8 for a GPU (portable), in INT8 for a CPU; fixed ones rewritten to batch 4 too, where every slot must answer as one alone does.
# Random weights find nothing: this looks at graphs, not at accuracy. A graph with free sizes, pinned, must come out with the arithmetic in
# INT8 that the fixed one has.
#   tests/exports.sh [WORK] > docs/measurements/exports.md      some 12 minutes on 2 cores; WORK keeps exports and logs
# Needs EDGE_PYTHON with ultralytics and onnx (`pip install ultralytics onnx`), the test inputs (EDGE_SHARED, default ../shared) and the release
# programs. The original YOLOv5 and YOLOv7 come from packages of their own and are not among them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${EDGE_BUILD:-$PWD/target/release/edge-build}
python=${EDGE_PYTHON:-python3}
shared=$(realpath "${EDGE_SHARED:-../shared}")
lacks() { case ",${EDGE_REQUIRE:-}," in *,"$1",*) echo "exports: failed for want of $2" >&2; exit 1;; *) echo "exports: left out, for want of $2" >&2; exit 0;; esac; }
[ -d "$shared/data/pcb/calib/images" ] || lacks shared "$shared/data/pcb"
"$python" -c 'import ultralytics, onnx' 2>/dev/null || lacks ultralytics "the Python package ultralytics"
work=${1:-}
[ -n "$work" ] || { work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; }
mkdir -p "$work/calib" "$work/one"
work=$(realpath "$work")
export EDGE_CACHE_DIR=$work/cache
find "$shared/data/pcb/calib/images" -name '*.jpg' | LC_ALL=C sort | sed -n '1~16p' | xargs ln -sft "$work/calib"
find "$shared/data/pcb/val/images" -name '*.jpg' | LC_ALL=C sort | sed -n 1p | xargs ln -sft "$work/one"

YOLO_OFFLINE=1 "$python" - "$work" >"$work/export.log" 2>&1 <<'END' || { tail -5 "$work/export.log"; exit 1; }
import os, sys
import torch
import ultralytics
os.chdir(sys.argv[1])
with open("versions", "w") as file:
    file.write(f"ultralytics {ultralytics.__version__}, PyTorch {torch.__version__}")
forms = {"fixed": {}, "dynamic": {"dynamic": True}, "nms": {"nms": True}, "opset22": {"opset": 22}, "end2end": {"end2end": True}}
for family in ["yolov5n", "yolov8n", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolo26n"]:
    ends_itself = family in ("yolov10n", "yolo26n")
    for form, flags in forms.items():
        name = f"{family}_{form}.onnx"
        if os.path.exists(name) or (form == "end2end" and not ends_itself):
            continue
        torch.manual_seed(1)
        made = ultralytics.YOLO(family + ".yaml").export(**{"format": "onnx", "imgsz": 320, "opset": 17, "simplify": False, **flags})
        os.replace(made, name)
END

one() {
  local file=$1 name kind target batch
  name=$(basename "$file" .onnx)
  for kind in exported batch4 fp16 int8 int8-cpu; do
    [ "$kind" != batch4 ] || [ "$name" != "${name%_fixed}" ] || continue
    target=(--target h200 --portable)
    case $kind in exported | batch4 | int8-cpu) target=(--target cpu --cpu-backend rten) ;; esac
    { printf 'model = "%s"\nname = "%s"\ncalibration = "%s"\n' "$file" "$name" "$work/calib"
      case $kind in fp16 | int8 | int8-cpu)
        printf 'precision = "%s"\n[gate]\npictures = "%s"\n' "${kind%-cpu}" "$work/one"
        printf 'limits = { map50 = 1.0, recall = 1.0, false_boxes = 1000000.0 }\n' ;;
      esac
    } >"$work/$name.$kind.toml"
    rm -f "$work/$name.$kind.edge"
    batch=1
    [ "$kind" != batch4 ] || batch=4
    "$build" "$work/$name.$kind.toml" "${target[@]}" --imgsz 320 --batch "$batch" --threads 1 -o "$work/$name.$kind.edge" \
      >"$work/$name.$kind.log" 2>&1 </dev/null || echo "$name $kind: $(grep -m1 '^error' "$work/$name.$kind.log")" >>"$work/failed"
  done
}
export -f one
export work build
rm -f "$work/failed"
printf '%s\n' "$work"/*.onnx | xargs -P 2 -I{} bash -c 'one {}'

"$python" - "$work" <<'END'
import glob, os, re, sys
work = sys.argv[1]
failed = open(f"{work}/failed").read().splitlines() if os.path.exists(f"{work}/failed") else []
shares, wrong = {}, []
print(f"""# Exports of every family

`tests/exports.sh`, {open(f"{work}/versions").read()}, 320 × 320, random weights: this looks at graphs, not at accuracy. Share: convolutions'
arithmetic in INT8 for a GPU and for a CPU, before any gate.

| export | opset | layout | as exported | batch 4 | FP16 | INT8, GPU | INT8, CPU |
| --- | --- | --- | --- | --- | --- | --- | --- |""")
for path in sorted(glob.glob(f"{work}/*.onnx")):
    name = os.path.basename(path)[:-5]
    kinds = ("exported", "batch4", "fp16", "int8", "int8-cpu")
    log = {kind: open(file).read() for kind in kinds if os.path.exists(file := f"{work}/{name}.{kind}.log")}
    def find(pattern, kind="exported"):
        found = re.search(pattern, log[kind])
        return found.group(1) if found else "-"
    share = {kind: find(r"compute in INT8, ([\d.]+) %", kind) for kind in ("int8", "int8-cpu")}
    shares[name] = share
    bad = {line.split(":")[0].split(" ")[-1] for line in failed if line.startswith(name + " ")}
    if "batch4" in log and "every slot answers as batch 1 does" not in log["batch4"]:
        bad.add("batch4")
    told = ["" if kind not in log else "failed" if kind in bad else share[kind] + " %" if kind in share else "built" for kind in kinds]
    print("| " + " | ".join([name.replace("_", ", "), find(r"opset (\d+)"), find(r"layout `([\w-]+)`"), *told]) + " |")
for name, share in shares.items():
    fixed = shares.get(name.replace("_dynamic", "_fixed"))
    if share != fixed and name.endswith("_dynamic"):
        wrong.append(f"{name}: found {share}, expected {fixed}, those of the fixed graph")
print("""
`batch 4`: the fixed export rewritten, every slot's answer equal to that of one alone. Shares below 90 % for a GPU: attention stays in half (YOLO12), and
convolutions with fewer than 32 channels (YOLOv9 t). A graph with free sizes, pinned, has the share of the fixed one; the script fails where it has not.""")
if failed or wrong:
    print("\n".join(["", *failed, *wrong]))
    sys.exit(1)
END
