"""A ring that stalls at each loss is explored by 300 runs for each seed: at most five findings, each of one kind.

python -m tests.soak.explored_causes --count 10

CI has 96 runs of one seed (`tests/explore/test_grouping.py`), which were 14 findings while a finding was told by words.
"""

from __future__ import annotations

import sys
from random import Random

import netdfl
from netdfl.explore.explore import Budget, Exploration
from tests.soak.tally import ROOT, main

sys.path.insert(0, str(ROOT / "tests" / "explore"))
from ring import RING, kinds_of

RUNS, MOST = 300, 5


def trial(rng: Random, number: int) -> str | None:
    """One exploration."""
    explored = Exploration(netdfl.load(RING), seed=number).run(Budget(runs=RUNS))
    mixed = [key for key, found in explored.findings.items() if len(kinds_of(found)) != 1]
    if len(explored.findings) > MOST or mixed:
        return f"seed {number}: {len(explored.findings)} findings, of several kinds: {mixed}"
    return None


if __name__ == "__main__":
    main("causes of a ring that stalls", trial, 10)
