"""Stop a node, or the supervisor, for ten seconds at each step of what they say to each other across two machines.

python -m tests.soak.stopped_on_machines --count 20

Each trial is one row of the table in `tests.supervisor.stopping`, as in `tests.soak.stopped_at_each_step`, of which CI
runs a sample: but nodes and supervisor share neither a disk nor a clock. Nobody takes the machine of a node that is
stopped for gone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from tests.machines.separated import Separated
from tests.soak.tally import main
from tests.supervisor.stopping import SCENARIO, STEPS, all_wrong

FOR_S = 10.0
SHARED = "/dev/shm"
"""The only folder that machines and whoever stops nodes there both write to."""


def trial(rng: Random, number: int) -> str | None:
    """One run, one process of which is stopped at one step; what went wrong."""
    step = list(STEPS)[number % len(STEPS)]
    with Separated(2) as machines, tempfile.TemporaryDirectory(dir=SHARED) as folder:
        world = {"kind": "tests.machines.separated:SEPARATED", "machines": machines.told}
        wrong = all_wrong({step: FOR_S}, Path(folder), world=world | {"fidelity": SCENARIO["world"]["fidelity"]})
    return f"{step}: {wrong[step]}" if wrong else None


if __name__ == "__main__":
    main("a node or the supervisor is stopped for 10 s at each step, over two machines", trial, len(STEPS))
