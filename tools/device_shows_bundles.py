#!/usr/bin/env python3
"""device_shows_bundles.py IN.edge FOLDER one: FOLDER/one.edge with a decision rule, and damaged variants of it under other ids."""
import hashlib, json, os, sys, zipfile
source, out, name = sys.argv[1:4]
old = {e: zipfile.ZipFile(source).read(e) for e in zipfile.ZipFile(source).namelist()}
def write(path, edit_manifest=None, edit_plan=None, fit=True):
    manifest = json.loads(old["manifest.json"])
    classes = manifest["classes"]
    manifest["decision"] = {"reject": {c: {"score": 0.0, "count": 1} for c in classes[:2]}}
    if edit_manifest: edit_manifest(manifest)
    files = dict(old); files["manifest.json"] = json.dumps(manifest, indent=2).encode() + b"\n"
    ident = hashlib.sha256(files["manifest.json"]).hexdigest()
    for e in list(files):
        if e.startswith("plans/") and e.endswith(".json"):
            plan = e[:-5] + ".plan"
            if edit_plan: files[plan] = edit_plan(files[plan])
            facts = json.loads(files[e]); facts["bundle"] = ident
            if fit: facts["sha256"] = hashlib.sha256(files[plan]).hexdigest(); facts["bytes"] = len(files[plan])
            files[e] = json.dumps(facts).encode()
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_STORED) as z:
        for e, data in files.items(): z.writestr(zipfile.ZipInfo(e), data)
    os.rename(path + ".new", path)
def other(word):
    def edit(m): m["cache_key"] = hashlib.sha256((m["cache_key"] + word).encode()).hexdigest()
    return edit
def flip(places):
    def edit(data):
        data = bytearray(data)
        for i in range(places): data[len(data) * (i + 1) // (places + 2)] ^= 0x5A
        return bytes(data)
    return edit
one = os.path.join(out, name + ".edge")
write(one)
if name == "one":
    data = open(one, "rb").read(); open(os.path.join(out, "half.edge"), "wb").write(data[: len(data) // 2])
    write(os.path.join(out, "flipped.edge"), other("flipped"), flip(1), fit=False)
    write(os.path.join(out, "rotten.edge"), other("rotten"), flip(64))
    write(os.path.join(out, "second.edge"), other("second"))
