"""Graphs and the topologies that draw them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.graph import Graph
from netdfl.topology.static import edge_list, erdos_renyi, graphml, grid, hops, small_world, star, torus
from netdfl.topology.varying import by_round, one_peer_exponential, random_pairs, random_pull, random_push, random_sym

STREAMS = Streams(7)
BARE = sorted(set(TOPOLOGIES) - {"edge_list", "graphml", "gml", "by_round"})


@st.composite
def edge_sets(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(1, 9))
    every = [(i, j) for i in range(n) for j in range(n) if i != j]
    return n, draw(st.lists(st.sampled_from(every), max_size=30)) if every else []


@given(edge_sets())
def test_a_graph_says_what_networkx_says(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = case
    graph, reference = Graph(n, edges), nx.DiGraph(edges)
    reference.add_nodes_from(range(n))
    assert graph.edges == tuple(sorted(set(edges)))
    for node in range(n):
        assert graph.out_neighbors(node) == tuple(sorted(reference.successors(node)))
        assert graph.in_neighbors(node) == tuple(sorted(reference.predecessors(node)))
    assert graph.is_symmetric == all((j, i) in set(edges) for i, j in edges)
    assert graph.is_strongly_connected == nx.is_strongly_connected(reference)
    component = next(c for c in nx.strongly_connected_components(reference) if 0 in c)
    assert graph.cut_off == tuple(sorted(set(range(n)) - component))
    assert Graph.from_networkx(graph.to_networkx()).edges == graph.edges


def test_the_arrays_of_a_graph_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Graph(3, [(0, 1)]).src[0] = 2


@pytest.mark.parametrize(
    ("edges", "message"),
    [([(0, 3)], "names a node that does not exist; nodes are 0 to 2"), ([(1, 1)], "self loop"), ([(-1, 0)], "0 to 2")],
)
def test_a_wrong_edge_is_named(edges: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph(3, edges)


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("n", [16, 25])
def test_every_topology_is_drawn_again_from_the_same_seed(name: str, n: int) -> None:
    first, second = (TOPOLOGIES[name](n, Streams(3)) for _ in range(2))
    for t in (0, 1, 5, 40):
        assert first.graph(t).edges == second.graph(t).edges
        assert first.graph(t).num_nodes == n
        assert first.directed or first.graph(t).is_symmetric
    if not first.time_varying:
        assert first.graph(0) is first.graph(99)
        assert first.graph(0).is_strongly_connected or name == "alone"


def test_graphs_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from netdfl.core.rng import Streams; from netdfl.topology.catalog import TOPOLOGIES as T\n"
        f"for name in {BARE}: print(T[name](12, Streams(5)).graph(3).edges)"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env |= {"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    printed = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True)
    here = [str(TOPOLOGIES[name](12, Streams(5)).graph(3).edges) for name in BARE]
    assert printed.stdout.decode().splitlines() == here


@pytest.mark.parametrize("name", ["erdos_renyi", "small_world", "random_sym", "random_push", "random_pull"])
def test_another_seed_gives_another_graph(name: str) -> None:
    assert TOPOLOGIES[name](30, Streams(1)).graph(0).edges != TOPOLOGIES[name](30, Streams(2)).graph(0).edges


def test_regular_shapes_match_networkx() -> None:
    square = nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 5), ordering="sorted")
    assert grid(20, STREAMS).graph(0).edges == Graph.from_networkx(square).edges
    joined = nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 5, periodic=True), ordering="sorted")
    assert torus(15, STREAMS, cols=5).graph(0).edges == Graph.from_networkx(joined).edges
    for name, reference in (("ring", nx.cycle_graph(9)), ("full", nx.complete_graph(9)), ("star", nx.star_graph(8))):
        assert nx.is_isomorphic(TOPOLOGIES[name](9, STREAMS).graph(0).to_networkx(), reference.to_directed())
    assert nx.is_isomorphic(
        TOPOLOGIES["directed_ring"](9, STREAMS).graph(0).to_networkx(), nx.cycle_graph(9, nx.DiGraph)
    )


def test_exponential_hops_are_the_powers_of_two_below_n() -> None:
    assert [hops(n) for n in (1, 2, 16, 17)] == [[], [1], [1, 2, 4, 8], [1, 2, 4, 8, 16]]
    assert TOPOLOGIES["exponential"](6, STREAMS).graph(0).out_neighbors(5) == (0, 1, 3)


def test_the_hub_of_a_star_is_the_last_node_unless_named() -> None:
    assert star(4, STREAMS).graph(0).out_neighbors(3) == (0, 1, 2)
    assert star(4, STREAMS, hub=1).graph(0).out_neighbors(1) == (0, 2, 3)


@pytest.mark.parametrize(
    "name", ["line", "ring", "full", "grid", "torus", "star", "exponential", "one_peer_exponential"]
)
def test_small_fleets_are_fine(name: str) -> None:
    assert TOPOLOGIES[name](1, STREAMS).graph(0).edges == ()
    assert TOPOLOGIES[name](2, STREAMS).graph(0).edges == ((0, 1), (1, 0))


@given(st.integers(3, 24), st.integers(2, 23), st.integers(0, 1000), st.integers(0, 50))
def test_random_sym_is_regular_symmetric_and_connected(n: int, k: int, seed: int, t: int) -> None:
    k = min(k, n - 1) - (n * min(k, n - 1)) % 2
    if k < 2:
        return
    graph = random_sym(n, Streams(seed), neighbors=k).graph(t)
    assert set(graph.out_degrees.tolist()) == {k}
    assert graph.is_symmetric
    assert graph.is_strongly_connected


def test_random_sym_serves_a_thousand_nodes() -> None:
    graph = random_sym(1000, STREAMS, neighbors=10).graph(4)
    assert set(graph.out_degrees.tolist()) == {10}
    assert graph.is_strongly_connected


@given(st.integers(2, 40), st.integers(1, 39), st.integers(0, 1000))
def test_random_push_and_pull_pick_distinct_others(n: int, k: int, seed: int) -> None:
    k = min(k, n - 1)
    push, pull = (
        f(n, Streams(seed), **{key: k}) for f, key in ((random_push, "out_neighbors"), (random_pull, "neighbors"))
    )
    assert set(push.graph(2).out_degrees.tolist()) == {k}
    assert set(pull.graph(2).in_degrees.tolist()) == {k}


def test_each_other_node_is_picked_equally_often() -> None:
    topology = random_push(8, STREAMS, out_neighbors=2)
    counts = np.zeros((8, 8))
    for t in range(1400):
        graph = topology.graph(t)
        counts[graph.src, graph.dst] += 1
    expected = 1400 * 2 / 7
    off_diagonal = counts[~np.eye(8, dtype=bool)]
    assert abs(off_diagonal - expected).max() < 6 * np.sqrt(expected)


def test_random_push_stays_on_its_base_graph() -> None:
    topology = random_push(30, STREAMS, out_neighbors=2, base_degree=6)
    used = {edge for t in range(300) for edge in topology.graph(t).edges}
    base = Graph(30, sorted(used))
    assert set(base.out_degrees.tolist()) == {6}
    assert base.is_strongly_connected
    assert set(topology.graph(9).out_degrees.tolist()) == {2}


@pytest.mark.parametrize("make", [random_sym, random_push, random_pull])
def test_graphs_are_redrawn_as_often_as_told(make) -> None:  # type: ignore[no-untyped-def]
    every3 = make(20, STREAMS, redraw_every=3)
    assert every3.graph(3) is every3.graph(5)
    assert every3.graph(2).edges != every3.graph(3).edges
    assert every3.graph(3).edges == make(20, STREAMS).graph(1).edges
    never = make(20, STREAMS, redraw_every=0)
    assert never.graph(0) is never.graph(1000)
    assert not never.time_varying
    assert never.graph(0).is_strongly_connected


def test_one_peer_exponential_takes_the_hops_in_turn() -> None:
    topology = one_peer_exponential(8, STREAMS)
    assert [topology.graph(t).out_neighbors(6) for t in range(4)] == [(7,), (0,), (2,), (7,)]


def test_a_line_is_a_ring_without_its_last_edge() -> None:
    line, ring = TOPOLOGIES["line"](6, STREAMS).graph(0), TOPOLOGIES["ring"](6, STREAMS).graph(0)
    assert set(ring.edges) - set(line.edges) == {(5, 0), (0, 5)}
    assert set(line.edges) < set(ring.edges)


@given(st.integers(1, 24), st.integers(0, 1000), st.integers(1, 5), st.integers(0, 50))
def test_random_pairs_leave_nobody_out_but_the_last_of_an_odd_number(n: int, seed: int, every: int, t: int) -> None:
    topology = random_pairs(n, Streams(seed), redraw_every=every)
    graph = topology.graph(t)
    assert graph.is_symmetric
    assert sorted(graph.out_degrees.tolist()) == [0] * (n % 2) + [1] * (n - n % 2)
    assert graph is topology.graph(t // every * every)


def test_random_pairs_are_each_as_likely() -> None:
    """15 pairings of six nodes in 3,000 rounds: chi-square with 14 degrees of freedom stays below its .999 point."""
    topology = random_pairs(6, STREAMS)
    counts = Counter(topology.graph(t).edges for t in range(3000))
    assert len(counts) == 15
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 36.1


def test_alone_has_no_links_and_is_no_mistake() -> None:
    topology = TOPOLOGIES["alone"](5, STREAMS)
    assert topology.graph(0).edges == ()
    assert not topology.time_varying


def test_by_round_begins_again() -> None:
    topology = by_round(3, STREAMS, rounds=[[[0, 1]], [[1, 2]]])
    assert topology.graph(5).edges == ((1, 2), (2, 1))
    assert by_round(3, STREAMS, rounds=[[[0, 1], [1, 2]], [[2, 0]]], directed=True).graph(2).edges == ((0, 1), (1, 2))


def test_edges_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("src,dst\n0,1\n# the way back\n1, 2\n\n2,0\n")
    inline = edge_list(3, STREAMS, edges=[[0, 1], [1, 2], [2, 0]], directed=True)
    assert edge_list(3, STREAMS, file=str(file), directed=True).graph(0).edges == inline.graph(0).edges
    assert edge_list(3, STREAMS, file=str(file)).graph(0).is_symmetric


@pytest.mark.parametrize("names", [[0, 1, 2, 3], ["a", "b", "c", "d"]])
def test_a_graph_from_graphml(tmp_path: Path, names: list[object]) -> None:
    graph, file = nx.DiGraph(), str(tmp_path / "g.graphml")
    nx.add_cycle(graph, names)
    nx.write_graphml(graph, file)
    assert graphml(4, STREAMS, file=file).graph(0).edges == ((0, 1), (1, 2), (2, 3), (3, 0))


@pytest.mark.parametrize(
    ("name", "n", "options", "message"),
    [
        ("random_sym", 5, {"neighbors": 3}, "5 nodes can't have 3 neighbors each.*odd; take 4"),
        ("random_sym", 4, {"neighbors": 4}, "neighbors is 4, but each of 4 nodes has 3 others"),
        ("random_sym", 8, {"neighbors": 1}, "no connected graph in 1000 draws; give each node at least 2"),
        ("random_push", 4, {"out_neighbors": 4}, "out_neighbors is 4, but"),
        ("random_push", 9, {"out_neighbors": 4, "base_degree": 3}, "out_neighbors is 4, but base_degree 3"),
        ("random_push", 60, {"out_neighbors": 1, "base_degree": 1}, "raise base_degree"),
        ("random_push", 60, {"out_neighbors": 1, "redraw_every": 0}, "raise out_neighbors"),
        ("erdos_renyi", 50, {"p": 0.001}, r"raise p well above ln\(n\)/n = 0.0782"),
        ("small_world", 10, {"neighbors": 3}, "even number below the 10 nodes"),
        ("grid", 12, {"rows": 5}, "rows \\* cols must be n"),
        ("star", 3, {"hub": 3}, "hub 3 does not exist; name a node from 0 to 2"),
        ("edge_list", 3, {}, "from edges or from file; give one"),
        ("edge_list", 3, {"edges": [[0, 1, 2]]}, "not an edge; write two nodes"),
        ("edge_list", 5, {"edges": [[0, 1], [2, 3]]}, r"not connected: 3 of 5 nodes \(node 2, 3, 4\)"),
        ("edge_list", 3, {"edges": [[0, 1], [1, 2]], "directed": True}, "not connected"),
        ("edge_list", 3, {"file": "/nowhere/e.csv"}, "can't read /nowhere/e.csv"),
        ("graphml", 3, {"file": "/nowhere/g"}, "can't read /nowhere/g"),
        ("by_round", 3, {"rounds": []}, "no rounds"),
        ("by_round", 3, {"rounds": [[[0, 1]], [[1, 7]]]}, "round 1 of by_round: edge .* does not exist"),
        ("by_round", 3, {"rounds": [[[0, 1]]]}, "the union of all rounds is not connected"),
    ],
)
def test_mistakes_are_named_with_their_remedy(name: str, n: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TOPOLOGIES[name](n, STREAMS, **options)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    csv, xml = tmp_path / "e.csv", tmp_path / "g.graphml"
    csv.write_text("0,1\n1,x\n")
    xml.write_text("<graphml")
    with pytest.raises(ValueError, match=r"e.csv:2: '1,x' is not an edge"):
        edge_list(3, STREAMS, file=str(csv))
    with pytest.raises(ValueError, match="is not GraphML"):
        graphml(3, STREAMS, file=str(xml))
    nx.write_graphml(nx.path_graph(3), xml)
    with pytest.raises(ValueError, match="has 3 nodes, expected the scenario's 4"):
        graphml(4, STREAMS, file=str(xml))


def test_random_shapes_are_what_they_say() -> None:
    assert small_world(20, STREAMS, rewire=0).graph(0).out_neighbors(0) == (1, 2, 18, 19)
    assert erdos_renyi(10, STREAMS, p=1).graph(0).num_edges == 90
    assert erdos_renyi(40, STREAMS, p=0.2, directed=True).directed
