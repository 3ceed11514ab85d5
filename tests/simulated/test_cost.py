"""What a message of a whole simulated run costs, counted in calls: it must not grow, nor depend on the fleet's size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import netdfl
from tests.agreeing import agreeing_fleet

NEIGHBORS = 10
PYTHON_CALLS, C_CALLS = 27, 24
"""The most that a message may cost: what was measured (25.9 and 22.3), and a little more."""


def calls_in(work: Callable[[], object]) -> dict[str, int]:
    """How many functions `work` calls: Python's, and those in C."""
    found = {"call": 0, "c_call": 0}

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event in found:
            found[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.fixture(scope="module")
def per_message(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, float]]:
    """Calls a message, of fleets of two sizes: what six rounds have above two."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netdfl.supervisor.showing.SHOW_S", 1e6)
        for nodes in (12, 36):
            where = tmp_path_factory.mktemp("cost")

            def run(rounds: int, nodes: int = nodes, where: Path = where) -> dict[str, int]:
                return calls_in(
                    lambda: netdfl.run(agreeing_fleet(nodes, rounds, NEIGHBORS), out=where / str(rounds), page=False)
                )

            run(1)  # what is imported and remembered once
            few, many = run(2), run(6)
            found[nodes] = {kind: (many[kind] - few[kind]) / (nodes * NEIGHBORS * 4) for kind in few}
    return found


def test_a_message_costs_a_bounded_number_of_calls(per_message: dict[int, dict[str, float]]) -> None:
    assert per_message[36]["call"] <= PYTHON_CALLS
    assert per_message[36]["c_call"] <= C_CALLS


def test_a_message_costs_the_same_in_a_larger_fleet(per_message: dict[int, dict[str, float]]) -> None:
    for kind, calls in per_message[36].items():
        assert calls <= 1.1 * per_message[12][kind]
