"""Two halves of a graph, one of which asks and the other answers: what keeps pairwise exchanges from deadlock."""

from __future__ import annotations

from netdfl.core.types import Edge, NodeId
from netdfl.topology.base import Topology
from netdfl.topology.graph import Graph
from netdfl.topology.selection import Everyone, Selection


class Halves:
    """Active nodes may ask their passive neighbors; passive ones ask nobody. A `Selection`."""

    def __init__(self, passive: frozenset[NodeId], among: Selection | None = None) -> None:
        """All nodes but `passive` are active; they ask those that `among` selects for them."""
        self.passive = passive
        self._among = among or Everyone()
        self.receivers_know = self._among.receivers_know

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """The passive ones of an active node's `candidates`."""
        others = () if node in self.passive else tuple(peer for peer in candidates if peer in self.passive)
        return self._among.select(node, round, others)


def halves(topology: Topology, among: Selection | None = None) -> Halves:
    """Nodes at an even distance from node 0 are passive; those with even numbers where the graph changes.

    Links inside a half stay unused: `inside` names them.
    """
    if topology.time_varying:
        return Halves(frozenset(range(0, topology.num_nodes, 2)), among)
    import networkx as nx  # only here: it takes a tenth of a second

    far = nx.single_source_shortest_path_length(topology.graph(0).to_networkx(), 0)
    return Halves(frozenset(node for node in far if far[node] % 2 == 0), among)


def inside(graph: Graph, split: Halves) -> tuple[Edge, ...]:
    """The links of `graph` with both ends in the same half, each once."""
    return tuple((a, b) for a, b in graph.edges if a < b and (a in split.passive) == (b in split.passive))
