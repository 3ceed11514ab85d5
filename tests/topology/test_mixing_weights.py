"""Mixing weights: what they conserve, and the published spectra (ALGORITHMS.md, section 5)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.graph import Graph
from netdfl.topology.spectrum import Stochasticity, psi, spectral_gap, stochasticity
from netdfl.topology.varying import one_peer_exponential, random_pull, random_push, random_sym
from netdfl.topology.weights import auto, column, max_degree, metropolis, uniform

STREAMS = Streams(11)


def matrix(name: str, n: int, weights: str, **options: object) -> np.ndarray:
    return WEIGHTS[weights](TOPOLOGIES[name](n, STREAMS, **options).graph(0)).dense()


@pytest.mark.parametrize(
    ("name", "options", "weights", "expected"),
    [
        ("ring", {}, "metropolis", (".9493", ".99679", ".998684")),
        ("grid", {}, "metropolis", (".8686", ".9677", ".9795")),
        ("grid", {}, "max_degree", (".8828", ".9696", ".9804")),
        ("torus", {}, "uniform", (".600", ".8828", ".9236")),
        ("exponential", {}, "column", (".600", ".714", ".750")),
        ("exponential", {"symmetric": True}, "metropolis", (".500", ".667", ".733")),
    ],
)
def test_psi_is_as_printed(name: str, options: dict[str, object], weights: str, expected: tuple[str, ...]) -> None:
    for n, printed in zip((16, 64, 100), expected, strict=True):
        assert abs(psi(matrix(name, n, weights, **options)) - float(printed)) <= 0.5001 * 10.0 ** -(len(printed) - 1)


def test_psi_in_closed_form() -> None:
    for n in (16, 64, 100):
        assert psi(matrix("ring", n, "auto")) == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi / n), abs=1e-12)
        tau = (n - 1).bit_length()
        assert psi(matrix("exponential", n, "column")) == pytest.approx((tau - 1) / (tau + 1), abs=1e-12)
        assert psi(matrix("full", n, "metropolis")) == pytest.approx(0, abs=1e-12)


def test_a_random_regular_graph_contracts_as_one() -> None:
    assert 0.5 < psi(auto(random_sym(100, STREAMS, neighbors=10).graph(0)).dense()) < 0.75


def test_several_exchanges_contract_as_the_power_of_one() -> None:
    once = matrix("grid", 25, "metropolis")
    assert psi(np.linalg.matrix_power(once, 4)) == pytest.approx(psi(once) ** 4, abs=1e-12)
    assert psi(once) == pytest.approx(0.9162, abs=5e-5)


def test_spectral_gap_is_one_less_psi_where_symmetric() -> None:
    ring = matrix("ring", 16, "metropolis")
    assert spectral_gap(ring) == pytest.approx(1 - psi(ring), abs=1e-12)
    assert spectral_gap(np.ones((1, 1))) == 1
    directed = matrix("directed_ring", 8, "column")
    assert spectral_gap(directed) == pytest.approx(1 - np.cos(np.pi / 8), abs=1e-12)


@st.composite
def graphs(draw: st.DrawFn, symmetric: bool) -> Graph:
    n = draw(st.integers(2, 10))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])
    edges = draw(st.lists(pairs, max_size=40))
    return Graph.undirected(n, edges) if symmetric else Graph(n, edges)


@given(graphs(symmetric=True), st.booleans())
def test_metropolis_and_max_degree_are_symmetric_and_doubly_stochastic(graph: Graph, lazy: bool) -> None:
    for weights in (metropolis, max_degree, auto):
        assert stochasticity(weights(graph, lazy=lazy).dense()) == Stochasticity(True, True, True)


@given(graphs(symmetric=False), st.booleans())
def test_uniform_keeps_rows_and_column_keeps_columns(graph: Graph, lazy: bool) -> None:
    assert stochasticity(uniform(graph, lazy=lazy).dense()).rows
    assert stochasticity(column(graph, lazy=lazy).dense()).columns
    assert stochasticity(auto(graph, lazy=lazy).dense()).columns


@given(graphs(symmetric=True))
def test_lazy_weights_are_halfway_to_the_identity(graph: Graph) -> None:
    for weights in WEIGHTS.values():
        expected = (np.eye(graph.num_nodes) + weights(graph).dense()) / 2
        np.testing.assert_array_equal(weights(graph, lazy=True).dense(), expected)


@given(graphs(symmetric=False))
def test_sparse_and_dense_weights_agree(graph: Graph) -> None:
    for weights in (uniform, column, auto):
        mixing = weights(graph)
        dense = mixing.dense()
        for node in range(graph.num_nodes):
            own, received, sent = mixing.node(node)
            assert own == dense[node, node]
            assert received == {j: dense[node, j] for j in graph.in_neighbors(node)}
            assert sent == {j: dense[j, node] for j in graph.out_neighbors(node)}
        assert np.count_nonzero(dense) == graph.num_edges + graph.num_nodes


def test_weights_of_small_graphs_are_those_worked_out_by_hand() -> None:
    path = Graph.undirected(3, [(0, 1), (1, 2)])
    np.testing.assert_allclose(metropolis(path).dense() * 3, [[2, 1, 0], [1, 1, 1], [0, 1, 2]])
    np.testing.assert_allclose(uniform(path).dense() * 6, [[3, 3, 0], [2, 2, 2], [0, 3, 3]])
    np.testing.assert_allclose(column(path).dense() * 6, [[3, 2, 0], [3, 2, 3], [0, 2, 3]])
    fork = Graph(3, [(0, 1), (0, 2), (1, 0), (2, 0)])
    np.testing.assert_array_equal(column(Graph(3, [(0, 1)])).dense(), [[0.5, 0, 0], [0.5, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(max_degree(fork).dense() * 3, [[1, 1, 1], [1, 2, 0], [1, 0, 2]])


@pytest.mark.parametrize(
    ("name", "weights", "kind"),
    [
        ("grid", "uniform", "row"),
        ("grid", "column", "column"),
        ("grid", "metropolis", "doubly"),
        ("exponential", "column", "doubly"),
        ("exponential", "uniform", "doubly"),
        ("directed_ring", "auto", "doubly"),
        ("one_peer_exponential", "auto", "doubly"),
        ("random_sym", "uniform", "doubly"),
        ("random_push", "auto", "column"),
        ("star", "auto", "doubly"),
    ],
)
def test_matrices_are_classified(name: str, weights: str, kind: str) -> None:
    assert stochasticity(matrix(name, 20, weights)).kind == kind


def test_what_is_not_stochastic_is_told() -> None:
    assert stochasticity(np.eye(3) * 2).kind == "none"
    assert stochasticity(np.array([[2.0, -1.0], [-1.0, 2.0]])) == Stochasticity(False, False, True)


def test_the_column_sums_of_a_uniform_grid_are_as_published() -> None:
    sums = matrix("grid", 100, "uniform").sum(axis=0)
    assert (round(sums.min(), 3), round(sums.max(), 3)) == (0.833, 1.1)


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_one_peer_exponential_averages_exactly_in_log2_n_rounds(n: int) -> None:
    topology = one_peer_exponential(n, STREAMS)
    product = np.eye(n)
    for t in range(n.bit_length() - 1):
        product = auto(topology.graph(t)).dense() @ product
    np.testing.assert_array_equal(product, np.full((n, n), 1 / n))


def test_random_push_splits_each_column_into_equal_shares() -> None:
    topology = random_push(100, STREAMS, out_neighbors=10)
    for t in range(5):
        dense = topology.weights(topology.graph(t)).dense()
        np.testing.assert_allclose(dense.sum(axis=0), 1, atol=1e-14)
        assert (np.count_nonzero(dense, axis=0) == 11).all()
        assert set(np.unique(dense)) == {0, 1 / 11}


def test_random_pull_weighs_rows_equally_and_columns_not() -> None:
    topology = random_pull(100, STREAMS, neighbors=10)
    dense = topology.weights(topology.graph(0)).dense()
    assert stochasticity(dense).kind == "row"
    assert (np.count_nonzero(dense, axis=1) == 11).all()


@pytest.mark.parametrize("weights", [metropolis, partial(max_degree, lazy=True)])
def test_symmetric_weights_refuse_one_way_links(weights) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="0->1 has no 1->0; use column weights with push-sum"):
        weights(Graph(3, [(0, 1), (1, 2), (2, 0)]))
