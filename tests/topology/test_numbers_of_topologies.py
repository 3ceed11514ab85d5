"""What a topology is where a scenario names it and says no more."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.topology.catalog import SELECTIONS, TOPOLOGIES, WEIGHTS
from netdfl.topology.selection import AllNeighbors, Halves, PrivateSelection, RandomNeighbors, sampled

DEFAULTS: dict[str, dict[str, Any]] = {
    "exponential": {"symmetric": False},
    "star": {"hub": None},
    "grid": {"rows": None, "cols": None},
    "torus": {"rows": None, "cols": None},
    "erdos_renyi": {"p": 0.3, "directed": False},
    "small_world": {"neighbors": 4, "rewire": 0.1},
    "edge_list": {"edges": None, "file": None, "directed": False},
    "random_pairs": {"redraw_every": 1},
    "random_sym": {"neighbors": 4, "redraw_every": 1},
    "random_push": {"out_neighbors": 4, "redraw_every": 1, "base_degree": None},
    "random_pull": {"neighbors": 4, "redraw_every": 1},
    "by_round": {"directed": False},
}


def defaults(function: Any) -> dict[str, Any]:
    return {
        each.name: each.default
        for each in inspect.signature(function).parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.default is not each.empty
    }


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_of_which_no_more_is_said_is_so(name: str) -> None:
    assert defaults(TOPOLOGIES[name]) == DEFAULTS.get(name, {})


def test_weights_are_not_lazy_two_neighbors_are_chosen_and_all_clients_take_part() -> None:
    assert all(defaults(weights) == {"lazy": False} for weights in WEIGHTS.values())
    assert defaults(SELECTIONS["random_k"]) == {"k": 2, "known": True}
    assert defaults(sampled) == {"participation": 1.0}


def test_a_private_choice_is_the_choice_of_another_of_which_nobody_knows() -> None:
    chosen = RandomNeighbors(9, Streams(3), k=2)
    private, others = PrivateSelection(chosen), tuple(range(1, 9))
    assert (chosen.receivers_know, private.receivers_know) == (True, False)
    for round in range(5):
        assert private.select(0, round, others) == chosen.select(0, round, others)


def test_halves_ask_those_that_another_choice_leaves_of_the_other_half() -> None:
    halves = Halves(frozenset({0, 2}))
    assert [halves.select(node, 0, (0, 2, 3, 5)) for node in (1, 2)] == [(0, 2), ()]
    assert halves.receivers_know
    among = PrivateSelection(AllNeighbors())
    assert not Halves(frozenset({0}), among).receivers_know
    few = Halves(frozenset(range(1, 9)), RandomNeighbors(9, Streams(3), k=3))
    assert len(few.select(0, 4, tuple(range(1, 9)))) == 3
