"""Algorithms on networks, and with parameters, that they are not defined for: refused when the scenario is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import loads


def problems(folder: Path, algorithm: dict[str, Any], topology: dict[str, Any], **more: Any) -> str:
    """What loading says; nothing where all is well."""
    file = folder / "scenario.yaml"
    written = {"schema": "netdfl/1", "name": "t", "nodes": 8, "rounds": 4, "task": {"kind": "consensus"}} | more
    file.write_text(json.dumps(written | {"algorithm": algorithm, "topology": topology}))
    try:
        netdfl.load(file)
    except ScenarioError as error:
        return str(error)
    return ""


LAZY = {"kind": "ring", "weights": {"kind": "metropolis", "lazy": True}}


@pytest.mark.parametrize(
    ("algorithm", "topology", "said"),
    [
        (
            {"name": "oledfl_sgd", "beta": 0.8},
            {"kind": "ring"},
            "beta 0.8 is at or beyond the limit of this graph, 0.5",
        ),
        ({"name": "oledfl_sam", "beta": 0.49}, {"kind": "ring"}, ""),
        ({"name": "oledfl_sam", "beta": 0.9}, LAZY, ""),
        ({"name": "oledfl_sgd", "beta": 0.99}, {"kind": "random_sym", "neighbors": 4}, ""),
        ({"name": "dfedsam", "rho": -0.1}, {"kind": "ring"}, "rho"),
        ({"name": "dfedavgm", "momentum": 1.0}, {"kind": "ring"}, "momentum"),
        ({"name": "fedavg"}, {"kind": "star", "participation": 0}, "participation"),
        ({"name": "fedavg"}, {"kind": "star", "participation": 9}, "participation"),
        ({"name": "dfedavg"}, {"kind": "random_push", "out_neighbors": 2}, "needs a doubly stochastic W"),
        ({"name": "ad_psgd"}, {"kind": "directed_ring"}, "both directions"),
        ({"name": "ad_psgd"}, {"kind": "full"}, "leave_out"),
        ({"name": "ad_psgd", "leave_out": True}, {"kind": "full"}, ""),
        ({"name": "ad_psgd", "bipartite": False}, {"kind": "full"}, ""),
        ({"name": "slowmo", "every": 2}, {"kind": "ring"}, "exact average is due in round 1"),
        ({"name": "slowmo", "every": 2}, {"kind": "full"}, ""),
        ({"name": "slowmo", "every": 5}, {"kind": "full"}, "give every of at most 4"),
        ({"name": "oledfl_sgd", "beta": 0.9}, {"kind": "exponential"}, "the limit of this graph, 0.693"),
        ({"name": "fedsynsam", "warmup_rounds": 2}, {"kind": "star"}, "no two models of the server that are 3 rounds"),
        ({"name": "dynafed_synonly", "warmup_rounds": 2}, {"kind": "star"}, "give distil_gap of at most 2"),
        ({"name": "dynafed_synonly", "warmup_rounds": 3}, {"kind": "star"}, ""),
        ({"name": "dfedsgpsm_s", "neighbors": 1}, {"kind": "ring"}, ""),
        ({"name": "dfedsgpsm_s", "neighbors": 2}, {"kind": "ring"}, "no node has more than 2 out-neighbors"),
        ({"name": "dfedsgpsm_s", "neighbors": 1}, {"kind": "directed_ring"}, "use a denser graph"),
        ({"name": "dfedsgpsm_s"}, {"kind": "random_push", "out_neighbors": 2}, "give neighbors of at most 1"),
        ({"name": "dfedsgpsm_s", "neighbors": 6}, {"kind": "full"}, ""),
    ],
)
def test_what_does_not_go_together_is_said(
    algorithm: dict[str, Any], topology: dict[str, Any], said: str, tmp_path: Path
) -> None:
    found = problems(tmp_path, algorithm, topology)
    assert said in found if said else found == ""


def test_it_suffices_that_nodes_can_choose_in_some_round(tmp_path: Path) -> None:
    few = [[i, (i + 1) % 8] for i in range(8)]
    many = [[a, b] for a in range(8) for b in range(a)]
    topology = {"kind": "by_round", "rounds": [few, few, few, many]}
    assert problems(tmp_path, {"name": "dfedsgpsm_s"}, topology) == ""
    assert "nothing is left to choose" in problems(tmp_path, {"name": "dfedsgpsm_s"}, topology, rounds=3)


@pytest.mark.parametrize(
    ("algorithm", "topology", "rounds", "said"),
    [
        ("{name: scaffold, schedule: {kind: cosine, rounds: 5}}", "star", 8, "from round 5 on the rate is 0"),
        ("{name: scaffold, schedule: {kind: cosine, rounds: 5}}", "star", 8, "in the last 3 of 8 rounds"),
        ("{name: scaffold, schedule: {kind: cosine, rounds: 5}}", "star", 5, ""),
        ("{name: scaffold, schedule: {kind: cosine, rounds: 5, floor: 0.01}}", "star", 8, ""),
        ("{name: scaffold, schedule: {kind: cosine}}", "star", 8, ""),
        ("{name: dpsgd, lr: 1, lr_decay: 1.0e-9}", "ring", 9, "from round 5 on the rate is 0, or less than float32"),
        ("{name: dpsgd, lr: 1, lr_decay: 1.0e-9}", "ring", 5, ""),
        ("{name: dpsgd, schedule: {warmup: 3}}", "ring", 2, ""),
        ("{name: slowmo, every: 3}", "full", 4, "the last round comes after the last exact average"),
        ("{name: slowmo, every: 3}", "full", 8, "the last 2 rounds come after"),
        ("{name: slowmo, every: 3}", "full", 9, ""),
        ("{name: dynafed_synonly, warmup_rounds: 4}", "star", 4, "all 4 rounds are warm-up"),
        ("{name: fedsynsam}", "star", 3, "synthetic examples act from round 30 on"),
        ("{name: fedsynsam, warmup_rounds: 3}", "star", 4, ""),
    ],
)
def test_what_is_hardly_meant_is_noticed(algorithm: str, topology: str, rounds: int, said: str) -> None:
    text = f"""
schema: netdfl/1
name: hardly-meant
nodes: 4
rounds: {rounds}
task: consensus
algorithm: {algorithm}
topology: {topology}
"""
    notices = loads(text).notices
    assert len(notices) == bool(said)
    assert said in "".join(notices)


@pytest.mark.parametrize(
    ("name", "state", "noticed"),
    [(name, "lost", True) for name, entry in ALGORITHMS.items() if entry.remembers]
    + [("scaffold", "kept", False), ("fedavg", "lost", False)],
)
def test_corrections_that_a_server_keeps_of_a_lost_client_are_noticed(name: str, state: str, noticed: bool) -> None:
    text = f"""
schema: netdfl/1
name: lost-corrections
nodes: 4
rounds: 9
task: consensus
algorithm: {name}
topology: star
events:
  - {{at_round: 3, crash: 2, restart_after: 1s, state: {state}}}
"""
    assert ("begins " + name in "".join(loads(text).notices)) == noticed


@pytest.mark.parametrize(
    ("wait", "ends"),
    [
        ({"deadline": "none", "announce": False}, False),
        ({"deadline": "none"}, True),
        ({"deadline": "1s", "announce": False}, True),
        ({"for": {"quorum": 1}, "deadline": "none", "announce": False}, True),
    ],
)
def test_nobody_waits_without_end_for_all_of_those_it_can_not_know(
    wait: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    found = problems(tmp_path, {"name": "dfedsgpsm_s", "neighbors": 2}, {"kind": "full"}, wait=wait)
    assert ("announce: true" in found) is not ends


def test_sparse_vectors_and_pairs_are_not_compressed(tmp_path: Path) -> None:
    for name in ("dispfl", "ad_psgd", "slowmo"):
        topology = {"kind": "full" if name == "slowmo" else "ring"}
        assert "remove compression" in problems(tmp_path, {"name": name}, topology, compression={"kind": "qsgd"})
