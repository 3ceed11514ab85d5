"""The choices made in each round: the receivers of a node's messages, and the clients that take part with a server."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, NodeId
from netdfl.core.units import PositiveFloat, PositiveInt
from netdfl.topology.base import Topology
from netdfl.topology.graph import Graph

_KEPT = 8


class Selection(Protocol):
    """The interface of a neighbor selection: the choice of the out-neighbors to which a node sends in a round.

    Attributes:
        receivers_know: Whether `select` depends only on the seed, the round and its arguments, so that every node can
            compute it. If it is False, each node asks the selection for that node's own choice only.
    """

    receivers_know: bool

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Return the out-neighbors among `candidates` to which `node` sends in `round`, in the same order.

        Repeated calls return the same.
        """


class AllNeighbors:
    """The selection by which a node sends to all its out-neighbors."""

    receivers_know = True

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Return all of `candidates`, the out-neighbors of `node`."""
        return candidates


class PrivateSelection:
    """A selection that makes the choices of another one, but by which no receiver knows its senders in advance.

    It is for methods whose nodes choose again at run time, among the neighbors that the other selection chose.
    """

    receivers_know = False

    def __init__(self, among: Selection) -> None:
        """Make the choices of the selection `among`; `receivers_know` is False whatever `among` says."""
        self.select = among.select


class RandomNeighbors:
    """Send to `k` random out-neighbors a round; with `known: false` receivers can't know their senders.

    They are drawn each round from the seed; a node with at most `k` out-neighbors sends to all of them.
    """

    def __init__(self, num_nodes: int, streams: Streams, /, *, k: PositiveInt = 2, known: bool = True) -> None:
        self.k = k
        self.receivers_know = known

        def draw(round: int) -> np.typing.NDArray[np.float32]:
            return streams.rng("selection", "random_k", round).random((num_nodes, num_nodes), dtype=np.float32)

        self._scores = lru_cache(_KEPT)(draw)

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Return the `k` of `candidates` (out-neighbors) that have the lowest random numbers in this round."""
        if len(candidates) <= self.k:
            return candidates
        lowest = np.argsort(self._scores(round)[node, list(candidates)], kind="stable")[: self.k]
        return tuple(candidates[i] for i in np.sort(lowest).tolist())


def everyone(num_nodes: int, streams: Streams, /) -> Selection:
    """Send to every out-neighbor in every round."""
    return AllNeighbors()


Participants: TypeAlias = Callable[[int], tuple[NodeId, ...]]
"""A function from a round to the clients that take part in it, sorted."""


def sampled(num_clients: int, streams: Streams, /, *, participation: PositiveFloat = 1.0) -> Participants:
    """Sample clients 0 to n - 1 each round, without replacement: up to 1 a fraction, above 1 a count.

    A fraction is rounded to the nearest count, and at least one client takes part.
    """
    count = max(1, round(participation * num_clients)) if participation <= 1 else int(participation)
    if count > num_clients or (participation > 1 and count != participation):
        raise ValueError(
            f"participation is {participation:g}; write a fraction up to 1, or a whole number of the "
            f"{num_clients} clients"
        )

    def draw(round: int) -> tuple[NodeId, ...]:
        chosen = streams.rng("participation", round).choice(num_clients, count, replace=False)
        return tuple(sorted(chosen.tolist()))

    return lru_cache(_KEPT)(draw)


class Halves:
    """The selection for pairwise model exchanges between two fixed halves of a fleet: only active nodes start them.

    An active node asks passive neighbors for an exchange.
    """

    def __init__(self, passive: frozenset[NodeId], among: Selection | None = None) -> None:
        """Make all nodes but `passive` active; `among` selects the nodes that they ask for an exchange of models."""
        self.passive = passive
        self._among = among or AllNeighbors()
        self.receivers_know = self._among.receivers_know

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Return the passive nodes that `node` asks for an exchange, as `among` selects them; none if it is passive."""
        others = () if node in self.passive else tuple(peer for peer in candidates if peer in self.passive)
        return self._among.select(node, round, others)


def halves(topology: Topology, among: Selection | None = None) -> Halves:
    """Divide the nodes into halves: nodes at an even distance from node 0 are passive, all others are active.

    If the graph changes, nodes with an even number are passive. Links between two nodes of one half stay unused:
    `inside` returns them.
    """
    if topology.time_varying:
        return Halves(frozenset(range(0, topology.num_nodes, 2)), among)
    import networkx as nx  # only here: it takes a tenth of a second

    far = nx.single_source_shortest_path_length(topology.graph(0).to_networkx(), 0)
    return Halves(frozenset(node for node in far if far[node] % 2 == 0), among)


def inside(graph: Graph, split: Halves) -> tuple[Edge, ...]:
    """Return the links of `graph` whose two ends are in the same half of `split`, each link once."""
    return tuple((a, b) for a, b in graph.edges if a < b and (a in split.passive) == (b in split.passive))
