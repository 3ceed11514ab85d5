"""The symmetries of a fleet: permutations of nodes that map schedules to equivalent ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from networkx import DiGraph
from networkx.algorithms.isomorphism import DiGraphMatcher, numerical_edge_match

from netdfl.core.types import NodeId
from netdfl.prove.points import FaultPoint
from netdfl.scenario.build import build_links, build_network
from netdfl.scenario.model.schema import Scenario

Exchange: TypeAlias = Mapping[NodeId, NodeId]
MOST_NODES = 8
"""The largest fleet whose symmetries are sought; a larger one may have very many."""


@dataclass(frozen=True)
class SymmetryGroup:
    """A group of permutations of nodes, including the identity; empty if no symmetries are used."""

    exchanges: Sequence[Exchange] = ()

    def stands_for(self, faults: Sequence[FaultPoint]) -> int:
        """Return how many equivalent schedules the schedule with these faults represents, itself included.

        Of equivalent schedules, one represents all; for the others, the result is 0.
        """
        own, images = tuple(sorted(faults)), set[tuple[FaultPoint, ...]]()
        for exchange in self.exchanges:
            image = tuple(sorted(exchanged(each, exchange) for each in faults))
            if image < own:
                return 0
            images.add(image)
        return max(1, len(images))


def exchanged(point: FaultPoint, exchange: Exchange) -> FaultPoint:
    """Return the fault `point` moved to the nodes to which the permutation `exchange` maps the fault's nodes."""
    return replace(point, nodes=tuple(exchange[node] for node in point.nodes), event={})


def find_symmetries(scenario: Scenario, points: Iterable[FaultPoint]) -> SymmetryGroup:
    """Return the symmetries of a scenario, given the fault points of its run without faults."""
    network, num_nodes = build_network(scenario), scenario.num_nodes
    if num_nodes > MOST_NODES or network.varies or scenario.events:
        return SymmetryGroup()
    links, matrix, server = build_links(scenario), network.matrix(0), network.server
    graph = DiGraph()
    for node in range(num_nodes):
        graph.add_node(node, server=node == server, node=repr(links.node(node)))
    rules = {edge: repr(links.link(edge)) for edge in network.graph(0).edges}
    kinds = {rule: place for place, rule in enumerate(dict.fromkeys(rules.values()))}
    for (src, dst), rule in rules.items():
        graph.add_edge(src, dst, weight=float(matrix[dst, src]), rule=float(kinds[rule]))
    alike = numerical_edge_match(["weight", "rule"], [0.0, 0.0])
    own = set(points)

    def same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
        return one == other

    found = DiGraphMatcher(graph, graph, node_match=same, edge_match=alike).isomorphisms_iter()
    return SymmetryGroup([each for each in found if {exchanged(point, each) for point in own} == own])
