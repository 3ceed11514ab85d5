"""What is allowed and hardly meant is noticed when a scenario is loaded, and nothing else is."""

from __future__ import annotations

import pytest

from netdfl.scenario.load import loads

BASE = """
schema: netdfl/1
name: noticed
nodes: 8
rounds: 4
task: consensus
algorithm: dpsgd
topology: ring
"""
LOSS = "links={default: {loss: 10%, latency: 30ms}}"
SURE = ("delivery=acknowledged", LOSS)
UNEVEN = "topology={kind: edge_list, edges: [[0,1],[1,2],[2,3],[3,4],[4,5],[5,6],[6,7],[0,4]]}"
PUSH = "algorithm=osgp"

NOTICED = {
    "w stays 1": ([PUSH, UNEVEN], "w stays 1 and osgp has nothing to de-bias; with column each node sends 1 / (1 +"),
    "w stays 1 on a ring": ([PUSH], "nor would it with column, for all nodes have as many neighbors"),
    "w stays 1 while the graph changes": (
        [PUSH, "topology={kind: random_sym, neighbors: 4}"],
        "all links of random_sym",
    ),
    "sent again too late": (
        [*SURE, "wait.deadline=200ms"],
        "wait.deadline: 200ms is over before a lost message (loss of default) can have been sent again, after 180ms",
    ),
    "sent again too late by a given time": (
        ["delivery={kind: acknowledged, timeout: 1s}", LOSS, "wait.deadline=1s"],
        "after 1s (delivery.timeout), and come, 30ms later: what is sent again comes too late for its round, and dpsgd",
    ),
    "reports sent again too late": ([*SURE, "algorithm=fedavg", "topology=star", "wait.deadline=50ms"], "and fedavg"),
    "Nesterov of nothing": (["algorithm={name: sgp, nesterov: true}"], "momentum is 0: give momentum"),
}
QUIET = {
    "weights by out-degree": [PUSH, UNEVEN, "topology.weights=column"],
    "one-way links": [PUSH, "topology={kind: random_push, out_neighbors: 3}"],
    "receivers chosen by loss": ["algorithm={name: dfedsgpsm_s, neighbors: 3}", "topology=full"],
    "gossip": [],
    "time to send again": [*SURE, "wait.deadline=300ms"],
    "no fixed deadline": list(SURE),
    "shares, which are never late": [*SURE, PUSH, UNEVEN, "topology.weights=column", "wait.deadline=50ms"],
    "stale messages are mixed": [*SURE, "wait={deadline: 50ms, stale: 2}"],
    "nothing to lose": ["delivery=acknowledged", "wait.deadline=1ms"],
    "Nesterov": ["algorithm={name: dpsgd, nesterov: true, momentum: 0.9}"],
}


@pytest.mark.parametrize(("sets", "said"), NOTICED.values(), ids=NOTICED)
def test_what_is_hardly_meant_is_noticed(sets: list[str], said: str) -> None:
    notices = loads(BASE, sets).notices
    assert any(said in notice for notice in notices), notices


@pytest.mark.parametrize("sets", QUIET.values(), ids=QUIET)
def test_what_is_well_meant_is_not_noticed(sets: list[str]) -> None:
    assert not loads(BASE, sets).notices
