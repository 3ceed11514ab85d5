"""What carries a scenario's messages: shares of mass, or a scheme of compression; which one `auto` means on a graph."""

from __future__ import annotations

from netdfl.algorithms.exchange import Delivery, Scheme
from netdfl.scenario.build import build_topology
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.base import Topology

GOSSIP = ("choco", "deepsqueeze", "unsafe")
PUSH = ("edge", "push_sum")
SERVER = ("plain", "ef14", "ef21")


def scheme_of(scenario: Scenario, topology: Topology | None = None) -> Scheme:
    """The scheme that is written, or that `auto` stands for. Raises ValueError where the graph can't be drawn."""
    if scenario.compression is not None and scenario.compression.scheme != "auto":
        return scenario.compression.scheme
    if scenario.has_server:
        return "plain"
    if is_push(scenario):
        return "edge"
    if own := scenario.algorithm.traits.scheme:
        return own
    return "choco" if is_static(scenario, topology or build_topology(scenario)) else "deepsqueeze"


def delivery_of(scenario: Scenario) -> Delivery:
    """What becomes of a lost message; loading settles what `auto` is."""
    kind = scenario.delivery.kind
    return "plain" if kind == "auto" else kind


def is_push(scenario: Scenario) -> bool:
    """Whether the algorithm sends shares of mass."""
    return "column" in scenario.algorithm.traits.needs


def is_literal(scenario: Scenario) -> bool:
    """Whether the algorithm sends C(z - x) as printed, for which nobody keeps a reference."""
    written = scenario.algorithm.traits.literal
    return written is not None and scenario.algorithm.params.get(written[0]) == written[1]


def sends_vectors(scenario: Scenario) -> bool:
    """Whether what gossip sends are whole vectors: not compressed, and nothing else by definition."""
    traits = scenario.algorithm.traits
    return scenario.compression is None and traits.scheme is None and not traits.sparse


def is_static(scenario: Scenario, topology: Topology) -> bool:
    """Whether every node has the same neighbors in every round."""
    return not topology.time_varying and scenario.topology.selection.kind == "all"
