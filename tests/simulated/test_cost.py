"""What a message of a whole simulated run calls does not depend on the fleet's size.

How much that is at most says `benchmarks/runs_budget.json`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from runpy import run_path

from tests.agreeing import agreeing_fleet

CALLS = run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "calls.py"))
NEIGHBORS = 10


def fleet(nodes: int, rounds: int) -> dict[str, object]:
    return agreeing_fleet(nodes, rounds, NEIGHBORS)


def test_a_message_costs_the_same_number_of_calls_in_a_larger_fleet() -> None:
    small, large = (CALLS["calls_a_message"](partial(fleet, nodes), nodes * NEIGHBORS) for nodes in (12, 36))
    assert len(large) == len(small) == 2
    for kind, calls in small.items():
        assert calls > 1, "they are counted"
        assert large[kind] <= 1.1 * calls
