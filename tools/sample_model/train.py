#!/usr/bin/env python3
"""Trains the sample detector on rendered pictures of the simulated line and exports it. See README.md."""

import argparse
import copy
import json
import math
import pathlib
import time
from concurrent.futures import ProcessPoolExecutor

import numpy
import torch
from PIL import Image
from torch.nn import functional

from network import Detector, anchors, fused

HEIGHT, WIDTH = 224, 384
MOST_BOXES = 16
LABEL_FROM, COUNTS_FROM = 0.25, 0.5


def read_picture(path):
    """A letterboxed picture [h, w, 3] (scale to fit, centred, grey 114) and its scale and padding."""
    picture = Image.open(path).convert("RGB")
    scale = min(WIDTH / picture.width, HEIGHT / picture.height)
    width, height = round(picture.width * scale), round(picture.height * scale)
    left, top = (WIDTH - width) // 2, (HEIGHT - height) // 2
    canvas = Image.new("RGB", (WIDTH, HEIGHT), (114, 114, 114))
    try:
        import cv2

        small = cv2.resize(numpy.asarray(picture), (width, height), interpolation=cv2.INTER_LINEAR)
        canvas.paste(Image.fromarray(small), (left, top))
    except ImportError:
        canvas.paste(picture.transform((width, height), Image.Transform.AFFINE,
                                       (1 / scale, 0, 0, 0, 1 / scale, 0), Image.Resampling.BILINEAR), (left, top))
    return numpy.asarray(canvas), scale, left, top


def read_folder(folder):
    """Pictures [n, 3, h, w] uint8, boxes [n, MOST_BOXES, 4] (corners, input pixels), classes (-1: none), visible."""
    folder = pathlib.Path(folder)
    truths = [json.loads(line) for line in (folder / "truth.jsonl").open()]
    pictures = numpy.zeros((len(truths), 3, HEIGHT, WIDTH), numpy.uint8)
    boxes = numpy.zeros((len(truths), MOST_BOXES, 4), numpy.float32)
    classes = numpy.full((len(truths), MOST_BOXES), -1, numpy.int64)
    visible = numpy.zeros((len(truths), MOST_BOXES), numpy.float32)
    for index, truth in enumerate(truths):
        picture, scale, left, top = read_picture(folder / "images" / f"{truth['frame']:06}.png")
        pictures[index] = picture.transpose(2, 0, 1)
        for slot, seen in enumerate(truth["boxes"][:MOST_BOXES]):
            boxes[index, slot] = numpy.array(seen["box"]) * scale + [left, top, left, top]
            classes[index, slot] = seen["class_id"]
            visible[index, slot] = seen["visible"]
    return pictures, boxes, classes, visible


def read_all(folders, workers):
    with ProcessPoolExecutor(workers) as pool:
        sets = list(pool.map(read_folder, folders))
    return [torch.from_numpy(numpy.concatenate(part)) for part in zip(*sets)]


def augment(pictures, boxes, classes):
    """Moves, scales and mirrors the scene; changes light, colour, sharpness and noise."""
    count, device = pictures.shape[0], pictures.device
    uniform = lambda low, high: torch.rand(count, device=device) * (high - low) + low
    scale = uniform(0.88, 1.14)
    mirror_x = torch.where(torch.rand(count, device=device) < 0.5, -1.0, 1.0)
    mirror_y = torch.where(torch.rand(count, device=device) < 0.5, -1.0, 1.0)
    shift_x, shift_y = uniform(-0.1, 0.1), uniform(-0.14, 0.14)
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0], theta[:, 0, 2] = mirror_x / scale, shift_x
    theta[:, 1, 1], theta[:, 1, 2] = mirror_y / scale, shift_y
    grid = functional.affine_grid(theta, list(pictures.shape), align_corners=False)
    pictures = functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
    size = torch.tensor([WIDTH, HEIGHT], device=device, dtype=torch.float32)
    corners = boxes.view(count, -1, 2, 2) / size * 2 - 1
    move = torch.stack((shift_x, shift_y), -1)[:, None, None]
    mirror = torch.stack((mirror_x, mirror_y), -1)[:, None, None]
    corners = (corners - move) * mirror * scale[:, None, None, None]
    corners = (corners + 1) / 2 * size
    corners = torch.cat((corners.amin(2), corners.amax(2)), -1)
    inside = torch.cat((corners[..., :2].clamp(min=0).minimum(size), corners[..., 2:].clamp(min=0).minimum(size)), -1)
    area = lambda box: (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])
    cut = area(inside) / area(corners).clamp(min=1e-6)
    classes = torch.where(cut < 0.35, -1, classes)

    wide = lambda low, high: uniform(low, high)[:, None, None, None]
    soft = functional.avg_pool2d(pictures, 3, 1, 1, count_include_pad=False)
    softness = wide(0.0, 0.6) * (torch.rand(count, 1, 1, 1, device=device) < 0.4)
    pictures = pictures + (soft - pictures) * softness
    tint = 1 + (torch.rand(count, 3, 1, 1, device=device) - 0.5) * 0.14
    pictures = pictures * wide(0.6, 1.25) * tint + wide(-0.03, 0.03)
    pictures = pictures + torch.randn_like(pictures) * wide(0.0, 0.022)
    return pictures.clamp(0, 1), inside, classes


def overlap(a, b):
    """Intersection over union of corners [..., n, 4] and [..., m, 4] -> [..., n, m]."""
    low = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = lambda box: (box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1)
    return common / (area(a)[..., :, None] + area(b)[..., None, :] - common).clamp(min=1e-6)


def corners_of(boxes):
    """[n, 4, anchors] centre and size -> [n, anchors, 4] corners."""
    boxes = boxes.transpose(1, 2)
    return torch.cat((boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2), -1)


def assign(scores, predicted, boxes, classes, centres, strides, most=9):
    """Which anchors answer for which box: those near it whose score and overlap go best together."""
    there = classes >= 0
    middle, half = (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]) / 2
    reach = torch.maximum(half[:, :, None], strides[None, None, :, None] * 0.75)
    near = ((centres[None, None] - middle[:, :, None]).abs() < reach).all(-1)
    iou = overlap(boxes, predicted)
    score = torch.gather(scores.transpose(1, 2), 1,
                         classes.clamp(min=0)[..., None].expand(-1, -1, scores.shape[1]))
    metric = (score.sqrt() * iou.pow(4) + 1e-9) * near * there[..., None]
    best = metric.topk(most, -1)
    chosen = torch.zeros_like(metric).scatter_(-1, best.indices, 1.0) * (metric > 0)
    metric = metric * chosen
    owner_metric, owner = metric.max(1)
    positive = owner_metric > 0
    own = torch.zeros_like(metric).scatter_(1, owner[:, None], 1.0) * positive[:, None]
    top_metric = (metric * own).amax(-1, keepdim=True).clamp(min=1e-9)
    top_iou = (iou * own).amax(-1, keepdim=True)
    quality = ((metric * own / top_metric) * top_iou).amax(1)
    return positive, owner, quality


def losses(model, pictures, boxes, classes, centres, strides):
    with torch.autocast(pictures.device.type, torch.bfloat16, enabled=pictures.is_cuda):
        raw_boxes, logits = model.raw(pictures)
    predicted, logits = corners_of(raw_boxes), logits.transpose(1, 2)
    with torch.no_grad():
        positive, owner, quality = assign(logits.sigmoid(), predicted, boxes, classes, centres, strides)
        wanted_class = torch.gather(classes.clamp(min=0), 1, owner)
        target = functional.one_hot(wanted_class, logits.shape[2]) * (quality * positive)[..., None]
        wanted_box = torch.gather(boxes, 1, owner[..., None].expand(-1, -1, 4))
        total = target.sum().clamp(min=1.0)
        weight = target.sum(-1)
    probability = logits.sigmoid()
    hard = torch.where(target > 0, 1.0, probability.detach().pow(1.5) * 0.75 + 0.02)
    score_loss = (functional.binary_cross_entropy_with_logits(logits, target, reduction="none") * hard).sum() / total
    low, high = torch.minimum(predicted, wanted_box), torch.maximum(predicted, wanted_box)
    inner = (high.new_tensor(0) + low[..., 2:] - high[..., :2]).clamp(min=0).prod(-1)
    area = lambda box: (box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1)
    union = (area(predicted) + area(wanted_box) - inner).clamp(min=1e-6)
    outer = (high[..., 2:] - low[..., :2]).clamp(min=0).prod(-1).clamp(min=1e-6)
    generalised = inner / union - (outer - union) / outer
    box_loss = ((1 - generalised) * weight).sum() / total
    return score_loss, box_loss


@torch.no_grad()
def settle(model, pictures, boxes, classes, passes):
    """Measures the batch norms' means and variances anew: the averaged weights never saw a batch themselves."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for chosen in torch.randperm(len(pictures), device=pictures.device).split(64)[:passes]:
        model.raw(augment(pictures[chosen].float() / 255, boxes[chosen], classes[chosen])[0])
    model.eval()


def suppress(corners, scores, classes, iou=0.5, most=100):
    keep, order = [], scores.argsort(descending=True)[:most]
    while len(order):
        first, order = order[0], order[1:]
        keep.append(first)
        same = (classes[order] == classes[first]) & (overlap(corners[first][None], corners[order])[0] > iou)
        order = order[~same]
    return torch.stack(keep) if keep else torch.zeros(0, dtype=torch.long)


@torch.no_grad()
def evaluate(model, data, thresholds, device, names):
    """Precision and recall at IoU 0.5 over whole boxes; boxes cut by the edge to less than half count neither way."""
    pictures, boxes, classes, visible = data
    right = {t: 0 for t in thresholds}
    wrong, found = dict(right), dict(right)
    missed_by_class = {t: [0] * len(names) for t in thresholds}
    wanted = 0
    for start in range(0, len(pictures), 50):
        batch = pictures[start:start + 50].to(device).float() / 255
        output = model(batch).cpu()
        for index in range(len(batch)):
            corners = corners_of(output[index:index + 1, :4])[0]
            best, kind = output[index, 4:].max(0)
            likely = best >= min(thresholds)
            corners, best, kind = corners[likely], best[likely], kind[likely]
            keep = suppress(corners, best, kind)
            corners, best, kind = corners[keep], best[keep], kind[keep]
            truth = classes[start + index] >= 0
            truth_boxes, truth_class = boxes[start + index][truth], classes[start + index][truth]
            counts = visible[start + index][truth] >= COUNTS_FROM
            wanted += int(counts.sum())
            for threshold in thresholds:
                used = torch.zeros(len(truth_boxes), dtype=torch.bool)
                for box, name in zip(corners[best >= threshold], kind[best >= threshold]):
                    fit = overlap(box[None], truth_boxes)[0] * ((truth_class == name) & ~used)
                    if len(fit) and fit.max() >= 0.5:
                        used[fit.argmax()] = True
                        if counts[fit.argmax()]:
                            right[threshold] += 1
                    else:
                        low = torch.maximum(box[:2], truth_boxes[:, :2])
                        high = torch.minimum(box[2:], truth_boxes[:, 2:])
                        covered = (high - low).clamp(min=0).prod(-1) / (box[2:] - box[:2]).prod()
                        edge = ~counts & (truth_class == name) & (covered > 0.5)
                        wrong[threshold] += int(not edge.any())
                for name in truth_class[counts & ~used]:
                    missed_by_class[threshold][name] += 1
    lines = []
    for threshold in thresholds:
        precision = right[threshold] / max(1, right[threshold] + wrong[threshold])
        recall = right[threshold] / max(1, wanted)
        missed = {name: count for name, count in zip(names, missed_by_class[threshold]) if count}
        lines.append(f"score {threshold:.2f}: precision {precision:.4f} recall {recall:.4f} missed {missed}")
    return "\n".join(lines)


def train(arguments, device, names):
    begun = time.monotonic()
    data = read_all(arguments.data, arguments.workers)
    check = read_all(arguments.check, arguments.workers)
    print(f"{len(data[0])} pictures to learn from, {len(check[0])} to check, {time.monotonic() - begun:.1f} s", flush=True)
    torch.manual_seed(1)
    data[2][data[3] < LABEL_FROM] = -1
    pictures, boxes, classes = (part.to(device) for part in data[:3])
    model = Detector(len(names)).to(device)
    if device == "cuda":
        model = model.to(memory_format=torch.channels_last)
        torch.backends.cudnn.benchmark = True
    steady = copy.deepcopy(model).eval()
    optimiser = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.02)
    centres, strides = anchors(HEIGHT, WIDTH, device)
    steps = arguments.epochs * (len(pictures) // arguments.batch)
    begun, step, done = time.monotonic(), 0, 0.0
    while done < 1.0:
        for chosen in torch.randperm(len(pictures), device=device).split(arguments.batch):
            if len(chosen) < arguments.batch or done >= 1.0:
                continue
            rate = arguments.rate * min(1.0, (step + 1) / 200) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
            for group in optimiser.param_groups:
                group["lr"] = rate
            batch = augment(pictures[chosen].float() / 255, boxes[chosen], classes[chosen])
            score_loss, box_loss = losses(model, *batch, centres, strides)
            optimiser.zero_grad(set_to_none=True)
            (score_loss + 2.0 * box_loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
            step += 1
            keep = min(0.998, step / (step + 20))
            with torch.no_grad():
                torch._foreach_lerp_(list(steady.parameters()), list(model.parameters()), 1 - keep)
            elapsed = time.monotonic() - begun
            done = max(step / steps, elapsed / arguments.seconds if arguments.seconds else 0.0)
            if step % 200 == 0:
                print(f"step {step} ({done:.0%}, {elapsed:.0f} s): score {score_loss:.3f} box {box_loss:.3f}", flush=True)
    settle(steady, pictures, boxes, classes, passes=40)
    arguments.weights.parent.mkdir(parents=True, exist_ok=True)
    torch.save(steady.cpu().state_dict(), arguments.weights)
    print(f"{step} steps in {time.monotonic() - begun:.0f} s", flush=True)
    print(evaluate(fused(steady).to(device), check, [0.2, 0.3, 0.4, 0.5, 0.6], device, names), flush=True)


def export(arguments, names):
    import onnx

    model = Detector(len(names))
    model.load_state_dict(torch.load(arguments.weights, map_location="cpu"))
    torch.onnx.export(
        fused(model), (torch.zeros(1, 3, HEIGHT, WIDTH),), str(arguments.onnx), opset_version=17,
        input_names=["images"], output_names=["output0"], dynamo=False,
    )
    exported = onnx.load(str(arguments.onnx))
    exported.producer_name, exported.producer_version = "edge-trt tools/sample_model", "1"
    metadata = {
        "description": "sample detector for the simulated line",
        "author": "edge-trt",
        "license": "MIT OR Apache-2.0",
        "task": "detect",
        "stride": "32",
        "batch": "1",
        "channels": "3",
        "imgsz": f"[{HEIGHT}, {WIDTH}]",
        "names": str(dict(enumerate(names))),
        "end2end": "False",
    }
    onnx.helper.set_model_props(exported, metadata)
    onnx.checker.check_model(exported)
    onnx.save(exported, str(arguments.onnx))
    print(f"{arguments.onnx}: {arguments.onnx.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=[], help="folders of `edge-run sim render` to learn from")
    parser.add_argument("--check", nargs="*", default=[], help="folders to check on, of other seeds")
    parser.add_argument("--weights", type=pathlib.Path, default=pathlib.Path("sample.pt"))
    parser.add_argument("--onnx", type=pathlib.Path, help="export to this file")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seconds", type=float, help="finish the schedule after this time")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--workers", type=int, default=2, help="processes that read pictures")
    parser.add_argument("--threads", type=int, help="CPU threads for training")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = "gasket bracket plate scratch crack stain missing_screw".split()
    if arguments.data:
        train(arguments, device, names)
    if arguments.onnx:
        export(arguments, names)


if __name__ == "__main__":
    main()
