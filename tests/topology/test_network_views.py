"""Views: all nodes' parts of one matrix, with selection, with a server, and without the gone."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.core.types import NodeId, Role
from netdfl.topology.base import Topology
from netdfl.topology.catalog import SELECTIONS, TOPOLOGIES
from netdfl.topology.network import Network, without
from netdfl.topology.selection import RandomNeighbors, sampled
from netdfl.topology.spectrum import stochasticity
from netdfl.topology.varying import by_round
from netdfl.topology.weights import column, metropolis, uniform

STREAMS = Streams(23)
BARE = sorted(set(TOPOLOGIES) - {"edge_list", "graphml", "gml", "by_round"})


def network(name: str, n: int = 16, **options: object) -> Network:
    return Network(TOPOLOGIES[name](n, STREAMS, **options))


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize("k", [None, 2])
def test_the_views_of_all_nodes_are_one_matrix(name: str, k: int | None) -> None:
    topology = TOPOLOGIES[name](16, STREAMS)
    net = Network(topology, selection=SELECTIONS["random_k"](16, STREAMS, k=k) if k else None)
    for t in (0, 3):
        matrix = net.matrix(t)
        for i in range(16):
            view = net.view(i, t)
            assert (view.node, view.round, view.num_nodes, view.active) == (i, t, 16, True)
            assert view.in_neighbors == net.graph(t).in_neighbors(i) == tuple(view.in_weights)
            assert view.out_neighbors == net.graph(t).out_neighbors(i) == tuple(view.out_weights)
            row = np.zeros(16)
            row[[i, *view.in_weights]] = [view.self_weight, *view.in_weights.values()]
            np.testing.assert_array_equal(row, matrix[i])
        np.testing.assert_array_equal(matrix, net.weights(net.graph(t)).dense())


def test_the_topology_says_its_own_weights() -> None:
    assert stochasticity(network("random_pull", 30).matrix(0)).kind == "row"
    assert stochasticity(network("random_push", 30).matrix(4)).kind == "column"
    assert stochasticity(network("random_sym", 30).matrix(4)).kind == "doubly"
    assert stochasticity(Network(TOPOLOGIES["random_pull"](30, STREAMS), column).matrix(0)).kind == "column"


def test_a_round_without_links_keeps_everything() -> None:
    net = Network(by_round(3, STREAMS, rounds=[[[0, 1], [1, 2]], []]))
    np.testing.assert_array_equal(net.matrix(1), np.eye(3))


@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 99))
def test_random_k_sends_to_k_neighbors_drawn_from_the_seed(k: int, t: int, seed: int) -> None:
    topology = TOPOLOGIES["exponential"](20, STREAMS)
    net = Network(topology, selection=RandomNeighbors(20, Streams(seed), k=k))
    again = Network(topology, selection=RandomNeighbors(20, Streams(seed), k=k))
    assert net.graph(t).edges == again.graph(t).edges
    assert set(net.graph(t).edges) <= set(topology.graph(t).edges)
    assert set(net.graph(t).out_degrees.tolist()) == {min(k, 5)}
    np.testing.assert_allclose(net.matrix(t).sum(axis=0), 1, atol=1e-14)


def test_random_k_picks_each_neighbor_equally_often() -> None:
    selection, counts = RandomNeighbors(9, STREAMS, k=2), np.zeros(9)
    for t in range(1200):
        counts[list(selection.select(4, t, (0, 2, 3, 5, 7, 8)))] += 1
    assert counts[[1, 4, 6]].tolist() == [0, 0, 0]
    assert abs(counts[[0, 2, 3, 5, 7, 8]] - 400).max() < 6 * 20


def test_receivers_of_a_private_selection_do_not_know() -> None:
    topology = TOPOLOGIES["full"](12, STREAMS)
    known = Network(topology, column, RandomNeighbors(12, STREAMS, k=3))
    private = Network(topology, None, RandomNeighbors(12, STREAMS, k=3, known=False))
    assert known.receivers_know
    assert not private.receivers_know
    for node in range(12):
        ours, theirs = private.view(node, 5), known.view(node, 5)
        assert ours.in_neighbors is None
        assert ours.in_weights == {}
        assert (ours.out_neighbors, ours.self_weight) == (theirs.out_neighbors, theirs.self_weight)
        assert ours.out_weights == theirs.out_weights
    np.testing.assert_array_equal(private.matrix(5), known.matrix(5))


def test_of_a_private_graph_every_other_node_may_send_and_be_sent_to() -> None:
    full = TOPOLOGIES["full"](4, STREAMS).graph(0)
    for known in (True, False):
        selection = RandomNeighbors(4, STREAMS, k=2, known=False)
        net = Network(Topology(4, lambda _: full, directed=True, receivers_know=known), None, selection)
        view = net.view(1, 3)
        assert (view.may_hear, view.may_send_to) == ((0, 2, 3), (0, 2, 3))
    ring = Network(Topology(4, lambda _: full, directed=True, receivers_know=False))
    assert ring.view(0, 0).may_hear == (1, 2, 3)


class ByLoss:
    """A selection that learns at run time: the neighbors with the largest loss."""

    receivers_know = False

    def __init__(self) -> None:
        self.losses: dict[NodeId, float] = {}
        self.asked: list[NodeId] = []

    def select(self, node: NodeId, round: int, candidates: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        self.asked.append(node)
        return tuple(sorted(sorted(candidates, key=lambda j: -self.losses.get(j, 0.0))[:2]))


def test_a_selection_by_node_state_is_asked_for_its_own_node_only() -> None:
    selection = ByLoss()
    net = Network(TOPOLOGIES["full"](6, STREAMS), selection=selection)
    selection.losses = {4: 2.0, 5: 1.0}
    view = net.view(1, 0)
    assert (view.out_neighbors, view.self_weight, view.out_weights) == ((4, 5), 1 / 3, {4: 1 / 3, 5: 1 / 3})
    selection.losses = {0: 2.0, 3: 1.0}
    assert net.view(1, 1).out_neighbors == (0, 3)
    assert set(selection.asked) == {1}


@pytest.mark.parametrize("weights", [uniform, metropolis])
def test_receivers_that_do_not_know_cannot_weigh(weights) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"receivers don't know who will send.*use column weights"):
        Network(TOPOLOGIES["full"](6, STREAMS), weights, RandomNeighbors(6, STREAMS, known=False))


def test_weights_that_do_not_fit_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="metropolis weights need links in both directions"):
        Network(TOPOLOGIES["directed_ring"](6, STREAMS), metropolis)
    with pytest.raises(ValueError, match="without neighbor selection"):
        Network(TOPOLOGIES["full"](6, STREAMS), metropolis, RandomNeighbors(6, STREAMS, k=2))


def test_the_server_hears_whom_it_sampled() -> None:
    net = Network(TOPOLOGIES["star"](11, STREAMS), server=10, participants=sampled(10, STREAMS, participation=0.3))
    seen: set[NodeId] = set()
    for t in range(30):
        server = net.view(10, t)
        active = server.out_neighbors
        seen.update(active)
        assert (server.role, server.in_neighbors, len(active)) == (Role.SERVER, active, 3)
        assert server.self_weight == 0
        assert server.in_weights == dict.fromkeys(active, 1 / 3)
        assert server.num_nodes == 10
        for client in range(10):
            view = net.view(client, t)
            assert (view.role, view.server, view.active) == (Role.CLIENT, 10, client in active)
            assert view.num_nodes == 10
            assert view.in_neighbors == view.out_neighbors == ((10,) if view.active else ())
        assert net.graph(t).out_neighbors(10) == active
        np.testing.assert_allclose(net.matrix(t).sum(axis=1), 1, atol=1e-15)
    assert seen == set(range(10))


def test_every_client_takes_part_unless_sampled() -> None:
    assert Network(TOPOLOGIES["star"](5, STREAMS), server=4).view(4, 0).in_neighbors == (0, 1, 2, 3)


@pytest.mark.parametrize(("participation", "count"), [(1.0, 20), (0.1, 2), (0.001, 1), (5, 5), (20, 20)])
def test_participation_is_a_fraction_or_a_count(participation: float, count: int) -> None:
    draw = sampled(20, STREAMS, participation=participation)
    assert len(set(draw(3))) == count
    assert draw(3) == sampled(20, STREAMS, participation=participation)(3)


@pytest.mark.parametrize("participation", [21, 2.5])
def test_a_wrong_participation_is_named(participation: float) -> None:
    with pytest.raises(ValueError, match="a fraction up to 1, or a whole number of the 20 clients"):
        sampled(20, STREAMS, participation=participation)


@pytest.mark.parametrize(("name", "options", "server"), [("ring", {}, 5), ("star", {"hub": 0}, 5), ("star", {}, 0)])
def test_a_server_needs_a_star(name: str, options: dict[str, object], server: int) -> None:
    with pytest.raises(ValueError, match="needs topology kind star"):
        Network(TOPOLOGIES[name](6, STREAMS, **options), server=server)


def survivors(net: Network, gone: frozenset[int], keep: Literal["rows", "columns"]) -> np.ndarray:
    matrix = np.zeros((net.num_nodes, net.num_nodes))
    for node in set(range(net.num_nodes)) - gone:
        view = without(net.view(node, 2), gone, keep=keep)
        assert gone.isdisjoint(view.out_neighbors)
        assert gone.isdisjoint(view.in_neighbors or ())
        matrix[node, node] = view.self_weight
        if keep == "columns":
            matrix[list(view.out_weights), node] = list(view.out_weights.values())
        else:
            matrix[node, list(view.in_weights)] = list(view.in_weights.values())
    left = sorted(set(range(net.num_nodes)) - gone)
    return matrix[np.ix_(left, left)]


@given(st.frozensets(st.integers(0, 15), min_size=1, max_size=14), st.sampled_from(["grid", "random_sym", "ring"]))
def test_without_the_gone_gossip_on_two_way_links_keeps_the_mean(gone: frozenset[int], name: str) -> None:
    matrix = survivors(network(name), gone, "rows")
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-14)


@given(st.frozensets(st.integers(0, 15), min_size=1, max_size=14))
def test_without_the_gone_rows_stay_averages(gone: frozenset[int]) -> None:
    np.testing.assert_allclose(survivors(network("random_pull"), gone, "rows").sum(axis=1), 1, atol=1e-14)


@given(st.frozensets(st.integers(0, 15), min_size=1, max_size=14))
def test_without_the_gone_push_sum_keeps_all_mass(gone: frozenset[int]) -> None:
    for name in ("random_push", "exponential", "grid"):
        matrix = survivors(network(name), gone, "columns")
        np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-14)
        if name != "grid":
            np.testing.assert_allclose(np.diag(matrix), 1 / np.count_nonzero(matrix, axis=0), atol=1e-14)


def test_without_a_stranger_nothing_changes() -> None:
    view = network("ring").view(3, 0)
    assert without(view, frozenset({9}), keep="rows") is view


def test_a_private_view_loses_only_receivers() -> None:
    net = Network(
        TOPOLOGIES["full"](6, STREAMS), partial(column, lazy=True), RandomNeighbors(6, STREAMS, k=4, known=False)
    )
    view = net.view(0, 0)
    left = without(view, frozenset(view.out_neighbors[:2]), keep="columns")
    assert left.in_neighbors is None
    assert left.out_neighbors == view.out_neighbors[2:]
    assert left.self_weight + sum(left.out_weights.values()) == pytest.approx(1, abs=1e-15)


def test_a_server_takes_the_mean_of_the_clients_left() -> None:
    view = Network(TOPOLOGIES["star"](6, STREAMS), server=5).view(5, 0)
    left = without(view, frozenset({1, 4}), keep="rows")
    assert (left.self_weight, left.in_weights) == (0.0, dict.fromkeys((0, 2, 3), 1 / 3))
    assert without(view, frozenset(range(5)), keep="rows").self_weight == pytest.approx(1)
