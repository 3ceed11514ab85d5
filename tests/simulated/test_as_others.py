"""Nodes that take as long as the others: the median of the round, of those that are not among them."""

from __future__ import annotations

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.explore.execute import Executor
from netdfl.scenario.load import load
from netdfl.worlds.simulated.compute import as_others, slowed

TIMES = {0: 10, 1: 20, 2: 30, 3: 46, 4: 1000}


def times(node: int, round: int) -> int:
    return TIMES[node] + round


@pytest.mark.parametrize(
    ("nodes", "clients", "taken"),
    [
        ([4], [0, 1, 2, 3, 4], 25),
        ([3, 4], [0, 1, 2, 3, 4], 20),
        ([0], [0, 1, 2, 3, 4], 38),
        ([1], [0, 1], 10),
        ([0, 1], [0, 1], 15),
    ],
)
def test_it_is_the_median_of_those_that_are_not_among_them_in_that_round(
    nodes: list[int], clients: list[int], taken: int
) -> None:
    """Of an even number it is the middle of the two in the middle, and of none that of all."""
    take = as_others(times, nodes, clients)
    assert {take(node, 0) for node in nodes} == {taken}
    assert {take(node, 7) for node in nodes} == {taken + 7}
    assert [take(node, 7) for node in clients if node not in nodes] == [
        times(node, 7) for node in clients if node not in nodes
    ]


def test_what_makes_nodes_slow_counts_for_the_others_too() -> None:
    slow = slowed(times, {1: 3.0})
    assert [slow(node, 0) for node in range(3)] == [10, 60, 30]
    assert as_others(slow, [0], [0, 1, 2])(0, 0) == 45


@pytest.mark.parametrize(("algorithm", "server"), [("dpsgd", []), ("fedavg", [3])])
def test_a_server_is_none_of_the_others(algorithm: str, server: list[int]) -> None:
    """Node 2 takes as long as nodes 0 and 1, and a server's round takes nothing."""
    plain = {"schema": "netdfl/1", "name": "fleet", "nodes": 3, "rounds": 2, "algorithm": algorithm}
    plain |= {"task": {"kind": "consensus", "dim": 1}, "topology": "star" if server else "ring"}
    plain["world"] = {
        "kind": "simulated",
        "compute": "10ms",
        "stragglers": {"nodes": [2], "factor": 9},
        "as_others": [2],
    }
    assert Executor().run(load(plain)).length_ns == 20_000_000


def test_nodes_that_take_as_long_as_others_are_there() -> None:
    with pytest.raises(ScenarioError, match="node 99 does not exist"):
        load("scenarios/quickstart.yaml", ["world={kind: simulated, as_others: [99]}"])
