#!/usr/bin/env python3
"""Count what users see: true boxes found and false boxes at a score threshold, over all classes and each class.

usage: operating_point.py RESULTS.jsonl LABELS_DIR IMAGES_DIR [--conf 0.25] [--json]

RESULTS.jsonl as edge-run writes it; labels as YOLO text. A box is right when it overlaps a free true box of its class by half
or more (IoU), the best score first; each takes the one it overlaps most. Pictures of IMAGES_DIR that no line names count as
pictures without boxes; lines about other pictures are left out. Needs Pillow.
"""
import argparse
import collections
import json
import os

from compare_detections import overlap
from PIL import Image


def labels_of(path, size):
    truth = collections.defaultdict(list)
    for line in open(path) if os.path.exists(path) else []:
        kind, x, y, w, h = map(float, line.split()[:5])
        truth[int(kind)].append(
            [(x - w / 2) * size[0], (y - h / 2) * size[1], (x + w / 2) * size[0], (y + h / 2) * size[1]]
        )
    return truth


def found_of(truth, boxes):
    free, found = list(truth), 0
    for box in sorted(boxes, key=lambda box: -box["score"]):
        best = max(free, key=lambda label: overlap(label, box["box"]), default=None)
        if best is not None and overlap(best, box["box"]) >= 0.5:
            free.remove(best)
            found += 1
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("labels")
    parser.add_argument("images")
    parser.add_argument("--conf", type=float, default=0.25)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    stem = lambda name: os.path.splitext(os.path.basename(name))[0]
    with open(given.results) as lines:
        rows = {stem(row["source"]): row["detections"] for row in map(json.loads, lines)}
    counts = collections.defaultdict(collections.Counter)
    for name in sorted(os.listdir(given.images)):
        with Image.open(os.path.join(given.images, name)) as picture:
            size = picture.size
        truth = labels_of(os.path.join(given.labels, stem(name) + ".txt"), size)
        answers = rows.get(stem(name)) or []
        boxes = collections.defaultdict(list)
        for box in answers:
            if box["score"] >= given.conf:
                boxes[box["class_id"]].append(box)
        for kind in set(truth) | set(boxes):
            found = found_of(truth[kind], boxes[kind])
            for group in (kind, "all"):
                counts[group].update(labels=len(truth[kind]), found=found, false_boxes=len(boxes[kind]) - found)
    if given.json:
        print(json.dumps({str(kind): dict(count) for kind, count in counts.items()}))
        return
    for kind in ["all"] + sorted(kind for kind in counts if kind != "all"):
        count = counts[kind]
        print(f"{kind}: labels {count['labels']} found {count['found']} false boxes {count['false_boxes']}")


if __name__ == "__main__":
    main()
