#!/usr/bin/env python3
"""Faults on purpose on a GPU machine, and what the line made of them: one edge-run after the other, OUT/summary.md and OUT/raw.tar.xz.

usage: device_shows.py WORK OUT BIN BUNDLE BUNDLE_OF_THE_SOAK PICTURES [dry] [STEP ...]
BIN holds an edge-run built with `--features inject`, the bundles a plan for this machine, PICTURES a folder of pictures. Beside BUNDLE
lie the files of device_shows_bundles.py. With one GPU two engines share it (`--devices 0,0`). `dry` runs on the CPU, without a hog.
"""
import json, os, re, shutil, signal, statistics, subprocess, sys, tarfile, threading, time, urllib.request
WORK, OUT, BIN, ONE, EIGHT, PICTURES = sys.argv[1:7]
DRY = "dry" in sys.argv[7:]
HERE = os.path.dirname(os.path.abspath(__file__))
RAW = os.path.join(WORK, "raw"); os.makedirs(RAW, exist_ok=True)
RUN = os.path.join(BIN, "edge-run")
lines = []
T0 = time.time()
def say(text=""):
    print(f"[{time.time()-T0:6.1f}] {text}", flush=True); lines.append(text)
    with open(os.path.join(OUT, "summary.md"), "w") as f: f.write("\n".join(lines) + "\n")
def smi(query="index,memory.used,temperature.gpu,clocks.sm,ecc.errors.uncorrected.volatile.total"):
    if DRY: return "dry"
    return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip().replace("\n", " | ")

class Run:
    """One edge-run with its log, its rows and samples of /metrics and /readyz."""
    port = 18100
    def __init__(self, name, args, env=None):
        Run.port += 1
        self.name, self.port = name, Run.port
        self.rows_file = os.path.join(RAW, name + ".jsonl")
        self.log_file = os.path.join(RAW, name + ".log")
        self.state = os.path.join(WORK, "state-" + name); shutil.rmtree(self.state, ignore_errors=True)
        self.args = [RUN] + args + ["--output", self.rows_file, "--listen", f"127.0.0.1:{self.port}", "--state", self.state]
        self.samples, self.ready = [], []
        self.began = time.time()
        self.log = []
        self.process = subprocess.Popen(self.args, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                                        env={**os.environ, "EDGE_LOG": "info", **(env or {})})
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self.read_log, self.watch_ready, self.sample)]
        for t in self.threads: t.start()
    def read_log(self):
        with open(self.log_file, "w") as out:
            out.write("command: " + " ".join(self.args) + "\n")
            for line in self.process.stderr:
                self.log.append((time.time(), line.rstrip("\n")))
                out.write(f"{time.time():.4f} {line}"); out.flush()
    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as r: return r.status, r.read().decode()
        except urllib.error.HTTPError as e: return e.code, ""
        except Exception: return None, ""
    def watch_ready(self):
        last = None
        while self.process.poll() is None:
            code, _ = self.get("/readyz")
            if code != last: self.ready.append((time.time(), code)); last = code
            time.sleep(0.01)
    def sample(self):
        while self.process.poll() is None:
            code, text = self.get("/metrics")
            if code == 200:
                keep = {}
                for line in text.splitlines():
                    if line.startswith(("edge_memory", "edge_process", "edge_device", "edge_standby", "edge_frames_dropped", "edge_proofs", "edge_recovery_steps", "edge_results")):
                        k, v = line.rsplit(" ", 1)
                        keep[k] = float(v)
                self.samples.append((time.time(), keep))
            time.sleep(0.5)
    def wait_log(self, text, limit):
        until = time.time() + limit
        while time.time() < until and self.process.poll() is None:
            for t, line in self.log:
                if text in line: return t
            time.sleep(0.02)
        return None
    def log_time(self, text, after=0.0):
        return next((t for t, line in self.log if text in line and t >= after), None)
    def end(self, limit=60):
        try: self.code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            try: self.code = self.process.wait(15)
            except subprocess.TimeoutExpired: self.process.kill(); self.code = "killed"
        self.threads[0].join(5)
        with open(os.path.join(RAW, self.name + ".samples.json"), "w") as f: json.dump({"samples": self.samples, "ready": self.ready}, f)
        return self
    def rows(self):
        if not os.path.exists(self.rows_file): return []
        return [json.loads(l) for l in open(self.rows_file)]
    def lines(self, *words):
        return [l for _, l in self.log if any(w in l for w in words)]

def stamp(text):
    import datetime
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
def answered(row): return stamp(row["captured_at"]) + row["timings_ms"]["age"] / 1e3
def device(row): return row["engine"].get("device")
def order(rows):
    """Per stream: rows, repeated or falling numbers, gaps (frames that a newer one replaced)."""
    text, bad = [], 0
    for s in sorted({r["stream"] for r in rows}):
        n = [r["frame"] for r in rows if r["stream"] == s and r["frame"] is not None]
        wrong = sum(b <= a for a, b in zip(n, n[1:])); bad += wrong
        text.append(f"{s}: {len(n)} rows, {wrong} out of order, {sum(b - a - 1 for a, b in zip(n, n[1:]))} replaced by a newer frame")
    return "; ".join(text), bad
def plan(name, text):
    path = os.path.join(WORK, name + ".toml"); open(path, "w").write(text); return path
def replay(fps): return f"replay:{PICTURES}?loop&fps={fps}"
def two(fps):
    fps = 6 if DRY else fps
    return ["--source", "left=" + replay(fps), "--source", "right=" + replay(fps)]
GPUS = 1 if DRY else len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip().splitlines())
DEVICES = "0,1" if GPUS > 1 or DRY else "0,0"

def failure(name, kind, amount, seconds=11, devices=DEVICES, extra=""):
    fault = plan(name, f'[[fault]]\nkind = "{kind}"\nat = {40 if DRY else 451}\namount = {amount}\nuntil = "device"\ndevice = 0\n{extra}')
    run = Run(name, ["--engine", ONE, "--devices", devices, "--inject", fault, "--duration", f"{seconds}s"] + two(50))
    run.wait_log("stands by", 40); time.sleep(1.5)
    used = smi("index,memory.used")
    run.end(seconds + 40)
    say(f"\n### {name}: `{kind}` on the first of `--devices {devices}`, two streams at 50 frames/s (exit {run.code})\n")
    for l in run.lines("device ", "fault:", "recovered", "recovery:", "self-test failed"): say("    " + l)
    say(f"- nvidia-smi with one serving and one standing by: {used}")
    before = [s for t, s in run.samples if t < (run.log_time("fault:") or 1e12)]
    for k, v in sorted((before or [{}])[-1].items()):
        if k.startswith("edge_memory") and v: say(f"- {k}: {mib(v) if 'bytes' in k else v}")
    rows = run.rows()
    if not rows: say("NO ROWS"); return run
    served = [device(r) for r in rows]
    first, other = served[0], next((d for d in served if d != served[0]), None)
    changes = [i for i in range(1, len(rows)) if served[i] != served[i - 1]]
    faults = [i for i, r in enumerate(rows) if r["trust"] == "fault"]
    say(f"- rows {len(rows)}, devices in order: {[served[0]] + [served[i] for i in changes]}; faults {len(faults)}; not_inspected {sum(r['decision'] == 'not_inspected' for r in rows)}")
    if not changes: say("- NO CHANGE OF DEVICE"); return run
    change = changes[0]
    good = next((i for i in range(change, len(rows)) if served[i] == other and rows[i]["trust"] == "trusted"), None)
    seen = run.log_time("fault:")
    if faults and faults[0] <= good:
        say(f"- from the fault's own row to the first trusted result of device {other}: {1e3 * (answered(rows[good]) - answered(rows[faults[0]])):.1f} ms")
        say(f"- trusted rows of device {first} after its first fault: {sum(1 for r in rows[faults[0]:] if device(r) == first and r['trust'] == 'trusted')}")
    if seen:
        say(f"- from the log line of the fault to the first trusted result of device {other}: {1e3 * (answered(rows[good]) - seen):.1f} ms")
        say(f"- rows of device {first} that were answered after that line and are trusted: {sum(1 for r in rows if device(r) == first and r['trust'] == 'trusted' and answered(r) > seen + 0.002)}")
    window = [r for r in rows[max(0, change - 400):good] if r["decision"] == "not_inspected" or r["trust"] == "fault"]
    say(f"- not_inspected or fault rows until then: {len(window)}")
    for s in sorted({r["stream"] for r in rows}):
        a = [r["frame"] for r in rows[:change] if r["stream"] == s and r["trust"] == "trusted"]
        b = [r["frame"] for r in rows[good:] if r["stream"] == s and r["trust"] == "trusted"]
        if a and b: say(f"- {s}: last trusted frame of device {first}: {a[-1]}, first trusted one after: {b[0]}: {b[0] - a[-1] - 1} frames in between have no trusted result")
    red = [(t, c) for t, c in run.ready if t > run.ready[0][0]]
    off = [(t, next((t2 for t2, c2 in run.ready if t2 > t and c2 == 200), None)) for t, c in run.ready if c == 503 and any(t3 < t and c3 == 200 for t3, c3 in run.ready)]
    say(f"- /readyz red: {['%.0f ms' % (1e3 * (b - a)) if b else 'until the end' for a, b in off]}")
    back = run.log_time(f"device {first} stands by", (seen or 0))
    say(f"- device {first} stands by again after: {'%.2f s' % (back - seen) if back and seen else 'NOT SEEN'}")
    text, bad = order(rows); say(f"- {text}")
    listed = subprocess.run([RUN, "unproven", "list", "--state", run.state], capture_output=True, text=True)
    say(f"- unproven: {listed.stdout.strip() or listed.stderr.strip()}")
    return run

def trap():
    """A kernel that really faults, and the start again 2 s after the end, as deploy/edge-run.service does."""
    run = failure("trap", "trap", 1.0)
    ended = time.time()
    fault = run.log_time("self-test failed") or run.log_time("fault:")
    if fault: say(f"- the program ended {ended - fault:.2f} s after the log line of the fault, its exit code read {run.code}")
    time.sleep(2)
    again = Run("trap_again", ["--engine", ONE, "--devices", DEVICES, "--duration", "4s"] + two(50)).end(40)
    good = [answered(r) for r in run.rows() if r["trust"] == "trusted"]
    first = next((r for r in again.rows() if r["trust"] == "trusted"), None)
    if first: say(f"- started again after 2 s: exit {again.code}, first trusted result on device {device(first)}, {answered(first) - max(good):.2f} s after the last one before the fault")

def last(run, key):
    v = [s[key] for _, s in run.samples if key in s]
    return v
def mib(x): return f"{x / 2**20:.1f} MiB"

def hog():
    fault = plan("hog", f'[[fault]]\nkind = "nan"\nat = {60 if DRY else 700}\nuntil = "load"\ndevice = 0\n')
    run = Run("hog", ["--engine", ONE, "--devices", DEVICES, "--inject", fault, "--duration", "34s"] + two(50))
    run.wait_log("stands by", 40)
    time.sleep(2.5)
    h = subprocess.Popen([sys.executable, os.path.join(HERE, "memory_hog.py"), "0", "12"], stdout=subprocess.PIPE, text=True) if not DRY else None
    time.sleep(4)
    run.process.send_signal(signal.SIGHUP)
    beside = subprocess.run([RUN, "--engine", ONE, "--gpu", "0", "--source", PICTURES, "--output", os.path.join(RAW, "beside.jsonl"), "-q"], capture_output=True, text=True, timeout=60)
    used = smi("index,memory.used,memory.total")
    if h: out = h.communicate()[0]
    else: out = ""
    run.end(70)
    say(f"\n### hog: another process takes all memory of GPU 0 for 12 s; a NaN then makes the engine want a new context (exit {run.code})\n")
    say("    hog: " + out.strip().replace("\n", "; "))
    say(f"    nvidia-smi meanwhile: {used}")
    for l in run.lines("memory:", "device ", "fault:", "recovered", "recovery:", "reload"): say("    " + l)
    say(f"- a second edge-run on GPU 0 meanwhile: exit {beside.returncode}: {beside.stderr.strip()[:400]}")
    rows = run.rows()
    if rows:
        served = [device(r) for r in rows]
        say(f"- rows {len(rows)}; trust {sorted({(r['trust'], sum(x['trust'] == r['trust'] for x in rows)) for r in rows})}; devices in order {[served[0]] + [served[i] for i in range(1, len(rows)) if served[i] != served[i-1]]}; {order(rows)[0]}")
        if h and out:
            begin, end = float(out.split()[0]), None
            fi = next((i for i, r in enumerate(rows) if r["trust"] == "fault"), len(rows))
            full = [r for r in rows[:fi] if answered(r) > begin + 2]
            say(f"- trusted rows of device 0 while nothing was free, before the injected NaN: {sum(r['trust'] == 'trusted' for r in full)} of {len(full)}")

def corrupt():
    copy = os.path.join(WORK, "watched.edge"); shutil.copy(ONE, copy)
    run = Run("corrupt", ["--engine", copy, "--gpu", "0", "--watch", "--duration", "26s"] + two(50))
    run.wait_log("self-test: one of", 40)
    folder = os.path.dirname(ONE)
    variants = [(what, open(os.path.join(folder, name + ".edge"), "rb").read()) for what, name in (
        ("half of the file", "half"), ("one byte of the plan flipped", "flipped"), ("64 bytes of the plan flipped, its hash made to fit", "rotten"),
        ("a good bundle under another id", "second")) if os.path.exists(os.path.join(folder, name + ".edge"))]
    times = []
    for what, data in variants:
        time.sleep(1.5)
        with open(copy + ".new", "wb") as f: f.write(data)
        os.rename(copy + ".new", copy); times.append((time.time(), what)); time.sleep(3)
    run.end(60)
    say(f"\n### corrupt: the bundle's file is replaced by a damaged one three times, `--watch` (exit {run.code})\n")
    for t, what in times: say(f"- {what}")
    for l in run.lines("reload", "fault:", "recover"): say("    " + l)
    rows = run.rows()
    if rows:
        gaps = {}
        for s in ("left", "right"):
            t = [answered(r) for r in rows if r["stream"] == s and times and answered(r) > times[0][0] - 1]
            gaps[s] = max(b - a for a, b in zip(t, t[1:])) if len(t) > 1 else -1
        say(f"- rows {len(rows)}, not trusted {sum(r['trust'] != 'trusted' for r in rows)}, bundles {len({r['engine']['sha256'] for r in rows})}; longest time between two results of a stream: {', '.join('%s %.0f ms' % (s, 1e3 * g) for s, g in gaps.items())}; {order(rows)[0]}")

def soak():
    frames = 300 if DRY else 20000
    sources = sum((["--source", f"s{i:02}=" + replay(80)] for i in range(4 if DRY else 16)), [])
    before = smi()
    run = Run("soak", ["--engine", EIGHT, "--devices", DEVICES, "--frames", str(frames), "--delivery", "every"] + sources).end(120)
    say(f"\n### soak: {frames} frames, {len(sources) // 2} streams, bundle {os.path.basename(EIGHT)} (exit {run.code})\n")
    say(f"- nvidia-smi before: {before}; after: {smi()}")
    for l in run.lines("device ", "fault:", "memory:"): say("    " + l)
    keys = sorted({k for _, s in run.samples for k in s if k.startswith(("edge_memory_used", "edge_process_resident", "edge_memory_allocated", "edge_memory_peak"))})
    for k in keys:
        v = last(run, k)
        if v: say(f"- {k}: first {mib(v[0])}, at half {mib(v[len(v) // 2])}, last {mib(v[-1])}, most {mib(max(v))}")
    rows = run.rows()
    if rows:
        t = [answered(r) for r in rows]
        say(f"- rows {len(rows)} in {max(t) - min(t):.1f} s ({len(rows) / max(1e-9, max(t) - min(t)):.0f} a second), not trusted {sum(r['trust'] != 'trusted' for r in rows)}; {order(rows)[1]} out of order; proofs {last(run, next((k for _, s in run.samples for k in s if k.startswith('edge_proofs_passed')), ''))[-1:]}")
    os.truncate(run.rows_file, min(os.path.getsize(run.rows_file), 2_000_000))

def repeat():
    results = []
    for i, gpu in enumerate(["0", "0", "1" if GPUS > 1 else "0"]):
        path = os.path.join(RAW, f"repeat{i}.jsonl")
        p = subprocess.run([RUN, "--engine", ONE, "--gpu", gpu, "--source", PICTURES, "--conf", "0.001", "--output", path, "-q"], capture_output=True, text=True)
        if p.returncode: say(f"repeat {i}: exit {p.returncode} {p.stderr[:300]}"); return
        results.append({r["source"]: r["detections"] for r in map(json.loads, open(path))})
        if i: os.remove(path)
    say(f"\n### repeat: the same folder three times, `--conf 0.001`: GPU 0, GPU 0 again, GPU {GPUS - 1}\n")
    base = results[0]
    for name, other in (("GPU 0 again", results[1]), (f"GPU {GPUS - 1}, third run", results[2])):
        same = sum(base[k] == other[k] for k in base)
        worst_px = worst_score = 0.0; boxes = lost = 0
        for k in base:
            for a, b in zip(base[k] or [], other[k] or []):
                boxes += 1
                worst_px = max([worst_px] + [abs(x - y) for x, y in zip(a["box"], b["box"])]); worst_score = max(worst_score, abs(a["score"] - b["score"]))
            lost += abs(len(base[k] or []) - len(other[k] or []))
        say(f"- {name}: {same} of {len(base)} pictures equal in every digit; {boxes} boxes, {lost} without a partner, at most {worst_px:.6f} px and {worst_score:.7f} of score apart")

def throughput():
    for bundle, runs in (*(((EIGHT, "2" if DRY else "800"),) if "eight" in EIGHT and GPUS > 1 else ()), (ONE, "2" if DRY else "2000")):
        name = os.path.basename(bundle)
        p = subprocess.run([RUN, "bench", bundle, "--devices", DEVICES, "--streams", "16", "--runs", runs, "--json-file", os.path.join(RAW, f"streams-{name}.json")], capture_output=True, text=True)
        say(f"\n### throughput: `edge-run bench {name} --devices {DEVICES} --streams 16 --runs {runs}` (exit {p.returncode})\n")
        say(p.stdout.strip() or p.stderr.strip()[-800:])

def contexts():
    if GPUS == 1: return
    failure("contexts", "nan", 1.0, seconds=9, devices="0,0")

steps = {"lost": lambda: failure("lost", "device_lost", 1.0), "memory": lambda: failure("memory", "out_of_memory", 1.0),
         "wrong": lambda: failure("wrong", "shift", 3.0), "trap": trap, "hog": hog, "corrupt": corrupt, "repeat": repeat, "contexts": contexts, "soak": soak, "throughput": throughput}
say(f"# Device shows, {time.strftime('%Y-%m-%d %H:%M:%S')}\n"); say(smi("index,name,driver_version,memory.used,memory.total")); say(f"cores {os.cpu_count()}")
only = [a for a in sys.argv[7:] if a in steps] or list(steps)
for name in only:
    began = time.time()
    try: steps[name]()
    except Exception as e:
        import traceback; say(f"STEP {name} FAILED: {e!r}"); traceback.print_exc()
    print(f"[{time.time()-T0:6.1f}] step {name} took {time.time()-began:.1f} s", flush=True)
    with tarfile.open(os.path.join(OUT, "raw.tar.xz"), "w:xz", preset=1) as t: t.add(RAW, "raw")
say("\n" + smi())
