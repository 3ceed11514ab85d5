"""The graph that a seed draws is part of what a scenario says: it is the same in every version, at every boundary."""

from __future__ import annotations

from zlib import crc32

import pytest

from netdfl.core.rng import Streams
from netdfl.topology.base import Topology, static
from netdfl.topology.catalog import SELECTIONS, TOPOLOGIES
from netdfl.topology.graph import Graph, redrawn_words
from netdfl.topology.network import Network
from netdfl.topology.selection import RandomNeighbors, sampled
from netdfl.topology.weights import column

STREAMS = Streams(23)


def digest(graph: Graph) -> int:
    return crc32(repr(graph.edges).encode())


@pytest.mark.parametrize(
    ("name", "n", "options", "drawn"),
    [
        ("erdos_renyi", 12, {}, (1480995645, 1480995645)),
        ("erdos_renyi", 12, {"directed": True}, (4199194708, 4199194708)),
        ("random_pull", 12, {"neighbors": 3}, (2797490589, 2817448384)),
        ("random_pull", 6, {"neighbors": 3}, (1132427667, 4075054113)),
        ("random_pull", 6, {"neighbors": 5}, (1427958381, 1427958381)),
        ("random_push", 12, {"out_neighbors": 3}, (438220183, 1136139925)),
        ("random_push", 12, {"out_neighbors": 2, "base_degree": 4}, (2863264371, 3514050334)),
        ("random_sym", 12, {"neighbors": 3, "redraw_every": 2}, (2704791374, 3434062568)),
        ("random_sym", 8, {"neighbors": 4}, (3303927921, 481141159)),
        ("random_sym", 9, {"neighbors": 6}, (1152853838, 2776454432)),
        ("random_sym", 4, {"neighbors": 3}, (492924618, 492924618)),
        ("small_world", 12, {}, (31424657, 31424657)),
        ("grid", 12, {}, (897898980, 897898980)),
        ("torus", 12, {}, (3569357010, 3569357010)),
    ],
)
def test_a_seed_draws_the_same_graph_in_every_version(
    name: str, n: int, options: dict[str, object], drawn: tuple[int, int]
) -> None:
    topology = TOPOLOGIES[name](n, STREAMS, **options)
    assert (digest(topology.graph(0)), digest(topology.graph(3))) == drawn


@pytest.mark.parametrize(("k", "drawn"), [(1, (594689134, 2006650076)), (4, (1289315795, 3344139235))])
def test_a_seed_chooses_the_same_neighbors_in_every_version(k: int, drawn: tuple[int, int]) -> None:
    net = Network(TOPOLOGIES["exponential"](20, STREAMS), selection=SELECTIONS["random_k"](20, STREAMS, k=k))
    assert (digest(net.graph(0)), digest(net.graph(3))) == drawn


def test_a_seed_samples_the_same_clients_in_every_version() -> None:
    assert [sampled(9, STREAMS, participation=p)(2) for p in (0.3, 0.5, 4)] == [(1, 3, 7), (1, 2, 4, 6), (1, 2, 4, 6)]


@pytest.mark.parametrize(("participation", "count"), [(0.05, 1), (0.5, 4), (1, 9), (2, 2), (3.0, 3), (9, 9)])
def test_up_to_1_participation_is_a_share_and_above_it_a_count(participation: float, count: int) -> None:
    assert len(sampled(9, STREAMS, participation=participation)(0)) == count
    with pytest.raises(ValueError, match="whole number of the 9 clients"):
        sampled(9, STREAMS, participation=count + 9.5)


@pytest.mark.parametrize(
    ("name", "of", "most"),
    [("random_pull", "neighbors", 7), ("random_push", "out_neighbors", 7), ("random_sym", "neighbors", 7)],
)
def test_a_node_has_at_most_all_others_as_neighbors(name: str, of: str, most: int) -> None:
    assert set(TOPOLOGIES[name](8, STREAMS, **{of: most}).graph(0).out_degrees.tolist()) == {most}
    with pytest.raises(ValueError, match=f"{of} is {most + 1}, but each of 8 nodes has {most} others"):
        TOPOLOGIES[name](8, STREAMS, **{of: most + 1})


@pytest.mark.parametrize(("n", "most"), [(4, 2), (5, 4), (6, 4), (7, 6)])
def test_a_small_world_begins_with_a_ring_of_an_even_number_of_neighbors_below_all_nodes(n: int, most: int) -> None:
    assert TOPOLOGIES["small_world"](n, STREAMS, neighbors=most, rewire=0).graph(0).num_edges == n * most
    for neighbors in (most + 1, most + 2):
        with pytest.raises(ValueError, match=f"even number below the {n} nodes"):
            TOPOLOGIES["small_world"](n, STREAMS, neighbors=neighbors)


@pytest.mark.parametrize("n", [0, -1])
def test_a_graph_has_a_node(n: int) -> None:
    with pytest.raises(ValueError, match=f"a graph has {n} nodes, expected at least 1"):
        Graph(n, [])
    assert Graph(1, []).num_edges == 0


@pytest.mark.parametrize("of_topology", [True, False])
@pytest.mark.parametrize("of_selection", [True, False])
def test_receivers_know_what_both_the_topology_and_the_selection_tell(of_topology: bool, of_selection: bool) -> None:
    full = TOPOLOGIES["full"](6, STREAMS).graph(0)
    topology = Topology(6, lambda _: full, directed=True, receivers_know=of_topology)
    net = Network(topology, column, RandomNeighbors(6, STREAMS, k=2, known=of_selection))
    assert net.receivers_know == (of_topology and of_selection)
    assert (net.view(1, 0).in_neighbors is not None) == net.receivers_know


STAR = TOPOLOGIES["star"](5, STREAMS)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (Network(STAR, server=4), "static"),
        (Network(STAR, server=4, participants=sampled(4, STREAMS, participation=4)), "static"),
        (
            Network(STAR, server=4, participants=sampled(4, STREAMS, participation=3)),
            "the server draws clients anew every round",
        ),
        (Network(static(STAR.graph(0))), "static"),
        (Network(STAR, column, RandomNeighbors(5, STREAMS, k=1)), "nodes choose among neighbors every round"),
        (Network(TOPOLOGIES["random_sym"](6, STREAMS)), "redrawn every round"),
        (Network(TOPOLOGIES["random_sym"](6, STREAMS, redraw_every=3)), "redrawn every 3 rounds"),
        (Network(TOPOLOGIES["random_sym"](6, STREAMS, redraw_every=0)), "static"),
    ],
)
def test_whether_a_graph_varies_and_how_is_told(net: Network, words: str) -> None:
    assert net.varies == (words != "static")
    every, server = net.topology.redraw_every, net.server is not None
    assert redrawn_words(every, chosen=net.varies and not every, server=server) == words
