"""What a page that follows a run costs the run: its CPU time with a page and without, in turns, and the server's own.

    python benchmarks/serving.py [--repeats 5] [--scenario benchmarks/followed.yaml]

Each turn runs the scenario without a page and with one, which comes first in every other turn. The ratio is taken
within each turn, since the two were beside the same other work; `more_for_the_run` is its median less one, with the
least and the most. The server has started and its page is open before the run begins, so that its start, which is told
apart, is beside no run; `server_share` is what following takes of one processor.
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
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from figures import about

SCENARIO = "benchmarks/followed.yaml"


class Spent(NamedTuple):
    """CPU seconds of a run, how long it took, and CPU seconds of the server before it and beside it."""

    run: float
    lasted_s: float
    server_start: float = 0.0
    server: float = 0.0


def main() -> None:
    """Measure, and print a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scenario", default=SCENARIO)
    parser.add_argument("--on", default="simulated")
    given = parser.parse_args()
    bare: list[Spent] = []
    followed: list[Spent] = []
    for turn in range(given.repeats):
        for served in (turn % 2 == 1, turn % 2 == 0):
            (followed if served else bare).append(_run(given.scenario, given.on, served))
    print(about(f"{given.repeats} turns"), file=sys.stderr)
    row = {
        "scenario": given.scenario,
        "on": given.on,
        "turns": given.repeats,
        "run_cpu_s": _spread([each.run for each in bare]),
        "followed_cpu_s": _spread([each.run for each in followed]),
        "more_for_the_run": _spread([two.run / one.run - 1 for one, two in zip(bare, followed, strict=True)]),
        "server_start_cpu_s": _spread([each.server_start for each in followed]),
        "server_share": _spread([each.server / each.lasted_s for each in followed]),
    }
    print(json.dumps(row))


def _spread(values: Sequence[float]) -> list[float]:
    """The median, the least and the most."""
    return [round(of, 4) for of in (median(values), min(values), max(values))]


def _run(scenario: str, on: str, served: bool) -> Spent:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        server = _serve(Path(folder)) if served else None
        before = _cpu_s(server.pid) if server else 0.0
        command = [sys.executable, "-m", "netdfl", "run", scenario, "--on", on, "--no-page", "--out", str(out)]
        began = time.monotonic()
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, _, used = os.wait4(run.pid, 0)
        run.returncode = 0
        lasted, own = time.monotonic() - began, used.ru_utime + used.ru_stime
        if server is None:
            return Spent(own, lasted)
        after = _cpu_s(server.pid)
        server.terminate()
        server.wait()
        return Spent(own, lasted, before, after - before)


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process has used until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(folder: Path) -> subprocess.Popen[str]:
    """A server of `folder` that has answered, and a page that follows the first run which appears there."""
    command = [sys.executable, "-m", "netdfl", "serve", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = re.sub(r"\s", "", server.stdout.readline())
    asked = threading.Event()
    threading.Thread(target=_follow, args=(address, asked), daemon=True).start()
    asked.wait(60)
    return server


def _follow(address: str, asked: threading.Event) -> None:
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        runs: list[dict[str, str]] = []
        while not runs:
            threading.Event().wait(0.3)
            connection.request("GET", f"{parts.path}runs")
            runs = json.loads(connection.getresponse().read())["runs"]
            asked.set()
        connection.request("GET", f"{parts.path}run/{runs[0]['id']}/events")
        for _ in connection.getresponse():
            pass
    except OSError:
        return  # the server was ended


if __name__ == "__main__":
    main()
