"""Every topology of the catalog beside a plain reference that makes its links otherwise, at every small size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.core.types import Edge
from netdfl.topology.base import Topology
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.graph import Graph
from netdfl.topology.network import Network, without
from netdfl.topology.selection import AllNeighbors, Halves, RandomNeighbors, halves, inside
from netdfl.topology.static import edge_list
from netdfl.topology.weights import MixingMatrix, auto, uniform

STREAMS = Streams(31)
SIZES = range(1, 18)


def both(links: Iterable[Edge]) -> set[Edge]:
    return {edge for a, b in links for edge in ((a, b), (b, a)) if a != b}


def square(n: int) -> tuple[int, int]:
    rows = max(r for r in range(1, n + 1) if r * r <= n and n % r == 0)
    return rows, n // rows


def laid_out(n: int, *, joined: bool) -> set[Edge]:
    rows, cols = square(n)
    right = [
        (r * cols + c, r * cols + (c + 1) % cols) for r in range(rows) for c in range(cols) if joined or c + 1 < cols
    ]
    down = [
        (r * cols + c, (r + 1) % rows * cols + c) for r in range(rows) for c in range(cols) if joined or r + 1 < rows
    ]
    return both(right + down)


def ahead(n: int) -> list[int]:
    return [1 << k for k in range(10) if 1 << k < n]


STATIC: dict[str, tuple[dict[str, Any], Callable[[int], set[Edge]]]] = {
    "alone": ({}, lambda n: set()),
    "line": ({}, lambda n: both((i, i + 1) for i in range(n - 1))),
    "ring": ({}, lambda n: both((i, (i + 1) % n) for i in range(n))),
    "directed_ring": ({}, lambda n: {(i, (i + 1) % n) for i in range(n) if n > 1}),
    "exponential": ({}, lambda n: {(i, (i + d) % n) for i in range(n) for d in ahead(n)}),
    "full": ({}, lambda n: {(i, j) for i in range(n) for j in range(n) if i != j}),
    "star": ({}, lambda n: both((i, n - 1) for i in range(n))),
    "grid": ({}, lambda n: laid_out(n, joined=False)),
    "torus": ({}, lambda n: laid_out(n, joined=True)),
    "small_world": ({"neighbors": 2, "rewire": 0}, lambda n: both((i, (i + 1) % n) for i in range(n))),
    "erdos_renyi": ({"p": 1}, lambda n: {(i, j) for i in range(n) for j in range(n) if i != j}),
}


@pytest.mark.parametrize("name", STATIC)
def test_a_shape_has_the_links_of_its_definition_at_every_size(name: str) -> None:
    options, reference = STATIC[name]
    for n in SIZES if name != "small_world" else range(3, 18):
        topology = TOPOLOGIES[name](n, STREAMS, **options)
        found = set(topology.graph(0).edges)
        assert found == reference(n), n
        assert topology.directed == any((j, i) not in found for i, j in found)


@pytest.mark.parametrize("kind", ["grid", "torus"])
@pytest.mark.parametrize("rows", [None, *range(1, 14)])
def test_rows_and_columns_are_those_that_are_said_or_refused(kind: str, rows: int | None) -> None:
    make = TOPOLOGIES[kind]
    for cols in (None, *range(1, 14)):
        tall, wide = rows or (12 // cols if cols else 3), cols or 12 // (rows or 3)
        if tall * wide == 12:
            found = make(12, STREAMS, rows=rows, cols=cols).graph(0).edges
            assert found == make(12, STREAMS, rows=tall, cols=wide).graph(0).edges
            across = {(a, b) for a, b in found if a // wide == b // wide}
            assert (across == set()) == (wide == 1)
            assert ((0, wide) in found) == (tall > 1)
        else:
            with pytest.raises(ValueError, match=f"^{tall} rows of {wide} are {tall * wide} places for 12 nodes"):
                make(12, STREAMS, rows=rows, cols=cols)


@pytest.mark.parametrize("n", SIZES)
def test_random_pairs_are_the_neighbors_in_a_drawn_order(n: int) -> None:
    topology = TOPOLOGIES["random_pairs"](n, STREAMS, redraw_every=2)
    for round in (0, 5):
        order = STREAMS.rng("topology", "random_pairs", round // 2).permutation(n).tolist()
        assert set(topology.graph(round).edges) == both((order[i - 1], order[i]) for i in range(1, n, 2))


@pytest.mark.parametrize("n", SIZES)
def test_one_peer_of_an_exponential_graph_is_each_hop_in_turn(n: int) -> None:
    topology = TOPOLOGIES["one_peer_exponential"](n, STREAMS)
    assert (topology.directed, topology.time_varying) == (n > 1, n > 1)
    for round in range(7):
        hop = ahead(n)[round % len(ahead(n))] if n > 1 else 0
        assert set(topology.graph(round).edges) == {(i, (i + hop) % n) for i in range(n) if n > 1}


ONE, TWO = [[0, 1], [1, 2], [2, 0]], [[1, 2], [2, 3], [3, 1]]
SAID: dict[str, tuple[dict[str, Any], tuple[bool, int, bool]]] = {
    "alone": ({}, (False, 0, False)),
    "directed_ring": ({}, (True, 0, False)),
    "exponential": ({}, (True, 0, False)),
    "one_peer_exponential": ({}, (True, 1, False)),
    "random_pairs": ({"redraw_every": 3}, (False, 3, False)),
    "random_sym": ({"neighbors": 2, "redraw_every": 4}, (False, 4, False)),
    "random_push": ({"out_neighbors": 2, "redraw_every": 5}, (True, 5, False)),
    "random_pull": ({"neighbors": 2, "redraw_every": 6}, (True, 6, False)),
    "by_round": ({"rounds": [ONE, TWO], "directed": True}, (True, 1, False)),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_topology_says_of_itself(name: str) -> None:
    options, expected = SAID[name]
    topology = TOPOLOGIES[name](4, STREAMS, **options)
    assert (topology.directed, topology.redraw_every, topology.base is not None) == expected
    assert topology.receivers_know
    assert topology.weights is (uniform if name == "random_pull" else auto)
    assert topology.num_nodes == 4


def test_a_push_within_a_base_graph_may_take_all_of_it_and_all_others_are_no_base() -> None:
    topology = TOPOLOGIES["random_push"](9, STREAMS, out_neighbors=3, base_degree=3)
    assert topology.base is not None
    assert topology.graph(0).edges == topology.graph(7).edges == topology.base.edges
    assert TOPOLOGIES["random_push"](5, STREAMS, out_neighbors=2, base_degree=4).base is not None
    with pytest.raises(ValueError, match="base_degree is 5, but each of 5 nodes has 4 others"):
        TOPOLOGIES["random_push"](5, STREAMS, out_neighbors=2, base_degree=5)


@pytest.mark.parametrize("edge", [[], [0], [0, 1, 2], [0, 1, 1, 2]])
def test_an_edge_has_two_nodes_wherever_edges_are_listed(edge: list[int]) -> None:
    said = "is not an edge; write two nodes"
    for directed in (True, False):
        with pytest.raises(ValueError, match=said):
            TOPOLOGIES["edge_list"](3, STREAMS, edges=[[0, 1], [1, 2], edge], directed=directed)
        with pytest.raises(ValueError, match=f"^round 1 of by_round: .* {said}"):
            TOPOLOGIES["by_round"](3, STREAMS, rounds=[[[0, 1], [1, 2]], [edge]], directed=directed)


def test_links_come_from_a_list_or_from_a_file_and_not_from_both(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1\n")
    for edges, file in (([[0, 1]], str(tmp_path / "e.csv")), (None, None)):
        with pytest.raises(ValueError, match="from edges or from file; give one of the two"):
            edge_list(2, STREAMS, edges=edges, file=file)
    with pytest.raises(ValueError, match="the graph is not connected"):
        edge_list(2, STREAMS, edges=[])


@pytest.mark.parametrize(
    ("text", "n", "links"),
    [
        ("0,1,2\n2,0,1\n1,2,0\n", 3, [(0, 1), (2, 0), (1, 2)]),  # no numbers of lines
        ("1,0,2\n2,1,0\n0,2,1\n", 3, [(1, 0), (2, 1), (0, 2)]),
        ("0,0,1\n1,1,2\n2,2,0\n", 3, [(0, 1), (1, 2), (2, 0)]),
        ("0,1,9\n1,0,9\n", 2, [(0, 1), (1, 0)]),  # the third column names no node
        ("0,1,1\n1,0,0\n", 2, [(0, 1), (1, 0)]),  # a node does not link itself
        ("0,1,x\n1,0,y\n", 2, [(0, 1), (1, 0)]),
        ("0,1\n1,0\n", 2, [(0, 1), (1, 0)]),
        ("0,1\n1,0,5\n", 2, [(0, 1), (1, 0)]),
        ("2.0,1.\n1,0\n0,2.000\n", 3, [(2, 1), (1, 0), (0, 2)]),
    ],
)
def test_the_columns_of_a_table_without_heads(text: str, n: int, links: list[Edge], tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(text)
    made = edge_list(n, STREAMS, file=str(tmp_path / "e.csv"), directed=True)
    assert set(made.graph(0).edges) == set(links)


def test_links_have_two_readings_where_two_pairs_of_columns_are_graphs(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,2,0\n1,2,1\n")
    with pytest.raises(ValueError, match="may be the lines' own numbers or a node"):
        edge_list(3, STREAMS, file=str(tmp_path / "e.csv"))


# halves


def test_the_halves_of_a_graph_are_the_distances_from_its_first_node() -> None:
    tail = Topology(6, lambda _: Graph.undirected(6, [(0, 3), (3, 1), (1, 5), (5, 4), (4, 2)]), directed=False)
    assert halves(tail).passive == {0, 1, 4}
    varying = Topology(6, tail.graph, directed=False, redraw_every=1)
    assert halves(varying).passive == {0, 2, 4}
    chosen = halves(tail, RandomNeighbors(6, STREAMS, k=1, known=False))
    assert (chosen.passive, chosen.receivers_know) == ({0, 1, 4}, False)
    assert not halves(varying, chosen).receivers_know


def test_links_inside_a_half_are_named_once() -> None:
    graph = Graph.undirected(5, [(0, 1), (1, 2), (2, 0), (3, 1), (3, 4)])
    assert inside(graph, Halves(frozenset({0, 2, 3}))) == ((0, 2),)
    assert inside(graph, Halves(frozenset({0, 2, 4}))) == ((0, 2), (1, 3))


# views


def off_by(much: float) -> Callable[[Graph], MixingMatrix]:
    """Column weights of which a sender keeps so much too little."""

    def weights(graph: Graph) -> MixingMatrix:
        made = WEIGHTS["column"](graph)
        return MixingMatrix(graph, made.on_edges, made.on_self - much)

    return weights


def test_where_receivers_do_not_know_shares_sum_to_1_but_for_rounding() -> None:
    full, private = TOPOLOGIES["full"](4, STREAMS), RandomNeighbors(4, STREAMS, k=2, known=False)
    for much in (0.0, 0.9e-9, -0.9e-9):
        assert not Network(full, off_by(much), private).receivers_know
    for much in (1.1e-9, -1.1e-9):
        with pytest.raises(ValueError, match="receivers don't know who will send"):
            Network(full, off_by(much), private)


def test_a_star_whose_graph_changes_has_no_server() -> None:
    star = TOPOLOGIES["star"](4, STREAMS).graph(0)
    with pytest.raises(ValueError, match="the server, node 3, is not the hub of a star with clients 0 to 2"):
        Network(Topology(4, lambda _: star, directed=False, redraw_every=1), server=3)
    more = Graph.undirected(4, [*((client, 3) for client in range(3)), (0, 1)])
    with pytest.raises(ValueError, match="not the hub of a star"):
        Network(Topology(4, lambda _: more, directed=False), server=3)
    assert Network(Topology(4, lambda _: star, directed=False), server=3).server == 3


def test_what_nobody_chose_is_everything_of_the_topologys_own() -> None:
    pull = Network(TOPOLOGIES["random_pull"](5, STREAMS, neighbors=2))
    assert pull.weights is uniform
    assert isinstance(pull.selection, AllNeighbors)
    assert (pull.num_nodes, pull.receivers_know, pull.varies) == (5, True, True)
    assert not Network(TOPOLOGIES["ring"](5, STREAMS)).varies
    one = Network(TOPOLOGIES["random_pull"](5, STREAMS, neighbors=2), auto)
    assert one.weights is auto


def test_the_gone_leave_each_side_of_a_view_alone() -> None:
    """Node 1 of a directed ring hears 0 and sends to 2."""
    view = Network(TOPOLOGIES["directed_ring"](4, STREAMS)).view(1, 0)
    heard, sent = (without(view, frozenset({gone}), keep="rows") for gone in (0, 2))
    assert (heard.in_neighbors, heard.out_neighbors, heard.self_weight) == ((), (2,), 1.0)
    assert (sent.in_neighbors, sent.out_neighbors, sent.self_weight) == ((0,), (), 0.5)
    assert (sent.in_weights, sent.out_weights) == ({0: 0.5}, {})
    heard, sent = (without(view, frozenset({gone}), keep="columns") for gone in (0, 2))
    assert (heard.in_weights, heard.out_weights, heard.self_weight) == ({}, {2: 0.5}, 0.5)
    assert (sent.in_weights, sent.out_weights, sent.self_weight) == ({0: 0.5}, {}, 1.0)
