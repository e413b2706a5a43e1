#!/usr/bin/env python3
"""Time OpenCV's resize + the same normalisation in NumPy on one core: what `cargo bench --bench engine` is compared with.

usage: bench_letterbox.py        needs: numpy opencv-python. Bound: ours takes at most twice this time.
"""
import time
import cv2
import numpy as np

cv2.setNumThreads(1)
picture = np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), np.uint8)


def once():
    out = np.full((640, 640, 3), 114, np.uint8)
    out[140:500] = cv2.resize(picture, (640, 360), interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(out[:, :, ::-1].transpose(2, 0, 1)[None], dtype=np.float32) / 255


for _ in range(5):
    once()
wall, cpu = [], []
for _ in range(100):
    start, start_cpu = time.perf_counter(), time.process_time()
    once()
    wall.append((time.perf_counter() - start) * 1e3)
    cpu.append((time.process_time() - start_cpu) * 1e3)
print(f"OpenCV {cv2.__version__} + NumPy {np.__version__}: wall min {min(wall):.2f} median {sorted(wall)[50]:.2f} ms, "
      f"CPU min {min(cpu):.2f} median {sorted(cpu)[50]:.2f} ms")
