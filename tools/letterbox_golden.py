#!/usr/bin/env python3
"""Print the golden table of src/engine/letterbox/tests.rs: hashes of what OpenCV makes of a fixed pattern.

usage: letterbox_golden.py        needs: numpy opencv-python
"""
import cv2, numpy as np


def pattern(count):
    state, out = np.uint32(1), np.empty(count, np.uint8)
    with np.errstate(over="ignore"):
        for i in range(count):
            state = state * np.uint32(1664525) + np.uint32(1013904223)
            out[i] = state >> np.uint32(24)
    return out


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data.tobytes():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def letterbox(picture, width, height):
    h, w = picture.shape[:2]
    r = min(height / h, width / w)
    nw, nh = round(w * r), round(h * r)
    top, left = (height - nh) // 2, (width - nw) // 2
    out = np.full((height, width, 3), 114, np.uint8)
    scaled = picture if (nw, nh) == (w, h) else cv2.resize(picture, (nw, nh), interpolation=cv2.INTER_LINEAR)
    out[top : top + nh, left : left + nw] = scaled
    return np.ascontiguousarray(out.transpose(2, 0, 1))


def rgb(kind, w, h):
    if kind == "Rgb8":
        return pattern(w * h * 3).reshape(h, w, 3)
    if kind == "Bgr8":
        return np.ascontiguousarray(pattern(w * h * 3).reshape(h, w, 3)[:, :, ::-1])
    if kind == "Gray8":
        return cv2.cvtColor(pattern(w * h).reshape(h, w), cv2.COLOR_GRAY2RGB)
    if kind == "Nv12":
        return cv2.cvtColor(pattern(w * h * 3 // 2).reshape(h * 3 // 2, w), cv2.COLOR_YUV2RGB_NV12)
    code = cv2.COLOR_YUV2RGB_YUYV if kind == "Yuyv" else cv2.COLOR_YUV2RGB_UYVY
    return cv2.cvtColor(pattern(w * h * 2).reshape(h, w, 2), code)


CASES = [
    ("Rgb8", 192, 108, 64, 64), ("Rgb8", 81, 61, 64, 64), ("Rgb8", 30, 90, 64, 64), ("Rgb8", 128, 72, 64, 64),
    ("Rgb8", 64, 48, 64, 64), ("Rgb8", 17, 13, 64, 96), ("Rgb8", 1, 1, 32, 32), ("Rgb8", 3, 90, 32, 32),
    ("Bgr8", 81, 61, 64, 64), ("Gray8", 81, 61, 64, 64), ("Yuyv", 82, 62, 64, 64), ("Uyvy", 82, 62, 64, 64),
    ("Nv12", 82, 62, 64, 64), ("Nv12", 128, 128, 64, 64),
]
for kind, w, h, iw, ih in CASES:
    print(f"    ({kind}, [{w}, {h}], [{iw}, {ih}], 0x{fnv(letterbox(rgb(kind, w, h), iw, ih)):016x}),")
print(f"    gray of Rgb8 81x61: 0x{fnv(cv2.resize(cv2.cvtColor(rgb('Rgb8', 81, 61), cv2.COLOR_RGB2GRAY), (64, 48))):016x}")
