#!/usr/bin/env python3
"""What FP16 and INT8 cost: a table of every model and precision on all test pictures and on the odd ones, held to the bounds.

usage: precision_table.py WORK SHARED

WORK holds what tests/precision_accuracy.sh made: MODEL.KIND.jsonl and MODEL.KIND.report.json. SHARED is the folder of test
inputs with tools/eval_map.py. The odd pictures are those that judged no candidate. Exit code 1 when a bound is missed.
"""
import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOOLS = os.path.dirname(os.path.abspath(__file__))
# Lost mAP50 and recall at most, false boxes more at most (as a share), arithmetic in INT8 at least.
BOUNDS = {"fp16": (0.001, None, None, None), "int8": (0.005, 0.005, 0.05, 0.8), "int8-gpu": (0.005, 0.005, 0.05, 0.8)}
MODELS = ["pcb-yolov8n", "pcb-yolo11n", "pcb-yolo26n", "pcb-yolov10n"]


def score(results, labels, images, shared):
    evaluate = [sys.executable, os.path.join(shared, "tools/eval_map.py"), results, labels, images]
    said = subprocess.run(evaluate, capture_output=True, text=True, check=True).stdout
    count = [sys.executable, os.path.join(TOOLS, "operating_point.py"), results, labels, images, "--json"]
    counts = json.loads(subprocess.run(count, capture_output=True, text=True, check=True).stdout)["all"]
    map50, all_map = re.search(r"mAP50 ([\d.]+) mAP50-95 ([\d.]+)", said).groups()
    return {"map50": float(map50), "map": float(all_map), **counts}


def split(work, images, folder):
    """Puts the odd pictures, and the results for them alone, into `folder`."""
    odd = set(sorted(os.listdir(images))[0::2])
    os.mkdir(os.path.join(folder, "images"))
    for name in odd:
        os.symlink(os.path.join(images, name), os.path.join(folder, "images", name))
    for name in [name for name in os.listdir(work) if name.endswith(".jsonl")]:
        with open(os.path.join(work, name)) as lines, open(os.path.join(folder, name), "w") as out:
            out.writelines(line for line in lines if os.path.basename(json.loads(line)["source"]) in odd)


def main():
    work, shared = sys.argv[1:]
    images, labels = (os.path.join(shared, "data/pcb/val", part) for part in ("images", "labels"))
    odd = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, odd)
    split(work, images, odd)
    print("| model | precision | pictures | mAP50 | mAP50-95 | found | false boxes | arithmetic in INT8 | stays out |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    missed = []
    for model in MODELS:
        base = {}
        for kind in ["fp32", *BOUNDS]:
            name = f"{model}.{kind}.jsonl"
            if not os.path.exists(os.path.join(work, name)):
                continue
            report = {}
            if os.path.exists(os.path.join(work, f"{model}.{kind}.report.json")):
                report = json.load(open(os.path.join(work, f"{model}.{kind}.report.json")))["conversion"]
            share = report.get("int8_share")
            reasons = [layer.get("because") or "" for layer in report.get("layers", [])]
            back = dict.fromkeys(re.findall(r"(?:put back|kept): part `([^`]*)`", "\n".join(reasons)))
            for which, found in (
                ("all", score(os.path.join(work, name), labels, images, shared)),
                ("odd", score(os.path.join(odd, name), labels, os.path.join(odd, "images"), shared)),
            ):
                if kind == "fp32":
                    base[which] = found
                cells = [f"{found['map50']:.4f}", f"{found['map']:.4f}", f"{found['found']} of {found['labels']}"]
                cells += [str(found["false_boxes"]), f"{100 * share:.1f} %" if share else "", ", ".join(back)]
                print(f"| {model} | {kind} | {which} | {' | '.join(cells)} |")
                if kind == "fp32" or which not in base:
                    continue
                lost, recall, false, least = BOUNDS[kind]
                before = base[which]
                place = f"{model} {kind}, {which} pictures:"
                if round(before["map50"] - found["map50"], 4) > lost:
                    missed.append(f"{place} mAP50 {before['map50'] - found['map50']:.4f} lower, expected at most {lost}")
                fewer = before["found"] - found["found"]
                if recall is not None and fewer > recall * found["labels"]:
                    missed.append(f"{place} recall {fewer / found['labels']:.4f} lower, expected at most {recall}")
                more = found["false_boxes"] - before["false_boxes"]
                if false is not None and more > false * before["false_boxes"]:
                    missed.append(f"{place} {more} more false boxes than {before['false_boxes']}, expected at most {false:.0%}")
                if least is not None and share is not None and share < least:
                    missed.append(f"{place} {share:.1%} of the arithmetic in INT8, expected at least {least:.0%}")
    print("\n".join(["", *(f"missed: {line}" for line in missed)]) if missed else "\nevery bound holds")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
