"""Stop the processes of a fleet at random, as a busy machine does, each for up to 40 s: what is lost must be told.

python -m tests.soak.stopped_processes --count 4

gRPC's server cancels what waits for it for 30 s unless it is told not to, and then nobody knows what became of it.
A connection that can't be made within 5 s, or whose ping is not answered for a minute, is given up: what is under way
on it is undeliverable, its receiver asks for it, and the fleet goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.soak.tally import ROOT, main

SETS = ("nodes=40", "rounds=100", "world.nodes_per_process=10", "evaluation.local=none")
STOPS_S = 90.0
MOST_S = 40.0
AFTER_S = 180.0
"""A fleet whose nodes had all waited for one another ends within this time once nobody is stopped any more."""
NEVER = ("lost", "refused", "unfinished")
TOLD = {"unavailable", "deadline"}


def trial(rng: Random, number: int) -> str | None:
    """One run whose processes are stopped in turn, and what it lost without a word."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        command = [sys.executable, "-m", "netdfl.cli", "run", str(ROOT / "scenarios/quickstart.yaml")]
        command += ["--on=processes", f"--out={out}", *(f"--set={s}" for s in SETS)]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            pids = _running(out, run)
            if not pids:
                return "it ended before it ran"
            _stop_in_turn(pids, rng, run)
            code = run.wait(AFTER_S)
        except subprocess.TimeoutExpired:
            return f"still running {AFTER_S:g} s after the last stop"
        finally:
            run.kill()
        messages = json.loads((out / "result.json").read_text())["messages"]
        lost = {name: messages[name] for name in NEVER if messages[name]}
        why = messages["why"].get("undeliverable", {})
        wrong = code or lost or not TOLD.issuperset(why)
        return f"exit code {code}, lost {lost}, undeliverable {why}" if wrong else None


def _running(out: Path, run: subprocess.Popen[bytes]) -> list[int]:
    """The processes of the nodes, once all are in a round."""
    while run.poll() is None:
        with suppress(FileNotFoundError):
            nodes = json.loads((out / "fleet.json").read_text())["nodes"]
            if all(node["phase"] == "running" and node["round"] >= 1 for node in nodes):
                return sorted({node["pid"] for node in nodes})
        time.sleep(0.05)
    return []


def _stop_in_turn(pids: list[int], rng: Random, run: subprocess.Popen[bytes]) -> None:
    """Each process by itself: stopped, for a moment not, and again."""
    end = time.monotonic() + STOPS_S
    stopped = dict.fromkeys(pids, False)
    due = {pid: time.monotonic() + rng.random() for pid in pids}
    try:
        while time.monotonic() < end and run.poll() is None:
            for pid in pids:
                if time.monotonic() >= due[pid]:
                    _signal(pid, signal.SIGCONT if stopped[pid] else signal.SIGSTOP)
                    due[pid] = time.monotonic() + (rng.uniform(0.05, 0.5) if stopped[pid] else rng.uniform(5, MOST_S))
                    stopped[pid] = not stopped[pid]
            time.sleep(0.01)
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    main("what stopped processes lose is told", trial, 4)
