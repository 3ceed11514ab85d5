"""What a page that follows a run costs the run: its CPU time with a page and without, in turns, and the server's own.

python -m benchmarks.serving --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

SCENARIO = "scenarios/quickstart.yaml"


def main() -> None:
    """Measure, and print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scenario", default=SCENARIO)
    parser.add_argument("--on", default="simulated")
    given = parser.parse_args()
    bare, followed, server = [], [], []
    for _ in range(given.repeats):
        bare.append(_run(given.scenario, given.on, None)[0])
        own, beside = _run(given.scenario, given.on, "serve")
        followed.append(own)
        server.append(beside)
    whole = median(bare)
    row = {
        "scenario": given.scenario,
        "on": given.on,
        "repeats": given.repeats,
        "run_cpu_s": round(whole, 3),
        "followed_cpu_s": round(median(followed), 3),
        "more_for_the_run": round(median(followed) / whole - 1, 4),
        "server_cpu_s": round(median(server), 3),
    }
    print(json.dumps(row))


def _run(scenario: str, on: str, served: str | None) -> tuple[float, float]:
    """CPU seconds of a run, and of the server that a page follows it from."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        server = _serve(Path(folder)) if served else None
        command = [sys.executable, "-m", "netdfl", "run", scenario, "--on", on, "--no-page", "--out", str(out)]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, _, used = os.wait4(run.pid, 0)
        run.returncode = 0
        beside = 0.0
        if server is not None:
            server.terminate()
            _, _, of_server = os.wait4(server.pid, 0)
            server.returncode = 0
            beside = of_server.ru_utime + of_server.ru_stime
        return used.ru_utime + used.ru_stime, beside


def _serve(folder: Path) -> subprocess.Popen[str]:
    """A server of `folder`, and a page that follows the first run which appears there."""
    command = [sys.executable, "-m", "netdfl", "serve", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = re.sub(r"\s", "", server.stdout.readline())
    threading.Thread(target=_follow, args=(address,), daemon=True).start()
    return server


def _follow(address: str) -> None:
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        runs: list[dict[str, str]] = []
        while not runs:
            threading.Event().wait(0.3)
            connection.request("GET", f"{parts.path}runs")
            runs = json.loads(connection.getresponse().read())["runs"]
        connection.request("GET", f"{parts.path}run/{runs[0]['id']}/events")
        for _ in connection.getresponse():
            pass
    except OSError:
        return  # the server was ended


if __name__ == "__main__":
    main()
