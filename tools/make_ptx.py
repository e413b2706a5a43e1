#!/usr/bin/env python3
"""Make the PTX beside each src/gpu/kernels/*.cu again, or check that it is what the source gives.

usage: make_ptx.py [--check] [--nvrtc FOLDER]

Needs NVRTC 11.8: `pip install --target nvrtc nvidia-cuda-nvrtc-cu11==11.8.89`, then `--nvrtc nvrtc/nvidia/cuda_nvrtc/lib`
(or EDGE_NVRTC_DIR). Later versions refuse compute_72 or write a PTX version that the driver of JetPack 5 refuses.
"""
import argparse
import ctypes
import os
import pathlib
import re
import sys

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "src/gpu/kernels"
OPTIONS = [b"--gpu-architecture=compute_72", b"--std=c++14"]
# What a CUDA 11.4 driver takes; the kernels use no instruction of a later one.
PTX_VERSION = "7.4"


def load(folder):
    path = pathlib.Path(folder) / "libnvrtc.so.11.2"
    # The compiler opens its built-in headers by name.
    ctypes.CDLL(str(pathlib.Path(folder) / "libnvrtc-builtins.so.11.8"), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(path))
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) != (11, 8):
        sys.exit(f"found NVRTC {major.value}.{minor.value}, expected 11.8")
    return library


def compile_one(library, source):
    program = ctypes.c_void_p()
    text = source.read_bytes()
    code = library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
    if code:
        sys.exit(f"{source}: NVRTC error {code}")
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    code = library.nvrtcCompileProgram(program, len(OPTIONS), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    if log.value.strip():
        print(log.value.decode(), file=sys.stderr)
    if code:
        sys.exit(f"{source}: does not compile")
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, ptx)
    made = ptx.value.decode()
    made, versions = re.subn(r"(?m)^\.version \d+\.\d+$", f".version {PTX_VERSION}", made)
    if versions != 1 or ".target sm_72" not in made:
        sys.exit(f"{source}: unexpected PTX header")
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def bare(ptx):
    """Without comments and empty lines."""
    lines = (re.sub(r"//.*", "", line).rstrip() for line in ptx.splitlines())
    return [line for line in lines if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--nvrtc", default=os.environ.get("EDGE_NVRTC_DIR"))
    arguments = parser.parse_args()
    if not arguments.nvrtc:
        sys.exit("name NVRTC's folder with --nvrtc or EDGE_NVRTC_DIR")
    library = load(arguments.nvrtc)
    wrong = 0
    for source in sorted(KERNELS.glob("*.cu")):
        made, target = compile_one(library, source), source.with_suffix(".ptx")
        if not arguments.check:
            target.write_text(made)
            print(f"{target.name}: {len(made)} bytes")
        elif not target.exists() or bare(target.read_text()) != bare(made):
            print(f"{target.name} is not what {source.name} gives: run tools/make_ptx.py", file=sys.stderr)
            wrong = 1
        else:
            print(f"{target.name}: as made from {source.name}")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
