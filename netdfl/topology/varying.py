"""Topologies whose graph changes from round to round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from netdfl.core.rng import Streams
from netdfl.core.units import NonNegativeInt, PositiveInt
from netdfl.topology.base import Topology, check_connected, draw_connected
from netdfl.topology.graph import Graph
from netdfl.topology.static import hops
from netdfl.topology.weights import uniform

Ints = NDArray[np.int64]


def one_peer_exponential(num_nodes: int, streams: Streams, /) -> Topology:
    """Let each node send to one peer a round, 1, 2, 4, ... places ahead in turn (Assran et al. 2019).

    Where n is a power of two, log2 n rounds make the exact average.
    """
    nodes, distances = np.arange(num_nodes), hops(num_nodes)

    def draw(round: int) -> Graph:
        ahead = distances[round % len(distances)]
        return Graph(num_nodes, np.stack([nodes, (nodes + ahead) % num_nodes], axis=1))

    if not distances:
        return Topology(num_nodes, lambda _: Graph(num_nodes, []), directed=False)
    return Topology(num_nodes, draw, directed=True, redraw_every=1)


def random_pairs(num_nodes: int, streams: Streams, /, *, redraw_every: PositiveInt = 1) -> Topology:
    """Put the nodes in random pairs, drawn anew every round; of an odd number one has no partner.

    Each graph is a random matching, so a node talks to one other at a time (Boyd et al. 2006).
    """

    def draw(block: int) -> Graph:
        order = streams.rng("topology", "random_pairs", block).permutation(num_nodes)
        return Graph.undirected(num_nodes, order[: num_nodes // 2 * 2].reshape(num_nodes // 2, 2))

    return Topology(num_nodes, draw, directed=False, redraw_every=redraw_every)


def random_sym(
    num_nodes: int, streams: Streams, /, *, neighbors: PositiveInt = 4, redraw_every: NonNegativeInt = 1
) -> Topology:
    """Draw a random connected graph in which each node has `neighbors` two-way links; 0 never redraws."""
    _require_others(num_nodes, neighbors, "neighbors")
    if num_nodes * neighbors % 2:
        raise ValueError(
            f"{num_nodes} nodes can't have {neighbors} neighbors each, because nodes * neighbors is odd; "
            f"take {neighbors + 1 if neighbors + 1 < num_nodes else neighbors - 1} neighbors"
        )

    def draw(block: int) -> Graph:
        rng = streams.rng("topology", "random_sym", block)
        return draw_connected(
            lambda: Graph.undirected(num_nodes, _regular(num_nodes, neighbors, rng)),
            f"random_sym with {neighbors} neighbors and {num_nodes} nodes",
            "give each node at least 2 neighbors",
            tries=1000,
        )

    return Topology(num_nodes, draw, directed=False, redraw_every=redraw_every)


def random_push(
    num_nodes: int,
    streams: Streams,
    /,
    *,
    out_neighbors: PositiveInt = 4,
    redraw_every: NonNegativeInt = 1,
    base_degree: PositiveInt | None = None,
) -> Topology:
    """Let each node send to `out_neighbors` others that it picks at random; 0 never redraws.

    The picks are drawn anew every `redraw_every` rounds, or once for the whole run if it is 0.

    `base_degree: m` picks them from m fixed out-neighbors per node, themselves drawn once so that
    the base graph is strongly connected: methods that keep state per edge need that few edges.
    """
    degree = num_nodes - 1 if base_degree is None else base_degree
    _require_others(num_nodes, out_neighbors, "out_neighbors")
    _require_others(num_nodes, degree, "base_degree")
    if out_neighbors > degree:
        raise ValueError(f"out_neighbors is {out_neighbors}, but base_degree {degree}; lower one or raise the other")
    base = None if base_degree is None else _base(num_nodes, base_degree, streams)
    within = None if base is None else _graph(base)

    def pick(rng: np.random.Generator) -> Graph:
        if base is None:
            return _graph(_others(num_nodes, out_neighbors, rng))
        return _graph(np.take_along_axis(base, _subsets(num_nodes, degree, out_neighbors, rng), axis=1))

    draw = _picking(pick, streams, redraw_every, "random_push", out_neighbors, "out_neighbors")
    return Topology(num_nodes, draw, directed=True, redraw_every=redraw_every, base=within)


def random_pull(
    num_nodes: int, streams: Streams, /, *, neighbors: PositiveInt = 4, redraw_every: NonNegativeInt = 1
) -> Topology:
    """Let each node hear `neighbors` others that it picks at random, with uniform weights; 0 never redraws.

    Rows sum to 1 and columns do not: the mean drifts, as in the published code of several papers.
    """
    _require_others(num_nodes, neighbors, "neighbors")

    def pick(rng: np.random.Generator) -> Graph:
        return _graph(_others(num_nodes, neighbors, rng), heard=True)

    draw = _picking(pick, streams, redraw_every, "random_pull", neighbors, "neighbors")
    return Topology(num_nodes, draw, directed=True, redraw_every=redraw_every, weights=uniform)


def _picking(
    pick: Callable[[np.random.Generator], Graph], streams: Streams, redraw_every: int, kind: str, count: int, of: str
) -> Callable[[int], Graph]:
    """Return a function that draws the random graph of a block of consecutive rounds from the block's number.

    Args:
        pick: Draws a graph with a random generator.
        streams: The random streams.
        redraw_every: The rounds in a block; 0: the graph is never redrawn, and must be connected.
        kind: The name of the topology.
        count: The number of neighbors, for the text of an error.
        of: The name of the parameter that sets this number.
    """

    def draw(block: int) -> Graph:
        rng = streams.rng("topology", kind, block)
        if redraw_every:
            return pick(rng)
        what = f"{kind} with {count} {of.replace('_', '-')} that are never redrawn"
        return draw_connected(lambda: pick(rng), what, f"raise {of}, or redraw every few rounds")

    return draw


def by_round(num_nodes: int, streams: Streams, /, *, rounds: list[list[list[int]]], directed: bool = False) -> Topology:
    """Take round t's links from the t-th list, and begin again at the end; together they must connect all."""
    if not rounds:
        raise ValueError("by_round has no rounds; give a list of edge lists, like [[[0, 1]], [[1, 2]]]")
    graphs = []
    for number, edges in enumerate(rounds):
        try:
            graphs.append(Graph(num_nodes, edges) if directed else Graph.undirected(num_nodes, edges))
        except ValueError as exc:
            raise ValueError(f"round {number} of by_round: {exc}") from exc
    check_connected(Graph(num_nodes, [edge for graph in graphs for edge in graph.edges]), "the union of all rounds")
    return Topology(num_nodes, lambda round: graphs[round % len(graphs)], directed=directed, redraw_every=1)


def _require_others(num_nodes: int, wanted: int, name: str) -> None:
    if wanted >= num_nodes:
        raise ValueError(f"{name} is {wanted}, but each of {num_nodes} nodes has {num_nodes - 1} others; lower it")


def _subsets(rows: int, n: int, k: int, rng: np.random.Generator) -> Ints:
    """Draw a uniformly random k-subset of 0..n-1 in each row, shape (rows, k)."""
    if k * k > n:
        return np.argpartition(rng.random((rows, n)), k - 1, axis=1)[:, :k]
    picks = np.sort(rng.integers(0, n, (rows, k)), axis=1)
    while len(again := np.flatnonzero((picks[:, 1:] == picks[:, :-1]).any(axis=1))):
        picks[again] = np.sort(rng.integers(0, n, (len(again), k)), axis=1)
    return picks


def _others(num_nodes: int, k: int, rng: np.random.Generator) -> Ints:
    """Draw k distinct other nodes for each node, shape (num_nodes, k)."""
    picks = _subsets(num_nodes, num_nodes - 1, k, rng)
    return picks + (picks >= np.arange(num_nodes)[:, None])


def _graph(peers: Ints, *, heard: bool = False) -> Graph:
    """Return the graph in which each node sends to its row of nodes in `peers` or, with `heard`, receives from it."""
    links = np.stack([np.repeat(np.arange(len(peers)), peers.shape[1]), peers.ravel()], axis=1)
    return Graph(len(peers), links[:, ::-1] if heard else links)


def _base(num_nodes: int, degree: int, streams: Streams) -> Ints:
    """Draw the `degree` fixed out-neighbors of each node among which `random_push` picks, shape (num_nodes, degree)."""
    rng = streams.rng("topology", "random_push", "base")
    graph = draw_connected(
        lambda: _graph(_others(num_nodes, degree, rng)),
        f"random_push with base_degree {degree} and {num_nodes} nodes",
        "raise base_degree",
    )
    return graph.dst.reshape(num_nodes, degree)


def _regular(num_nodes: int, degree: int, rng: np.random.Generator) -> Ints:
    """Draw the links of a simple random regular graph, shape (m, 2).

    Random stubs are paired, then the ends of loops, double links and as many random other links are exchanged until no
    loop or double link is left, which is close to uniform. Dense graphs are complements of sparse ones.
    """
    if 2 * degree >= num_nodes:
        absent = np.zeros((num_nodes, num_nodes), dtype=bool)
        links = _regular(num_nodes, num_nodes - 1 - degree, rng)
        absent[links[:, 0], links[:, 1]] = absent[links[:, 1], links[:, 0]] = True
        return np.argwhere(np.triu(~absent, 1))
    links = rng.permutation(np.repeat(np.arange(num_nodes), degree)).reshape(num_nodes * degree // 2, 2)
    while len(bad := _loops_and_doubles(links, num_nodes)):
        pool = np.union1d(bad, rng.integers(0, len(links), len(bad)))
        links[pool, 1] = links[rng.permutation(pool), 1]
    return links


def _loops_and_doubles(links: Ints, num_nodes: int) -> Ints:
    low, high = links.min(axis=1), links.max(axis=1)
    _, first = np.unique(low * num_nodes + high, return_index=True)
    bad = low == high
    repeated = np.ones(len(links), dtype=bool)
    repeated[first] = False
    return np.flatnonzero(bad | repeated)
