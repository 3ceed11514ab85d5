"""Who among its out-neighbors a node sends to in a round, who asks and who answers in pairs, whom a server samples."""

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
    """Neighbor selection. One that learns at run time (by loss, say) keeps what it learned in itself.

    Attributes:
        receivers_know: Whether `select` depends on the seed, the round and its arguments alone, and
            is common knowledge. Where it is False, each node asks it for its own choice only.
    """

    receivers_know: bool

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Those of `candidates`, in their order, that `node` sends to. The same answer when asked again."""


class Everyone:
    """Sends to every out-neighbor."""

    receivers_know = True

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """All of `candidates`."""
        return candidates


class Private:
    """Another selection's choice, of which receivers can't know: for methods that choose again as they go."""

    receivers_know = False

    def __init__(self, among: Selection) -> None:
        """Choose as `among`."""
        self.select = among.select


class RandomNeighbors:
    """Send to `k` random out-neighbors a round; with `known: false` receivers can't tell who will send.

    They are drawn each round from the seed; where there are no more than `k`, it is all.
    """

    def __init__(self, num_nodes: int, streams: Streams, /, *, k: PositiveInt = 2, known: bool = True) -> None:
        self.k = k
        self.receivers_know = known

        def draw(round: int) -> np.typing.NDArray[np.float32]:
            return streams.rng("selection", "random_k", round).random((num_nodes, num_nodes), dtype=np.float32)

        self._scores = lru_cache(_KEPT)(draw)

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """The `k` of `candidates` with the lowest scores of this round."""
        if len(candidates) <= self.k:
            return candidates
        lowest = np.argsort(self._scores(round)[node, list(candidates)], kind="stable")[: self.k]
        return tuple(candidates[i] for i in np.sort(lowest).tolist())


def everyone(num_nodes: int, streams: Streams, /) -> Selection:
    """Send to every out-neighbor in every round."""
    return Everyone()


Participants: TypeAlias = Callable[[int], tuple[NodeId, ...]]
"""The clients that take part in a round, sorted."""


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
