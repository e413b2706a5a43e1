#!/usr/bin/env python3
"""Writes pictures of every kind and OpenCV's reading of each (NAME.raw, RGB bytes) into a folder, for the test
`opencv_reads_the_same` in src/camera/pictures_tests.rs.

    tools/compare_pictures.py DIR PHOTO
    EDGE_PICTURES=DIR cargo test --lib opencv -- --ignored --nocapture

Needs numpy, opencv-python and pillow.
"""
import os
import sys

import cv2
import numpy as np
from PIL import Image


def write_kinds(folder, name, picture, random):
    def save(kind, image, **options):
        image.save(f"{folder}/{name}_{kind}", **options)

    pixels = np.asarray(picture)
    height, width = pixels.shape[:2]
    for quality in (50, 90, 98):
        for subsampling in (0, 1, 2):
            save(f"q{quality}_s{subsampling}.jpg", picture, quality=quality, subsampling=subsampling)
    save("prog.jpg", picture, progressive=True, quality=85)
    save("progopt.jpg", picture, progressive=True, optimize=True, subsampling=2)
    save("rst.jpg", picture, restart_marker_blocks=7)
    save("progrst.jpg", picture, progressive=True, restart_marker_rows=1)
    save("gray.jpg", picture.convert("L"))
    save("grayprog.jpg", picture.convert("L"), progressive=True)
    save("cmyk.jpg", picture.convert("CMYK"))
    alpha = random.integers(0, 255, (height, width, 1), np.uint8)
    save("rgb.png", picture)
    save("rgba.png", Image.fromarray(np.concatenate([pixels, alpha], axis=2)))
    for mode in ("P", "L", "1", "LA"):
        save(f"{mode}.png", picture.convert(mode))
    save("palette4.png", picture.quantize(11), bits=4)
    save("palette_alpha.png", picture.quantize(16), transparency=3)
    for kind, channels in (("gray16", ()), ("rgb16", (3,)), ("rgba16", (4,))):
        deep = random.integers(0, 65535, (height, width, *channels), np.uint16)
        cv2.imwrite(f"{folder}/{name}_{kind}.png", deep)
        if kind != "rgba16":
            cv2.imwrite(f"{folder}/{name}_{kind}.tif", deep)
    for mode in ("RGB", "P", "L", "1", "RGBA"):
        save(f"{mode}.bmp", picture.convert(mode))
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        save(f"{compression}.tif", picture, compression=compression)
    for mode in ("L", "RGBA", "CMYK"):
        save(f"{mode}.tif", picture.convert(mode))
    save("g4.tif", picture.convert("1"), compression="group4")
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = turn
        save(f"exif{turn}.jpg", picture, exif=exif, quality=95)
        save(f"exif{turn}.png", picture, exif=exif)


def main():
    folder, photo = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    random = np.random.default_rng(1)
    write_kinds(folder, "photo", Image.open(photo).convert("RGB"), random)
    write_kinds(folder, "noise", Image.fromarray(random.integers(0, 255, (123, 87, 3), np.uint8)), random)
    for name in sorted(os.listdir(folder)):
        picture = None if name.endswith(".raw") else cv2.imread(f"{folder}/{name}", cv2.IMREAD_COLOR)
        if picture is not None:
            cv2.cvtColor(picture, cv2.COLOR_BGR2RGB).tofile(f"{folder}/{name}.raw")


main()
