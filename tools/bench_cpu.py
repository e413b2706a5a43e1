#!/usr/bin/env python3
"""Compare rten, our ONNX Runtime path and Python's onnxruntime, one network at a time, the three taking turns.

usage: bench_cpu.py BENCH [--threads 1] [--rounds 8] [--runs 2] MODEL.onnx...
BENCH is what `cargo bench --bench network --no-run` prints. Needs: numpy onnxruntime.
Prints, per model, the median over rounds of (best of the engine / best of Python's onnxruntime in that round),
by wall time and by CPU time. CPU time is the steadier one on a busy machine; at one thread the two mean the same.
"""
import argparse, glob, os, statistics, subprocess, sys, time

a = argparse.ArgumentParser()
a.add_argument("bench"); a.add_argument("models", nargs="*")
a.add_argument("--threads", type=int, default=1); a.add_argument("--rounds", type=int, default=8)
a.add_argument("--runs", type=int, default=2); a.add_argument("--serve")
a = a.parse_intermixed_args()

if a.serve:  # the Python side, same protocol as benches/network.rs
    import numpy as np, onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = a.threads, 1
    session = ort.InferenceSession(a.serve, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    x = ((np.arange(3 * 640 * 640, dtype=np.int64) * 7 % 251).astype(np.float32) / 255).reshape(1, 640, 640, 3)
    x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    print("python onnxruntime", ort.__version__, flush=True)
    for line in sys.stdin:
        best = [1e9, 1e9]
        for _ in range(int(line)):
            wall, cpu = time.perf_counter(), time.process_time()
            session.run(None, {name: x})
            best = [min(best[0], (time.perf_counter() - wall) * 1e3), min(best[1], (time.process_time() - cpu) * 1e3)]
        print(*best, flush=True)
    sys.exit()

import onnxruntime
library = glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.so.*"))[0]
environment = {**os.environ, "EDGE_ORT_LIB": library}


def start(command):
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    return child.stdout.readline().strip(), child


def ask(child, runs):
    child.stdin.write(f"{runs}\n"); child.stdin.flush()
    return [float(number) for number in child.stdout.readline().split()]


medians = {}
for model in a.models:
    engines = dict([
        start([a.bench, "rten", str(a.threads), model]),
        start([a.bench, "onnxruntime", str(a.threads), model]),
        start([sys.executable, __file__, a.bench, "--threads", str(a.threads), "--serve", model]),
    ])
    for child in engines.values():
        ask(child, 2)
    rounds = [{name: ask(child, a.runs) for name, child in engines.items()} for _ in range(a.rounds)]
    base = next(name for name in engines if name.startswith("python"))
    for name, child in engines.items():
        for kind, at in (("wall", 0), ("CPU", 1)):
            ratios = [one[name][at] / one[base][at] for one in rounds]
            best = min(one[name][at] for one in rounds)
            medians.setdefault((name, kind), []).append(statistics.median(ratios))
            print(f"{os.path.basename(model):20} {name:28} {kind:4} best {best:7.1f} ms, x python "
                  f"{statistics.median(ratios):.2f} (rounds {min(ratios):.2f}..{max(ratios):.2f})", flush=True)
        child.stdin.close(); child.wait()
for (name, kind), ratios in medians.items():
    print(f"median of models: {name:28} {kind:4} x python {statistics.median(ratios):.2f}")
