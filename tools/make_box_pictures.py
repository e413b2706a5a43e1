#!/usr/bin/env python3
"""Pictures for the box-by-box comparison, without a JPEG decoder in between.

usage: make_box_pictures.py IMAGES_DIR OUT [COUNT]
Writes OUT/png (the first COUNT pictures, default 50, decoded once) and OUT/resampled (the same at 1920x1080, 813x611 and
300x900 in turn, tinted so that the channels differ). Needs: opencv-python numpy
"""
import os, sys
import cv2, numpy as np

images, out, count = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 50
for name in ("png", "resampled"):
    os.makedirs(os.path.join(out, name), exist_ok=True)
sizes = [(1920, 1080), (813, 611), (300, 900)]
for number, name in enumerate(sorted(os.listdir(images))[:count]):
    picture = cv2.imread(os.path.join(images, name))
    stem = os.path.splitext(name)[0] + ".png"
    cv2.imwrite(os.path.join(out, "png", stem), picture)
    tint = np.array([0.92, 1.0, 0.85]) if number % 2 else np.array([1.0, 0.9, 0.95])
    tinted = np.clip(picture * tint + number % 7, 0, 255).astype(np.uint8)
    cv2.imwrite(os.path.join(out, "resampled", stem), cv2.resize(tinted, sizes[number % 3], interpolation=cv2.INTER_CUBIC))
print(f"{count} pictures in {out}/png and {out}/resampled")
