"""Kill a simulated run of every method under loss, midway, and resume it: its hash is that of the run left alone.

python -m tests.soak.resume_every_method

A trial more than there are methods begins again, with other seeds and moments.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from random import Random

import torch

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.soak.resume import duration_of, fork, go_on, hash_of, kill
from tests.soak.tally import ROOT, main

sys.path.insert(0, str(ROOT / "tests" / "algorithms"))
from method_scenarios import scenario

METHODS = tuple(ALGORITHMS)
_ATTEMPTS = 20


def lossy(name: str, seed: int) -> str:
    """Six rounds at a tenth of loss, saved every other round."""
    return json.dumps(
        scenario(
            name,
            seed=seed,
            rounds=6,
            world={"kind": "simulated", "compute": "20ms"},
            links={"default": {"loss": "10%", "latency": "5ms"}},
            wait={"deadline": "200ms"},
            checkpoint={"every": 2},
        )
    )


def begin(text: str, out: Path) -> int:
    """Start the run in `out`."""
    return fork(lambda: run(loads(text), out=out, page=False))


def killed_midway(text: str, out: Path, rng: Random, takes_s: float) -> bool:
    """Whether the run in `out` was killed before it ended."""
    kill(begin(text, out), out, rng.uniform(0, takes_s))
    return (out / "fleet.json").exists() and not (out / "result.json").exists()


def trial(rng: Random, number: int) -> str | None:
    """One method: a run left alone, and one that is killed and resumed."""
    torch.set_num_threads(1)
    name = METHODS[number % len(METHODS)]
    text = lossy(name, rng.randrange(10**6))
    with tempfile.TemporaryDirectory() as directory:
        alone = Path(directory) / "alone"
        os.waitpid(begin(text, alone), 0)
        if not (alone / "result.json").exists():
            return f"{name}: the run left alone has no result"
        tried = (Path(directory) / f"run{attempt}" for attempt in range(_ATTEMPTS))
        out = next((out for out in tried if killed_midway(text, out, rng, duration_of(alone))), None)
        if out is None:
            return f"{name}: not killed midway in {_ATTEMPTS} attempts"
        _, status = os.waitpid(go_on(out), 0)
        if status:
            return f"{name}: exit status {status} after resuming"
        found, expected = hash_of(out), hash_of(alone)
        return None if found == expected else f"{name}: hash {found} after resuming, {expected} of the run left alone"


if __name__ == "__main__":
    main("resume of every method", trial, len(METHODS))
