"""Stop a node, or the supervisor, for ten seconds at each step of what they say to each other: nothing comes of it.

python -m tests.soak.stopped_at_each_step

Each trial is one row of the table in `tests.supervisor.stopping`, of which CI runs a sample.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from tests.soak.tally import main
from tests.supervisor.stopping import SCENARIO, STEPS, all_wrong

FOR_S = 10.0
WORLD = SCENARIO["world"] | {"start_timeout": "8s"}


def trial(rng: Random, number: int) -> str | None:
    """One run, one process of which is stopped at one step; what went wrong."""
    step = list(STEPS)[number % len(STEPS)]
    slow = STEPS[step].in_node  # a node that is stopped for longer than that has not started in time
    with tempfile.TemporaryDirectory() as folder:
        wrong = all_wrong({step: FOR_S}, Path(folder), world=SCENARIO["world"] if slow else WORLD)
    return f"{step}: {wrong[step]}" if wrong else None


if __name__ == "__main__":
    main("a node or the supervisor is stopped for 10 s at each step", trial, len(STEPS))
