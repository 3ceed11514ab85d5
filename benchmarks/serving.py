"""What a page that follows a run costs the run: its CPU time with a page and without, in turns, and the server's own.

    python benchmarks/serving.py [--repeats 5] [--scenario benchmarks/followed.yaml]

Each turn runs the scenario without a page and with one, which comes first in every other turn. The ratio is taken
within each turn, since the two were beside the same other work; `more_for_the_run` is its median less one, with the
least and the most. The server has started and its page is open before the run begins, so that its start, which is told
apart, is beside no run; `server_share` is what following takes of one processor.

    python benchmarks/serving.py --many 1000 [--compared 26] [--repeats 5]

This asks for the list of so many runs, which differ in learning rate and seed, and compares some: seconds until the
answer is there, of the first time and of later ones, and its bytes; what an ended run has is read once. The compared
runs have curves of 20 rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
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
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--compared", type=int, default=26)
    given = parser.parse_args()
    if given.many:
        print(about(f"{given.many} runs"), file=sys.stderr)
        print(json.dumps(_many(given.many, given.compared, given.repeats)))
        return
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


def _many(number: int, compared: int, repeats: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        _make(runs, number, compared)
        command = [sys.executable, "-m", "netdfl", "serve", str(runs), "--no-browser"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            first, text = _asked(address, "runs")
            listed = [_asked(address, "runs")[0] for _ in range(repeats)]
            ids = ",".join(json.loads(text)["ids"][:compared])
            curves = [_asked(address, f"curves?runs={ids}") for _ in range(repeats + 1)]
        finally:
            server.terminate()
            server.wait()
        return {
            "runs": number,
            "first_list_s": round(first, 4),
            "list_s": _spread(listed),
            "list_bytes": len(text),
            "compared": compared,
            "first_compare_s": round(curves[0][0], 4),
            "compare_s": _spread([each for each, _ in curves[1:]]),
            "compare_bytes": len(curves[0][1]),
        }


def _asked(address: str, path: str) -> tuple[float, str]:
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=120)
    began = time.monotonic()
    connection.request("GET", f"{parts.path}{path}")
    text = connection.getresponse().read().decode()
    return time.monotonic() - began, text


def _make(runs: Path, number: int, compared: int) -> None:
    """Make one run, and of it so many; the newest have its record too."""
    one = runs.parent / "one"
    sets = ["--set", "rounds=20", "--set", "nodes=8", "--set", "topology.neighbors=2", "--no-page"]
    command = [sys.executable, "-m", "netdfl", "run", "quickstart", "--on", "simulated", *sets, "--out", str(one)]
    subprocess.run(command, stdout=subprocess.DEVNULL)  # whether it reaches its accuracy is no matter here
    text, result = (one / "scenario.yaml").read_text(), json.loads((one / "result.json").read_text())
    for i in range(number):
        path = runs / f"2026{1 + i // 400:02d}{1 + i // 20 % 20:02d}T{i % 20:02d}0000Z-{i}"
        shutil.copytree(one, path) if i >= number - compared else path.mkdir(parents=True)
        rate = (0.01, 0.05, 0.1, 0.2)[i // 5 % 4]
        changed = re.sub(r"(?m)^seed: \d+", f"seed: {i % 5}", re.sub(r"(?m)^  lr: .*", f"  lr: {rate}", text))
        (path / "scenario.yaml").write_text(changed)
        (path / "result.json").write_text(json.dumps(result | {"seed": i % 5}))


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
