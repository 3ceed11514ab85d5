"""Mixing weights: the matrix M of `X+ = M X` for a graph, sparse or dense.

Receiver-row convention: M_ij is the weight that node i gives to the vector that it receives from node j.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.types import NodeId
from netdfl.topology.graph import Graph, split

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Shares = tuple[tuple[float, ...], ...]


class NodeWeights(NamedTuple):
    """The entries of the mixing matrix M for one node: its diagonal entry, row (`received`) and column (`sent`)."""

    own: float
    received: Mapping[NodeId, float]
    sent: Mapping[NodeId, float]


@dataclass(frozen=True, eq=False)
class MixingMatrix:
    """The mixing matrix M in sparse form: `on_edges[e]` is M[dst, src] for edge e, `on_self` is the diagonal."""

    graph: Graph
    on_edges: Vector
    on_self: Vector

    def node(self, node: NodeId) -> NodeWeights:
        """Return the row, column and diagonal entry of `node`."""
        own, received, sent = self._by_node
        row = self.graph.in_neighbors(node), received[node]
        column = self.graph.out_neighbors(node), sent[node]
        weights = dict(zip(*row, strict=True))
        return NodeWeights(own[node], weights, weights if row == column else dict(zip(*column, strict=True)))

    @cached_property
    def _by_node(self) -> tuple[list[float], Shares, Shares]:
        """The mixing weights of all nodes, computed in one pass: own ones, and weights of in- and of out-neighbors."""
        graph = self.graph
        received = split(self.on_edges[graph.by_receiver], graph.in_degrees)
        return self.on_self.tolist(), received, split(self.on_edges, graph.out_degrees)

    def dense(self) -> Matrix:
        """Return M as an array of shape (n, n)."""
        dense = np.diag(self.on_self)
        dense[self.graph.dst, self.graph.src] = self.on_edges
        return dense


Weights: TypeAlias = Callable[[Graph], MixingMatrix]
"""A function from a graph to its mixing matrix. Raises ValueError for a graph that it does not fit."""


def uniform(graph: Graph, /, *, lazy: bool = False) -> MixingMatrix:
    """Give each received model and the own one the same weight; rows sum to 1.

    M_ij = 1 / (1 + in-degree of i). `lazy` takes (I + M) / 2.
    """
    on_edges = 1 / (1.0 + graph.in_degrees[graph.dst])
    return _made(graph, on_edges, 1 / (1.0 + graph.in_degrees), lazy)


def metropolis(graph: Graph, /, *, lazy: bool = False) -> MixingMatrix:
    """Use Metropolis-Hastings weights, symmetric and doubly stochastic; links must work both ways.

    M_ij = 1 / (1 + max(d_i, d_j)), the rest to self. `lazy` takes (I + M) / 2.
    """
    _require_symmetric(graph, "metropolis")
    degrees = graph.in_degrees
    on_edges = 1 / (1.0 + np.maximum(degrees[graph.src], degrees[graph.dst]))
    return _made(graph, on_edges, _rest(graph, on_edges), lazy)


def max_degree(graph: Graph, /, *, lazy: bool = False) -> MixingMatrix:
    """Use one weight for all links by the largest degree, symmetric and doubly stochastic; links must work both ways.

    M_ij = 1 / (1 + d_max), the rest to self. `lazy` takes (I + M) / 2.
    """
    _require_symmetric(graph, "max_degree")
    on_edges = np.full(graph.num_edges, 1 / (1.0 + graph.in_degrees.max()))
    return _made(graph, on_edges, _rest(graph, on_edges), lazy)


def column(graph: Graph, /, *, lazy: bool = False) -> MixingMatrix:
    """Let each sender split its mass into equal shares; columns sum to 1, as push-sum needs.

    M_ij = 1 / (1 + out-degree of j). `lazy` takes (I + M) / 2.
    """
    on_edges = 1 / (1.0 + graph.out_degrees[graph.src])
    return _made(graph, on_edges, 1 / (1.0 + graph.out_degrees), lazy)


def auto(graph: Graph, /, *, lazy: bool = False) -> MixingMatrix:
    """Use metropolis if every link works both ways, else column. `lazy` takes (I + M) / 2."""
    return (metropolis if graph.is_symmetric else column)(graph, lazy=lazy)


def _rest(graph: Graph, on_edges: Vector) -> Vector:
    given = np.bincount(graph.dst, weights=on_edges, minlength=graph.num_nodes)
    return 1 - given.astype(np.float64)


def _made(graph: Graph, on_edges: Vector, on_self: Vector, lazy: bool) -> MixingMatrix:
    return MixingMatrix(graph, on_edges / 2, (1 + on_self) / 2) if lazy else MixingMatrix(graph, on_edges, on_self)


def _require_symmetric(graph: Graph, name: str) -> None:
    if not graph.is_symmetric:
        edges = set(graph.edges)
        src, dst = next((s, d) for s, d in graph.edges if (d, s) not in edges)
        raise ValueError(
            f"{name} weights need links in both directions, but {src}->{dst} has no {dst}->{src}; "
            "use column weights with push-sum, or an undirected topology without neighbor selection"
        )
