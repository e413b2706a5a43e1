#!/usr/bin/env python3
"""Everything that must fail on a GPU machine, one line each: command, exit code, what was said.

usage: load_failures.py EDGE_BUILD EDGE_RUN BUNDLE.edge PORTABLE.edge MODEL.onnx
BUNDLE holds a plan for this machine's GPU and its TensorRT 8, PORTABLE none. EDGE_TENSORRT_DIR names TensorRT's folder. Needs cc
for the libraries of other versions. Prints Markdown; exit code 1 when a command ends with another code than expected.
"""
import json, os, shutil, subprocess, sys, tempfile, zipfile

build, run, bundle, portable, model = (os.path.abspath(path) for path in sys.argv[1:6])
here = os.environ["EDGE_TENSORRT_DIR"]
folder = tempfile.mkdtemp(prefix="load-failures-")
wrong = 0


def rewrite(name, change):
    """The bundle with `change(entry name, bytes) -> bytes or None` applied, stored as the program stores it."""
    path = os.path.join(folder, name)
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for entry in old.namelist():
            data = change(entry, old.read(entry))
            if data is not None:
                new.writestr(zipfile.ZipInfo(entry), data)
    return path


def facts(**changes):
    def change(entry, data):
        if entry.startswith("plans/") and entry.endswith(".json"):
            return json.dumps({**json.loads(data), **changes}).encode()
        return data

    return change


def plan(edit):
    return lambda entry, data: edit(data) if entry.endswith(".plan") else data


def flip(at):
    def edit(data):
        data = bytearray(data)
        data[at if at >= 0 else len(data) // 2] ^= 0xFF
        return bytes(data)

    return edit


def library(name, source):
    """A folder with TensorRT's libraries, one of them replaced by `source`; None leaves it out."""
    target = tempfile.mkdtemp(dir=folder)
    for file in os.listdir(here):
        os.symlink(os.path.join(here, file), os.path.join(target, file))
    path = os.path.join(target, name)
    os.remove(path)
    if source is not None:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", path, "-"], input=source.encode(), check=True)
    return target


def show(what, expected, command, **environment):
    global wrong
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        wrong += 1
        print(f"| {what} | **still running after 60 s** | |", flush=True)
        return
    said = [line for line in done.stderr.splitlines() if "error" in line or "hint" in line or "way out" in line]
    said = " ".join(said or done.stderr.splitlines()[-2:])
    for path in (folder + "/", os.path.dirname(bundle) + "/", os.path.dirname(build) + "/", here):
        said = said.replace(path, "")
    good = done.returncode == expected
    wrong += not good
    mark = "" if good else f" (**expected {expected}**)"
    print(f"| {what} | {said.replace('|', '/')[:420]} | {done.returncode}{mark} |", flush=True)


version = "int getInferLibVersion(void) { return %d; }"
parser = "int getNvOnnxParserVersion(void) { return 0; }"
frame = ["--source", "sim:", "--frames", "1", "--listen", "none", "--output", os.path.join(folder, "rows.jsonl")]
print("| what | said | exit code |\n| --- | --- | ---: |")
show("bundle without a plan", 3, [run, "--engine", portable, *frame])
show("plan of another compute capability", 3, [run, "--engine", rewrite("cc.edge", facts(compute_capability="7.5")), *frame])
show("plan of another CPU architecture", 3, [run, "--engine", rewrite("arch.edge", facts(architecture="aarch64")), *frame])
show("plan of another TensorRT version", 3, [run, "--engine", rewrite("version.edge", facts(tensorrt="8.5.2")), *frame])
show("plan of TensorRT-RTX, which refuses this GPU", 10, [run, "--engine", rewrite("rtx.edge", facts(flavour="rtx", tensorrt="1.7.1")), *frame])
show("plan of another bundle", 3, [run, "--engine", rewrite("other.edge", facts(bundle="0" * 64)), *frame])
show("plan cut in the bundle", 3, [run, "--engine", rewrite("cut.edge", plan(lambda data: data[: len(data) // 2])), *frame])
show("flipped byte in the weights of the plan in the bundle", 3, [run, "--engine", rewrite("weights.edge", plan(flip(-1))), *frame])
show("empty plan in the bundle", 3, [run, "--engine", rewrite("empty.edge", plan(lambda data: b"")), *frame])
show("flipped byte in the graph of the bundle", 3, [run, "--engine", rewrite("graph.edge", lambda entry, data: flip(-1)(data) if entry == "model.onnx" else data), *frame])
with open(bundle, "rb") as file:
    whole = file.read()
with open(os.path.join(folder, "file.edge"), "wb") as file:
    file.write(whole[: len(whole) // 2])
show("bundle cut at half", 3, [run, "--engine", os.path.join(folder, "file.edge"), *frame])
show("budget below the weights", 4, [run, "--engine", bundle, "--gpu-budget", "1MiB", *frame])
show("budget below the arena", 4, [run, "--engine", bundle, "--gpu-budget", "20MiB", *frame])
show("budget that nothing fits, before any work (P07)", 4, [build, "finish", portable, "--gpu-budget", "64MiB"])
show("the same while building", 4, [build, model, "--target", "h200", "--flavour", "trt8", "--gpu-budget", "64MiB", "-o", os.path.join(folder, "p07.edge")])
empty = tempfile.mkdtemp(dir=folder)
none = {"EDGE_TENSORRT_DIR": empty, "LD_LIBRARY_PATH": empty}
show("TensorRT missing", 10, [run, "--engine", bundle, *frame], **none)
show("TensorRT missing while finishing", 10, [build, "finish", portable], **none)
for what, number in [("TensorRT too old (7.2.3)", 7203), ("TensorRT of an unknown major version (99)", 990000)]:
    other = library("libnvinfer.so.8", version % number)
    show(what, 10, [run, "--engine", bundle, *frame], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
other = library("libnvinfer.so.8", "int nothing;")
show("a library that is not TensorRT", 10, [run, "--engine", bundle, *frame], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
other = library("libnvonnxparser.so.8", None)
show("ONNX parser missing", 10, [build, "finish", portable], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
other = library("libnvonnxparser.so.8", parser)
show("ONNX parser of another version", 10, [build, "finish", portable], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
show("no GPU visible", 10, [run, "--engine", bundle, *frame], CUDA_VISIBLE_DEVICES="")
show("TensorRT-RTX for a GPU that it does not build for", 10, [build, "finish", portable, "--flavour", "rtx"])
file = os.path.join(folder, "p.plan")
with zipfile.ZipFile(bundle) as archive:
    good = archive.read(next(name for name in archive.namelist() if name.endswith(".plan")))
names = os.path.join(folder, "names.txt")
with open(names, "w") as text:
    text.write("\n".join("abcdef") + "\n")
for what, code, data in [
    ("engine file cut at half", 3, good[: len(good) // 2]),
    ("empty engine file", 3, b""),
    ("flipped byte in an engine file's head", 3, flip(9)(good)),
    ("engine file that names TensorRT 10", 10, good[:24] + b"\x0a" + good[25:]),
]:
    with open(file, "wb") as text:
        text.write(data)
    show("wrap: " + what, code, [build, "wrap", file, "--names", names, "-o", os.path.join(folder, "w.edge")])
shutil.rmtree(folder)
sys.exit(1 if wrong else 0)
