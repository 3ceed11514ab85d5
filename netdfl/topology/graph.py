"""Immutable directed graphs over nodes 0 to n - 1, whose edges are the links that a round may use; their sizes as text.

An edge joins two nodes; a link carries messages one way. So an edge that works both ways is two links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netdfl.core.tables import lazy_module
from netdfl.core.types import Edge, NodeId

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

Neighbors = tuple[tuple[NodeId, ...], ...]


class Graph:
    """Directed edges (src, dst) without self loops; a two-way link is two edges.

    `src` and `dst` are read-only int64 arrays of shape (num_edges,), sorted by (src, dst). Graphs compare by identity,
    so that values derived from one can be cached by it; compare `edges` to compare contents.
    """

    def __init__(self, num_nodes: int, edges: Iterable[Sequence[int]] | NDArray[np.integer[Any]]) -> None:
        """Take `edges` as pairs or as an array of shape (m, 2); repeated edges count once.

        Raises:
            ValueError: For a node that does not exist, a self loop, or fewer than one node.
        """
        pairs = _pairs(edges)
        _check(num_nodes, pairs)
        self.num_nodes = num_nodes
        self._codes = _distinct(pairs[:, 0] * num_nodes + pairs[:, 1])
        self.src, self.dst = np.divmod(self._codes, num_nodes)
        self.src.setflags(write=False)
        self.dst.setflags(write=False)

    @classmethod
    def undirected(cls, num_nodes: int, links: Iterable[Sequence[int]] | NDArray[np.integer[Any]]) -> Graph:
        """Return a graph with both edges of every two-way link. Raises ValueError as the constructor does."""
        pairs = _pairs(links)
        return cls(num_nodes, np.concatenate([pairs, pairs[:, ::-1]]))

    @classmethod
    def from_networkx(cls, graph: Any) -> Graph:
        """Return the graph of a networkx graph whose nodes are 0 to n - 1. Raises ValueError for self loops."""
        n = graph.number_of_nodes()
        if set(graph) != set(range(n)):
            raise ValueError(f"the nodes of the networkx graph are not 0 to {n - 1}; relabel them first")
        return cls(n, graph.edges()) if graph.is_directed() else cls.undirected(n, graph.edges())

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph` with the same nodes and edges."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.num_nodes))
        graph.add_edges_from(self.edges)
        return graph

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges})"

    @property
    def num_edges(self) -> int:
        """The number of directed edges."""
        return len(self.src)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge as (src, dst), sorted."""
        return tuple(zip(self.src.tolist(), self.dst.tolist(), strict=True))

    @cached_property
    def out_degrees(self) -> NDArray[np.int64]:
        """The number of out-neighbors of each node, shape (num_nodes,)."""
        return np.bincount(self.src, minlength=self.num_nodes).astype(np.int64)

    @cached_property
    def in_degrees(self) -> NDArray[np.int64]:
        """The number of in-neighbors of each node, shape (num_nodes,)."""
        return np.bincount(self.dst, minlength=self.num_nodes).astype(np.int64)

    @cached_property
    def by_receiver(self) -> NDArray[np.int64]:
        """The order of the edges that sorts them by (dst, src), shape (num_edges,)."""
        return np.argsort(self.dst, kind="stable")

    @cached_property
    def _out(self) -> Neighbors:
        return split(self.dst, self.out_degrees)

    @cached_property
    def _in(self) -> Neighbors:
        return split(self.src[self.by_receiver], self.in_degrees)

    def out_neighbors(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the nodes that `node` can send to, sorted."""
        return self._out[node]

    def in_neighbors(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the nodes that can send to `node`, sorted."""
        return self._in[node]

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse."""
        return bool(np.array_equal(self._codes, np.sort(self.dst * self.num_nodes + self.src)))

    @cached_property
    def cut_off(self) -> tuple[NodeId, ...]:
        """The nodes that node 0 can't reach or that can't reach node 0, sorted."""
        both = _reached(self._out)
        if not self.is_symmetric:
            both &= _reached(self._in)
        return tuple(node for node in range(self.num_nodes) if node not in both)

    @property
    def is_strongly_connected(self) -> bool:
        """Whether every node can reach every other along directed edges."""
        return not self.cut_off


def _pairs(edges: Iterable[Sequence[int]] | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    if isinstance(edges, np.ndarray):
        return edges.astype(np.int64)
    listed = list(edges)
    for edge in listed:
        if len(edge) != 2:
            raise ValueError(f"{edge} is not an edge; write two nodes, like [0, 1]")
    return np.array(listed, np.int64).reshape(len(listed), 2)


def _check(num_nodes: int, pairs: NDArray[np.int64]) -> None:
    if num_nodes < 1:
        raise ValueError(f"a graph has {num_nodes} nodes, expected at least 1")
    if found := wrong_edge(num_nodes, pairs):
        raise ValueError(found[1])


def wrong_edge(num_nodes: int, edges: Iterable[Sequence[int]] | NDArray[np.integer[Any]]) -> tuple[int, str] | None:
    """Return the index of the first edge that can't be in a graph of this size, and the reason; None if all can be."""
    pairs = _pairs(edges)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= num_nodes)).any(axis=1))
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(outside):
        edge = pairs[outside[0]].tolist()
        return int(outside[0]), f"edge {edge} names a node that does not exist; nodes are 0 to {num_nodes - 1}"
    if len(loops):
        node = pairs[loops[0], 0]
        return int(loops[0]), f"edge [{node}, {node}] is a self loop; leave it out: nodes always keep a share"
    return None


def _distinct(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each of `codes` (edges as src * num_nodes + dst) once, sorted, four times as fast as `np.unique`."""
    ordered = np.sort(codes)
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def split(values: NDArray[Any], lengths: NDArray[np.int64]) -> tuple[tuple[Any, ...], ...]:
    """Split a flat array into consecutive parts of the given lengths, each a tuple of plain numbers."""
    flat, ends = tuple(values.tolist()), np.cumsum(lengths).tolist()
    return tuple(flat[start:end] for start, end in zip([0, *ends], ends, strict=False))


def _reached(neighbors: Neighbors) -> set[NodeId]:
    reached, frontier = {0}, {0}
    while frontier:
        frontier = set().union(*[neighbors[node] for node in frontier]) - reached
        reached |= frontier
    return reached


def count_words(num_nodes: int, num_links: int, *, directed: bool) -> str:
    """Return a graph's size as text: `8 nodes, 8 edges, each both ways (16 links)`, or `8 nodes, 24 one-way links`."""
    nodes = f"{num_nodes:,} node{'s' * (num_nodes != 1)}"
    if directed:
        return f"{nodes}, {num_links:,} one-way link{'s' * (num_links != 1)}"
    edges = num_links // 2
    each = ", each both ways" if edges > 1 else " both ways" if edges else ""
    return f"{nodes}, {edges:,} edge{'s' * (edges != 1)}{each} ({num_links:,} links)"


def redrawn_words(every: int, *, chosen: bool = False, server: bool = False) -> str:
    """Return a phrase that says how often a topology's graph changes.

    Args:
        every: The rounds after which the topology is redrawn; 0: never.
        chosen: Whether nodes or the server choose anew in each round which links are used.
        server: Whether a server makes this choice.
    """
    if chosen and not every:
        return "the server draws clients anew every round" if server else "nodes choose among neighbors every round"
    return "static" if not every else "redrawn every round" if every == 1 else f"redrawn every {every} rounds"
