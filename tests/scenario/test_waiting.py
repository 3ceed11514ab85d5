"""Ways to wait are refused where they would do nothing, with a remedy."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: waiting
nodes: 8
rounds: 4
task: consensus
algorithm: dpsgd
topology: ring
"""
STALE = "wait={for: none, stale: 2}"
PUSH = ("algorithm=sgp", "topology={kind: random_push, out_neighbors: 2}")

REFUSED = {
    "stale mass": ([STALE, *PUSH], "mixed however late it comes"),
    "stale reports": ([STALE, "algorithm=fedavg", "topology=star"], "reports of one round"),
    "stale replies": ([STALE, "algorithm=ad_psgd"], "whenever it comes"),
    "stale beside tau": ([STALE, "algorithm=asyng", PUSH[1]], "tau bounds how late"),
    "stale differences": ([STALE, "compression=qsgd"], "remove stale or compression"),
    "stale by definition": ([STALE, "algorithm=choco_sgd"], "choco_sgd sends something else"),
    "stale and exact": ([STALE, "algorithm={name: slowmo, every: 4}", "topology=full"], "exact average"),
    "stale on a graph that changes": ([STALE, "topology={kind: random_sym, neighbors: 2}"], "use a static graph"),
    "stale and undone": (
        ["wait={stale: 2, on_missing: undo}", "delivery=acknowledged"],
        "undo refuses a vector that comes late",
    ),
}
ALLOWED = {
    "stale gossip": [STALE],
    "stale gossip in steps": [STALE, "algorithm={name: dfedsam_mgs, gossip_steps: 2}"],
    "stale gossip before the step": [STALE, "algorithm=lian_dpsgd"],
    "stale or else the last": ["wait={deadline: 1s, stale: 2, on_missing: last}"],
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    sets, expected = REFUSED[case]
    with pytest.raises(ScenarioError) as error:
        loads(BASE, sets)
    assert expected in str(error.value)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize("case", ALLOWED)
def test_allowed(case: str) -> None:
    assert loads(BASE, ALLOWED[case]).notices == ()
