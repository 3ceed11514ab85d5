"""Kill a simulated run at a random moment, resume it, perhaps more than once: its hash is that of the run left alone.

python -m tests.soak.resume --count 50
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random

import torch

from netdfl.running.run import resume, run
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_yaml
from tests.soak.tally import ROOT, main

SETS = (
    "nodes=6",
    "rounds=30",
    "task={kind: quadratic, dim: 200, noise: 0.1}",
    "world={kind: simulated, compute: {kind: uniform, low: 80ms, high: 120ms}}",
    "checkpoint.every=8",
    "algorithm={name: dfedsgpsm, local_epochs: 1}",
    "topology={kind: random_push, out_neighbors: 2}",
    "delivery=acknowledged",
    "wait.deadline=200ms",
    "links={default: {loss: {model: gilbert_elliott, p: 0.05, r: 0.4}, latency: 5ms, rate: 20Mbit}}",
    "events=[{at: 1s, crash: 3, restart_after: 500ms}, {at_round: 15, pause: 1, for: 300ms}]",
    "evaluation.every=10",
    "expect={deadlock: any, stall: any}",
)


def scenario(directory: Path) -> Path:
    """The resolved scenario, as a file."""
    file = directory / "scenario.yaml"
    file.write_text(to_yaml(load(ROOT / "scenarios/quickstart.yaml", SETS)))
    return file


def fork(work: Callable[[], object]) -> int:
    """Do `work` in a process of its own; it exits 0, or 1 for an error."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def begin(out: Path) -> int:
    """Start the run in `out`."""
    return fork(lambda: run(load(scenario(out.parent)), out=out, page=False))


def go_on(out: Path) -> int:
    """Resume the run in `out`."""
    return fork(lambda: resume(out))


def hash_of(out: Path) -> str:
    return json.loads((out / "result.json").read_text())["event_log_hash"]


def duration_of(out: Path) -> float:
    return json.loads((out / "result.json").read_text())["duration_s"]


@lru_cache
def left_alone() -> tuple[str, float]:
    """The hash of the run that nobody kills, and how long its rounds take."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        os.waitpid(begin(out), 0)
        return hash_of(out), duration_of(out)


def trial(rng: Random, number: int) -> str | None:
    """One run, killed once or twice, and resumed."""
    hash_, takes_s = left_alone()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        pid = begin(out)
        for _ in range(1 + number % 2):
            kill(pid, out, rng.uniform(0, takes_s))
            if (out / "result.json").exists():
                break
            pid = go_on(out)
        else:
            _, status = os.waitpid(pid, 0)
            if status:
                return f"exit status {status} after resuming"
        found = hash_of(out)
        return None if found == hash_ else f"hash {found} after resuming, {hash_} of the run left alone"


def kill(pid: int, out: Path, delay: float) -> None:
    """`kill -9`, `delay` seconds after the fleet began, or after it ended where it was faster than the first."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and not (out / "fleet.json").exists():
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main("resume", trial, count=50)
