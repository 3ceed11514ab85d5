"""What carries a scenario's messages: shares of mass, or a scheme of compression; which one `auto` means on a graph."""

from __future__ import annotations

from typing import Any

from netdfl.scenario.build import build_topology
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.base import Topology

GOSSIP = ("choco", "deepsqueeze", "unsafe")
PUSH = ("edge", "push_sum")
SERVER = ("plain", "ef14", "ef21")
OWN = {"choco_sgd": "choco", "delicoco": "choco", "qdfedavgm": "choco", "deepsqueeze": "deepsqueeze"}


def scheme_of(scenario: Scenario, topology: Topology | None = None) -> str:
    """The scheme that is written, or that `auto` stands for. Raises ValueError where the graph can't be drawn."""
    compression: Any = scenario.compression
    algorithm = scenario.algorithm
    if compression.scheme != "auto":
        return str(compression.scheme)
    if scenario.has_server:
        return "plain"
    if is_push(scenario):
        return "edge"
    if algorithm.kind in OWN:
        return OWN[algorithm.kind]
    return "choco" if is_static(scenario, topology or build_topology(scenario)) else "deepsqueeze"


def is_push(scenario: Scenario) -> bool:
    """Whether the algorithm sends shares of mass."""
    return "column" in getattr(scenario.algorithm.entry, "needs", ())


def is_static(scenario: Scenario, topology: Topology) -> bool:
    """Whether every node has the same neighbors in every round."""
    return not topology.time_varying and scenario.topology.selection.kind == "all"
