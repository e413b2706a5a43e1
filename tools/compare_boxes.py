#!/usr/bin/env python3
"""Compare detections box by box: every reference box from a score on must be found.

usage: compare_boxes.py REFERENCE.jsonl OURS.jsonl [--from-score 0.252] [--iou 0.99] [--corner-px 0.1]
                        [--score-tolerance 0.002] [--share 1.0]

Both files hold one object a line with `source` and `detections` (class_id, score, box [x1, y1, x2, y2] in pixels of the
source picture). A box counts as found when a box of its class has IoU >= --iou or all corners within --corner-px, and a
score within --score-tolerance. Exit 0 when at least --share of the reference boxes are found. Needs nothing but Python.
"""
import argparse, json, os, sys

a = argparse.ArgumentParser()
a.add_argument("reference"); a.add_argument("ours")
a.add_argument("--from-score", type=float, default=0.252); a.add_argument("--iou", type=float, default=0.99)
a.add_argument("--corner-px", type=float, default=0.1); a.add_argument("--score-tolerance", type=float, default=0.002)
a.add_argument("--share", type=float, default=1.0)
a = a.parse_args()

def read(path):
    rows = {}
    for line in open(path):
        row = json.loads(line)
        if row["detections"] is None:
            sys.exit(f"{row['source']}: fault, nothing to compare")
        rows[os.path.basename(row["source"])] = row["detections"]
    return rows

def iou(p, q):
    w = max(0.0, min(p[2], q[2]) - max(p[0], q[0])); h = max(0.0, min(p[3], q[3]) - max(p[1], q[1]))
    area = lambda b: (b[2] - b[0]) * (b[3] - b[1])
    union = area(p) + area(q) - w * h
    return w * h / union if union > 0 else 0.0

reference, ours = read(a.reference), read(a.ours)
missing_rows = [name for name in reference if name not in ours]
if missing_rows:
    sys.exit(f"{len(missing_rows)} pictures have no row, first {missing_rows[0]}")
total = found = 0
worst_corner = worst_score = 0.0
for name, boxes in reference.items():
    left = list(ours[name])
    for box in boxes:
        if box["score"] < a.from_score:
            continue
        total += 1
        best = None
        for other in left:
            if other["class_id"] != box["class_id"] or abs(other["score"] - box["score"]) > a.score_tolerance:
                continue
            corner = max(abs(p - q) for p, q in zip(box["box"], other["box"]))
            if (iou(box["box"], other["box"]) >= a.iou or corner <= a.corner_px) and (best is None or corner < best[0]):
                best = (corner, other)
        if best is None:
            print(f"missing: {name} class {box['class_id']} score {box['score']:.4f} box {box['box']}")
            continue
        found += 1
        worst_corner = max(worst_corner, best[0]); worst_score = max(worst_score, abs(best[1]["score"] - box["score"]))
        left.remove(best[1])
share = found / total if total else 0.0
print(f"pictures {len(reference)} reference boxes {total} found {found} share {share:.4f} worst corner {worst_corner:.4f} px worst score {worst_score:.6f}")
sys.exit(0 if total and share >= a.share else 1)
