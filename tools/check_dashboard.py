#!/usr/bin/env python3
"""Runs every query of deploy/grafana/edge-run.json on a real Prometheus that scrapes a running edge-run.

usage: tools/check_dashboard.py ADDRESS [--seconds 60] [--may-be-empty TITLE ...]

Starts `prometheus` (Debian: apt install prometheus) with a folder of its own, scrapes http://ADDRESS/metrics every second,
and after --seconds prints one line a query: how many series it gave and the last value of the first. A query that is not
valid, or a panel none of whose queries gives anything although it is not named after --may-be-empty, ends the check with 1.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

CONFIG = """
global: {{ scrape_interval: 1s, scrape_timeout: 1s }}
scrape_configs:
  - job_name: edge-run
    static_configs: [{{ targets: ["{address}"] }}]
"""
VARIABLES = {"$__rate_interval": "20s", "$__range": "5m", "$job": ".*", "$stream": ".*"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(base, path, **values):
    address = f"{base}{path}?{urllib.parse.urlencode(values)}"
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def queries(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], bool(target.get("instant"))
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            yield "annotation " + annotation["name"], annotation["expr"], False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--may-be-empty", nargs="*", default=[])
    arguments = parser.parse_args()
    project = pathlib.Path(__file__).resolve().parent.parent
    dashboard = json.loads((project / "deploy/grafana/edge-run.json").read_text())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-dashboard-"))
    (folder / "prometheus.yml").write_text(CONFIG.format(address=arguments.address))
    port = free_port()
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"])
    base = f"http://127.0.0.1:{port}"
    failed = False
    shows = {}
    try:
        started = time.time()
        time.sleep(arguments.seconds)
        for title, expression, instant in queries(dashboard):
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            now = time.time()
            if instant:
                answer = ask(base, "/api/v1/query", query=expression, time=now)
            else:
                answer = ask(base, "/api/v1/query_range", query=expression, start=started, end=now, step=1)
            if answer["status"] != "success":
                failed = True
                print(f"WRONG   {title}: {answer['error']}\n        {expression}")
                continue
            series = answer["data"]["result"]
            empty = not series
            shows[title] = shows.get(title, False) or not empty
            points = [] if empty else (series[0].get("values") or [series[0]["value"]])
            shown = "nothing" if empty else f"{len(series)} series, last {points[-1][1]}"
            print(f"{'-      ' if empty else 'ok     '} {title}: {shown}")
        for title in [title for title, any_series in shows.items() if not any_series]:
            failed |= title not in arguments.may_be_empty
            print(f"EMPTY   {title}{'' if title not in arguments.may_be_empty else ', as it may be'}")
    finally:
        prometheus.terminate()
        prometheus.wait()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
