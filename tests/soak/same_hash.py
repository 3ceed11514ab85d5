"""Simulate every smoke scenario twice, in processes with different hash seeds and threads: the same events.

python -m tests.soak.same_hash

Each trial takes the next scenario with a seed of its own, runs it with 1 and with 2 OpenMP threads, and once
more with another seed, which must give another hash. A trial more than there are scenarios begins again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.soak.tally import ROOT, main

SCENARIOS = sorted((ROOT / "scenarios/smoke").glob("*.yaml"))


def trial(rng: Random, number: int) -> str | None:
    """Three runs of one scenario."""
    scenario, seed = SCENARIOS[number % len(SCENARIOS)], rng.randrange(10**6)
    first = event_log_hash(scenario, seed, hash_seed=rng.randrange(2**32), threads=1)
    second = event_log_hash(scenario, seed, hash_seed=rng.randrange(2**32), threads=2)
    other = event_log_hash(scenario, seed + 1, hash_seed=0, threads=1)
    if first != second:
        return f"{scenario.name} with seed {seed}: {first} with 1 thread, {second} with 2"
    if first == other:
        return f"{scenario.name}: seeds {seed} and {seed + 1} both give {first}"
    return None


def event_log_hash(scenario: Path, seed: int, *, hash_seed: int, threads: int) -> str:
    """The hash of one run, in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run"
        command = [sys.executable, "-m", "netdfl.cli", "run", str(scenario), "--on", "simulated"]
        done = subprocess.run(
            [*command, "--set", f"seed={seed}", "--out", str(out)],
            env=os.environ | {"PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):  # another seed may miss an accuracy that the scenario expects
            raise RuntimeError(f"{scenario.name} with seed {seed} exits {done.returncode}: {done.stderr}")
        found: str = json.loads((out / "result.json").read_text())["event_log_hash"]
        return found


if __name__ == "__main__":
    main("same hash in two processes", trial, len(SCENARIOS))
