#!/usr/bin/env python3
"""Everything that must fail on a GPU machine, one line each: command, exit code, what was said.

usage: load_failures.py EDGE_BUILD EDGE_RUN BUNDLE.edge PORTABLE.edge MODEL.onnx [--other BUNDLE2.edge --other-dir FOLDER]
                        [--lean LIBRARY ...] [--rtx-dir FOLDER --rtx BUNDLE3.edge]
BUNDLE holds a plan for this machine's GPU and its TensorRT 8 or 10, PORTABLE none. EDGE_TENSORRT_DIR names TensorRT's folder. Needs cc
for the libraries of other versions. `--other`: a bundle with a plan of the other family, and its libraries: each is given the other's
plan for real. `--lean`: real lean runtimes (`libnvinfer_lean.so.N`), each given BUNDLE's plan under the name of the whole library.
`--rtx`: a bundle with a plan of TensorRT-RTX for another GPU. With an edge-run built with `--features inject` a kernel is made to trap
in mid-run. Prints Markdown; exit code 1 when a command ends with another code than expected.
"""
import argparse, ctypes, json, os, shutil, subprocess, sys, tempfile, zipfile

flags = argparse.ArgumentParser()
for name in ("build", "run", "bundle", "portable", "model"):
    flags.add_argument(name, type=os.path.abspath)
for name in ("--other", "--other-dir", "--rtx", "--rtx-dir"):
    flags.add_argument(name, type=os.path.abspath)
flags.add_argument("--lean", type=os.path.abspath, nargs="*", default=[])
given = flags.parse_args()
build, run, bundle, portable, model = given.build, given.run, given.bundle, given.portable, given.model
here = os.environ["EDGE_TENSORRT_DIR"]
folder = tempfile.mkdtemp(prefix="load-failures-")
wrong = 0


def rewrite(name, change, source=bundle):
    """The bundle with `change(entry name, bytes) -> bytes or None` applied, stored as the program stores it."""
    path = os.path.join(folder, name)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
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


def facts_of(source):
    with zipfile.ZipFile(source) as archive:
        return next(json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("plans/") and name.endswith(".json"))


def relabelled(name, source, flavour, version, capability=None):
    """A copy of `source` whose plan says that it is of another TensorRT, so that the real one gets it."""
    old = facts_of(source)
    new = {**old, "flavour": flavour, "tensorrt": version, "compute_capability": capability or old["compute_capability"]}
    label = lambda of: f"plans/{of['flavour']}-{of['tensorrt']}-cc{of['compute_capability']}."
    path = os.path.join(folder, name)
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as copy:
        for entry in archive.namelist():
            data = archive.read(entry)
            if entry.startswith("plans/"):
                data = json.dumps(new).encode() if entry.endswith(".json") else data
                entry = entry.replace(label(old), label(new))
            copy.writestr(zipfile.ZipInfo(entry), data)
    return path


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
    if os.path.lexists(path):
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


mine = facts_of(bundle)
major = mine["tensorrt"].split(".")[0]
core, onnx = f"libnvinfer.so.{major}", f"libnvonnxparser.so.{major}"
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
show("budget that nothing fits, before any work (P07)", 4, [build, "finish", portable, "--flavour", mine["flavour"], "--gpu-budget", "64MiB"])
show("the same while building", 4, [build, model, "--target", "h200", "--flavour", mine["flavour"], "--gpu-budget", "64MiB", "-o", os.path.join(folder, "p07.edge")])
empty = tempfile.mkdtemp(dir=folder)
none = {"EDGE_TENSORRT_DIR": empty, "LD_LIBRARY_PATH": empty}
show("TensorRT missing", 10, [run, "--engine", bundle, *frame], **none)
show("TensorRT missing while finishing", 10, [build, "finish", portable, "--flavour", mine["flavour"]], **none)
for what, number in [("TensorRT too old (7.2.3)", 7203), ("TensorRT of an unknown major version (99)", 990000)]:
    other = library(core, version % number)
    show(what, 10, [run, "--engine", bundle, *frame], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
other = library(core, "int nothing;")
show("a library that is not TensorRT", 10, [run, "--engine", bundle, *frame], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
other = library(onnx, None)
show("ONNX parser missing", 10, [build, "finish", portable, "--flavour", mine["flavour"]], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
other = library(onnx, parser)
show("ONNX parser of another version", 10, [build, "finish", portable, "--flavour", mine["flavour"]], EDGE_TENSORRT_DIR=other, LD_LIBRARY_PATH=other)
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
    *([("engine file that names TensorRT 10", 10, good[:24] + b"\x0a" + good[25:])] if major == "8" else []),
]:
    with open(file, "wb") as text:
        text.write(data)
    show("wrap: " + what, code, [build, "wrap", file, "--names", names, "-o", os.path.join(folder, "w.edge")])
if given.other:
    theirs = facts_of(given.other)
    beside = {"EDGE_TENSORRT_DIR": given.other_dir, "LD_LIBRARY_PATH": given.other_dir}
    crossed = relabelled("crossed.edge", bundle, theirs["flavour"], theirs["tensorrt"])
    show(f"plan of TensorRT {mine['tensorrt']} given to TensorRT {theirs['tensorrt']}", 3, [run, "--engine", crossed, *frame], **beside)
    crossed = relabelled("crossed2.edge", given.other, mine["flavour"], mine["tensorrt"])
    show(f"plan of TensorRT {theirs['tensorrt']} given to TensorRT {mine['tensorrt']}", 3, [run, "--engine", crossed, *frame])
    show("the TensorRT that the plan needs is not in the folder", 10, [run, "--engine", given.other, *frame], LD_LIBRARY_PATH=here)
for lean in given.lean:
    number = ctypes.CDLL(lean).getInferLibVersion()
    text = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    target = tempfile.mkdtemp(dir=folder)
    os.symlink(lean, os.path.join(target, f"libnvinfer.so.{number // 10000}"))
    only = {"EDGE_TENSORRT_DIR": target, "LD_LIBRARY_PATH": target}
    for of in [bundle] + ([given.other] if given.other else []):
        name = relabelled("lean.edge", of, f"trt{number // 10000}", text)
        show(f"plan of TensorRT {facts_of(of)['tensorrt']} given to the lean runtime {text}", 3, [run, "--engine", name, *frame], **only)
    show(f"building with the lean runtime {text}", 10, [build, "finish", portable, "--flavour", f"trt{number // 10000}"], **only)
if given.rtx:
    only = {"EDGE_TENSORRT_DIR": given.rtx_dir, "LD_LIBRARY_PATH": given.rtx_dir}
    theirs = facts_of(given.rtx)
    show(f"plan of TensorRT-RTX {theirs['tensorrt']} for compute capability {theirs['compute_capability']}", 3, [run, "--engine", given.rtx, *frame], **only)
    name = relabelled("rtx2.edge", given.rtx, "rtx", theirs["tensorrt"], mine["compute_capability"])
    show("the same, said to be for this GPU", 3, [run, "--engine", name, *frame], **only)
    name = relabelled("rtx3.edge", bundle, "rtx", theirs["tensorrt"])
    show(f"plan of TensorRT {mine['tensorrt']} given to TensorRT-RTX {theirs['tensorrt']}", 3, [run, "--engine", name, *frame], **only)
    show("TensorRT-RTX, which does not build for this GPU", 10, [build, "finish", portable, "--flavour", "rtx"], **only)
if "--inject" in subprocess.run([run, "--help"], capture_output=True, text=True).stdout:
    faults = os.path.join(folder, "faults.toml")
    with open(faults, "w") as text:
        text.write('[[fault]]\nkind = "trap"\nat = 50\n')
    longer = ["--source", "sim:", "--frames", "200", "--listen", "none", "--output", os.path.join(folder, "rows.jsonl")]
    show("a kernel traps in mid-run (the driver's sticky error; no other device)", 7, [run, "--engine", bundle, *longer, "--inject", faults])
    show("the same, a second engine on the same GPU stands by", 7, [run, "--engine", bundle, *longer, "--inject", faults, "--devices", "0,0"])
    show("the next process on that GPU", 0, [run, "--engine", bundle, *frame])
shutil.rmtree(folder)
sys.exit(1 if wrong else 0)
