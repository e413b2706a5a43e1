#!/usr/bin/env python3
"""Compare results of edge-run with reference rows, box by box.

usage: compare_detections.py RESULTS.jsonl REFERENCE.jsonl [--share 0.98] [--overlap 0.99] [--corners 0.1] [--score 0.002]

Every reference box of score 0.252 or more must have a box of the same class in the result of the same picture, with an
overlap (IoU) of at least --overlap or all corners within --corners pixels, and a score within --score. At least --share of
them must (JPEG decoders differ by one grey level, which moves a few scores). Needs Python alone.
"""
import argparse
import json
import sys

LEAST_SCORE = 0.252  # boxes at the threshold of 0.25 may fall on either side of it


def rows(path):
    with open(path) as lines:
        return {row["source"].rsplit("/", 1)[-1]: row["detections"] for row in map(json.loads, lines)}


def overlap(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    area = lambda box: (box[2] - box[0]) * (box[3] - box[1])
    return both / (area(a) + area(b) - both + 1e-9)


def same(wanted, found, limits):
    if wanted["class_id"] != found["class_id"] or abs(wanted["score"] - found["score"]) > limits.score:
        return False
    a, b = wanted["box"], found["box"]
    return overlap(a, b) >= limits.overlap or max(abs(x - y) for x, y in zip(a, b)) <= limits.corners


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("reference")
    parser.add_argument("--share", type=float, default=0.98)
    parser.add_argument("--overlap", type=float, default=0.99)
    parser.add_argument("--corners", type=float, default=0.1)
    parser.add_argument("--score", type=float, default=0.002)
    limits = parser.parse_args()
    results, reference = rows(limits.results), rows(limits.reference)
    missing = sorted(reference.keys() - results.keys())
    if missing:
        sys.exit(f"{limits.results}: no row for {len(missing)} pictures, the first is {missing[0]}")
    wanted = right = 0
    for source, boxes in sorted(reference.items()):
        if results[source] is None:
            sys.exit(f"{source}: the result is a fault")
        for box in boxes:
            if box["score"] >= LEAST_SCORE:
                wanted += 1
                found = any(same(box, other, limits) for other in results[source])
                right += found
                if not found:
                    print(f"{source}: not found: {box}")
    share = right / wanted if wanted else 0.0
    print(f"{right} of {wanted} reference boxes found ({share:.4f}), at least {limits.share} asked")
    sys.exit(share < limits.share)


if __name__ == "__main__":
    main()
