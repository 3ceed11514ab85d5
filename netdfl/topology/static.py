"""Topologies with the same graph in every round."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from netdfl.core.rng import Streams
from netdfl.core.tables import lazy_module
from netdfl.core.units import Bound, NonNegativeInt, PositiveInt, Probability
from netdfl.topology.base import Topology, draw_connected, static
from netdfl.topology.files import Edges, loops_words, read_edges, read_graph, self_loops
from netdfl.topology.graph import Graph, wrong_edge

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")


def ring(num_nodes: int, streams: Streams, /) -> Topology:
    """Link each node with the next, both ways."""
    return static(_circulant(num_nodes, [1], symmetric=True))


def line(num_nodes: int, streams: Streams, /) -> Topology:
    """Link each node with the next, both ways, and not the last with the first."""
    nodes = np.arange(num_nodes)
    return static(Graph.undirected(num_nodes, _pair(nodes[:-1], nodes[1:])))


def alone(num_nodes: int, streams: Streams, /) -> Topology:
    """Link no nodes: each trains by itself, the baseline for the gain by communication."""
    return Topology(num_nodes, lambda _: Graph(num_nodes, []), directed=False, connected=False)


def directed_ring(num_nodes: int, streams: Streams, /) -> Topology:
    """Let each node send only to the next."""
    return static(_circulant(num_nodes, [1], symmetric=False))


def exponential(num_nodes: int, streams: Streams, /, *, symmetric: bool = False) -> Topology:
    """Let each node send to the nodes 1, 2, 4, 8, ... places ahead; `symmetric` adds the way back."""
    return static(_circulant(num_nodes, hops(num_nodes), symmetric=symmetric))


def full(num_nodes: int, streams: Streams, /) -> Topology:
    """Link every node with every other."""
    return static(_circulant(num_nodes, range(num_nodes), symmetric=False))


def star(num_nodes: int, streams: Streams, /, *, hub: NonNegativeInt | None = None) -> Topology:
    """Link every node with the hub: by default the last node, which is a server algorithm's server."""
    center = num_nodes - 1 if hub is None else hub
    if center >= num_nodes:
        raise ValueError(f"hub {center} does not exist; name a node from 0 to {num_nodes - 1}")
    return static(Graph.undirected(num_nodes, [(center, node) for node in range(num_nodes) if node != center]))


def grid(
    num_nodes: int, streams: Streams, /, *, rows: PositiveInt | None = None, cols: PositiveInt | None = None
) -> Topology:
    """Lay the nodes out in rows and link neighbors; nearly square unless `rows` or `cols` are given."""
    places = _places(num_nodes, rows, cols)
    across, down = _pair(places[:, :-1], places[:, 1:]), _pair(places[:-1], places[1:])
    return static(Graph.undirected(num_nodes, np.concatenate([across, down])))


def torus(
    num_nodes: int, streams: Streams, /, *, rows: PositiveInt | None = None, cols: PositiveInt | None = None
) -> Topology:
    """Lay the nodes out as a grid whose ends are joined; nearly square unless `rows` or `cols` are given."""
    places = _places(num_nodes, rows, cols)
    links = [_pair(places, np.roll(places, 1, axis)) for axis in (0, 1) if places.shape[axis] > 1]
    return static(Graph.undirected(num_nodes, np.concatenate([*links, np.empty((0, 2), dtype=np.int64)])))


def erdos_renyi(num_nodes: int, streams: Streams, /, *, p: Probability = 0.3, directed: bool = False) -> Topology:
    """Link each pair with probability `p`; drawn again until connected."""
    rng = streams.rng("topology", "erdos_renyi")
    return static(
        draw_connected(
            lambda: Graph.from_networkx(nx.fast_gnp_random_graph(num_nodes, p, seed=rng, directed=directed)),
            f"erdos_renyi with p={p:g} and {num_nodes} nodes",
            f"raise p well above ln(n)/n = {np.log(num_nodes) / num_nodes:.3g}",
        )
    )


def small_world(
    num_nodes: int,
    streams: Streams,
    /,
    *,
    neighbors: Annotated[int, Bound(ge=2)] = 4,
    rewire: Probability = 0.1,
) -> Topology:
    """Watts-Strogatz: a ring of `neighbors` nearest nodes with each link moved with probability `rewire`."""
    if neighbors % 2 or neighbors >= num_nodes:
        raise ValueError(
            f"small_world has {neighbors} neighbors; expected an even number below the {num_nodes} nodes, "
            "half of them on each side"
        )
    rng = streams.rng("topology", "small_world")
    return static(
        draw_connected(
            lambda: Graph.from_networkx(nx.watts_strogatz_graph(num_nodes, neighbors, rewire, seed=rng)),
            f"small_world with {neighbors} neighbors and rewire={rewire:g}",
            "give it more neighbors or rewire less",
        )
    )


def edge_list(
    num_nodes: int,
    streams: Streams,
    /,
    *,
    edges: list[list[int]] | None = None,
    file: str | None = None,
    directed: bool = False,
) -> Topology:
    """Take the links from `edges: [[0, 1], [1, 2]]`, from a CSV file with a link a line, or from a graph in JSON."""
    if file is not None and edges is None:
        found = read_edges(file, num_nodes)
    elif edges is not None and file is None:
        found = Edges(edges)
    else:
        raise ValueError("edge_list takes its links from edges or from file; give one of the two")
    if found.places and (wrong := wrong_edge(num_nodes, found.pairs)):
        raise ValueError(f"{found.places[wrong[0]]}{wrong[1]}")
    one_way = directed or found.directed
    return static(Graph(num_nodes, found.pairs) if one_way else Graph.undirected(num_nodes, found.pairs), found.notes)


def graphml(num_nodes: int, streams: Streams, /, *, file: str) -> Topology:
    """Take the graph from GraphML or SNDlib's XML; nodes not named 0 to n - 1 are numbered in the file's order."""
    return _from_file(num_nodes, file, "GraphML")


def gml(num_nodes: int, streams: Streams, /, *, file: str) -> Topology:
    """Take the graph from a GML file; nodes not named 0 to n - 1 are numbered in the file's order."""
    return _from_file(num_nodes, file, "GML")


def _from_file(num_nodes: int, file: str, kind: str) -> Topology:
    drawn = read_graph(file, kind)
    if drawn.number_of_nodes() != num_nodes:
        raise ValueError(f"{file} has {drawn.number_of_nodes()} nodes, expected the scenario's {num_nodes}")
    return static(Graph.from_networkx(drawn), loops_words(file, self_loops(drawn)))


def hops(num_nodes: int) -> list[int]:
    """Return the distances to neighbors in the exponential graph: the powers of 2 below the number of nodes."""
    return [1 << k for k in range((num_nodes - 1).bit_length())]


def _circulant(num_nodes: int, distances: Iterable[int], *, symmetric: bool) -> Graph:
    nodes = np.arange(num_nodes)
    steps = np.array([d for d in distances if d % num_nodes], dtype=np.int64)
    edges = np.stack([np.repeat(nodes, len(steps)), np.add.outer(nodes, steps).ravel() % num_nodes], axis=1)
    return Graph.undirected(num_nodes, edges) if symmetric else Graph(num_nodes, edges)


def _places(num_nodes: int, rows: int | None, cols: int | None) -> NDArray[np.int64]:
    if rows is None:
        square = next(r for r in range(isqrt(num_nodes), 0, -1) if num_nodes % r == 0)
        rows = num_nodes // cols if cols else square
    cols = cols or num_nodes // rows
    if rows * cols != num_nodes:
        raise ValueError(f"{rows} rows of {cols} are {rows * cols} places for {num_nodes} nodes; rows * cols must be n")
    return np.arange(num_nodes).reshape(rows, cols)


def _pair(src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([src.ravel(), dst.ravel()], axis=1)
