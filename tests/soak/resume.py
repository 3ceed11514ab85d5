"""Kill a simulated run at a random moment, resume it, perhaps more than once: its hash is that of the run left alone.

python -m tests.soak.resume --count 50
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from random import Random

from tests.soak.tally import ROOT, main

SETS = (
    "nodes=6",
    "rounds=40",
    "world={kind: simulated, compute: {kind: uniform, low: 80ms, high: 120ms}}",
    "checkpoint.every=4",
    "algorithm={name: dfedsgpsm, local_epochs: 1}",
    "topology={kind: random_push, out_neighbors: 2}",
    "delivery=acknowledged",
    "wait.deadline=200ms",
    "links={default: {loss: {model: gilbert_elliott, p: 0.05, r: 0.4}, latency: 5ms, rate: 20Mbit}}",
    "events=[{at: 1s, crash: 3, restart_after: 500ms}, {at_round: 20, pause: 1, for: 300ms}]",
    "evaluation.every=20",
    "expect={deadlock: any, stall: any}",
)


def start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "netdfl.cli", "run", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def begin(out: Path) -> subprocess.Popen[str]:
    return start([str(ROOT / "scenarios/quickstart.yaml"), f"--out={out}", *(f"--set={s}" for s in SETS)])


@lru_cache
def left_alone() -> tuple[str, float]:
    """The hash of the run that nobody kills, and how long its rounds take."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        run = begin(out)
        text = run.communicate(timeout=600)[0]
        if run.returncode not in (0, 1):
            raise AssertionError(text)
        result = json.loads((out / "result.json").read_text())
        return result["event_log_hash"], result["duration_s"]


def trial(rng: Random, number: int) -> str | None:
    """One run, killed once or twice, and resumed."""
    hash_, takes_s = left_alone()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        run = begin(out)
        for _ in range(1 + number % 2):
            _kill(run, out, rng.uniform(0, takes_s))
            if (out / "result.json").exists():
                break
            run = start(["--resume", str(out)])
        text = run.communicate(timeout=600)[0]
        if run.returncode not in (0, 1, -9):
            return f"exit code {run.returncode} after resuming: {text[-500:]}"
        found = json.loads((out / "result.json").read_text())["event_log_hash"]
        return None if found == hash_ else f"hash {found} after resuming, {hash_} of the run left alone"


def _kill(run: subprocess.Popen[str], out: Path, delay: float) -> None:
    """`kill -9`, `delay` seconds after the fleet began, or after it ended where it was faster than the first."""
    while run.poll() is None and not (out / "fleet.json").exists():
        time.sleep(0.005)
    time.sleep(delay)
    run.kill()
    run.communicate()


if __name__ == "__main__":
    main("resume", trial, count=50)
