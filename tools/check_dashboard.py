#!/usr/bin/env python3
"""Runs every query of deploy/grafana/edge-run.json on a real Prometheus that scrapes a running edge-run.

usage: tools/check_dashboard.py ADDRESS [--seconds 60] [--may-be-empty TITLE ...] [--picture FILE.png]

Starts `prometheus` (Debian: apt install prometheus) with a folder of its own, scrapes http://ADDRESS/metrics every second,
and after --seconds prints one line a query: how many series it gave and the last value of the first. A query that is not
valid, or a panel none of whose queries gives anything although it is not named after --may-be-empty, ends the check with 1.
--picture draws the panels where the file places them, from the answers to its queries (needs matplotlib).
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
            yield panel["title"], target["expr"], bool(target.get("instant")), target.get("legendFormat", "")
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            yield "annotation " + annotation["name"], annotation["expr"], False, ""


def draw(dashboard, answers, started, path):
    """The dashboard as its file lays it out: 24 columns, numbers for `stat`, lines for `timeseries`, red marks for annotations."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    pyplot.style.use("dark_background")
    figure = pyplot.figure(figsize=(15, 0.38 * height), facecolor="#111217")
    marks = [
        min(at - started for at, value in one["values"] if float(value) > 0)
        for title, found in answers.items() if title.startswith("annotation ")
        for _, series in found for one in series
    ]
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] / 24, 1 - place["y"] / height
        if panel["type"] == "row":
            figure.text(left + 0.006, top - 0.5 / height, panel["title"], va="center", size=11, weight="bold", color="#ccccdc")
            continue
        box = [left + 0.03, top - (place["h"] - 0.9) / height, place["w"] / 24 - 0.04, (place["h"] - 2.1) / height]
        found = answers.get(panel["title"], [])
        if panel["type"] == "stat":
            values = [one["value"][1] if "value" in one else one["values"][-1][1] for _, series in found for one in series]
            decimals = panel["fieldConfig"]["defaults"].get("decimals") or 0
            shown = f"{float(values[0]):.{decimals}f}" if values else "no data"
            figure.text(left + 0.006, top - 0.6 / height, panel["title"], size=9, color="#ccccdc")
            figure.text(left + place["w"] / 48, top - 2.4 / height, shown, size=24, ha="center", va="center", color="#73bf69")
            continue
        axes = figure.add_axes(box, facecolor="#181b1f")
        axes.set_title(panel["title"], size=9, loc="left", color="#ccccdc")
        for legend, series in found:
            for one in series:
                label = legend
                for name, value in one["metric"].items():
                    label = label.replace("{{" + name + "}}", value)
                times = [at - started for at, _ in one.get("values", [])]
                style = "-" if any(float(value) > 0 for _, value in one.get("values", [])) else ":"
                shown = label if style == "-" or len(series) == 1 else None
                axes.plot(times, [float(value) for _, value in one.get("values", [])], style, label=shown, linewidth=1.2)
        for mark in marks:
            axes.axvline(mark, color="#f2495c", linewidth=1, linestyle=":")
        axes.tick_params(labelsize=7)
        axes.set_xlim(0, max(time.time() - started, 1))
        axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
        axes.grid(color="#2c2f36", linewidth=0.5)
        if axes.lines and any(not line.get_label().startswith("_") for line in axes.lines):
            axes.legend(fontsize=7, loc="upper left", framealpha=0.4)
    figure.savefig(path, dpi=80, facecolor=figure.get_facecolor())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--may-be-empty", nargs="*", default=[])
    parser.add_argument("--picture")
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
    answers = {}
    try:
        started = time.time()
        time.sleep(arguments.seconds)
        for title, expression, instant, legend in queries(dashboard):
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
            answers.setdefault(title, []).append((legend, series))
            empty = not series
            shows[title] = shows.get(title, False) or not empty
            points = [] if empty else (series[0].get("values") or [series[0]["value"]])
            shown = "nothing" if empty else f"{len(series)} series, last {points[-1][1]}"
            print(f"{'-      ' if empty else 'ok     '} {title}: {shown}")
        if arguments.picture:
            draw(dashboard, answers, started, arguments.picture)
        for title in [title for title, any_series in shows.items() if not any_series]:
            failed |= title not in arguments.may_be_empty
            print(f"EMPTY   {title}{'' if title not in arguments.may_be_empty else ', as it may be'}")
    finally:
        prometheus.terminate()
        prometheus.wait()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
