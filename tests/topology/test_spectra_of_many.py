"""Eigenvalues of many nodes, of which the outermost alone are found; and graphs that fall apart or are drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from netdfl.core.rng import Streams
from netdfl.topology.base import Topology, check_connected, draw_connected, static
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.graph import Graph
from netdfl.topology.spectrum import eigenvalues, stochasticity
from netdfl.topology.weights import MixingMatrix, auto, column

STREAMS = Streams(11)
DENSE, KRYLOV = 512, 200


def mixing(name: str, n: int, **options: object) -> MixingMatrix:
    return auto(TOPOLOGIES[name](n, STREAMS, **options).graph(0))


def of_circulant(matrix: MixingMatrix) -> np.ndarray:
    """The eigenvalues of a matrix whose columns are each the one before, moved on by one."""
    return np.fft.fft(matrix.dense()[:, 0])


def test_up_to_512_nodes_all_are_found() -> None:
    matrix = mixing("ring", DENSE)
    found = eigenvalues(matrix)
    assert (found.shape, found.dtype) == ((DENSE,), np.complex128)
    assert np.allclose(sorted(found.real), sorted(of_circulant(matrix).real), atol=1e-12)


@pytest.mark.parametrize("symmetric", [True, False])
def test_of_more_the_outermost_are_those_of_the_whole_matrix(symmetric: bool) -> None:
    matrix = mixing("exponential", DENSE + 1, symmetric=symmetric)
    found, whole = eigenvalues(matrix), of_circulant(matrix)
    assert found.shape[0] <= KRYLOV
    assert found.dtype == np.complex128
    for of in (np.real, np.abs):
        assert of(found).max() == pytest.approx(1, abs=1e-9)
    assert found.real.min() == pytest.approx(whole.real.min(), abs=1e-6)
    assert sorted(np.abs(found))[-2] == pytest.approx(sorted(np.abs(whole))[-2], abs=1e-6)


def test_where_few_steps_reach_all_there_is_no_more_are_made() -> None:
    found = eigenvalues(mixing("full", DENSE + 1))
    assert sorted(found.real) == pytest.approx([0, 1], abs=1e-9)
    halves = Graph.undirected(DENSE + 2, [(a, b) for a in range(0, DENSE + 2, 2) for b in (a + 1,)])
    assert sorted(np.round(eigenvalues(auto(halves)).real, 9)) == [0, 1]


def test_a_weight_below_zero_makes_no_average_however_its_rows_and_columns_sum() -> None:
    kinds = [stochasticity(np.array([[1 + e, -e], [-e, 1 + e]])).kind for e in (0.0, 1e-10, 1e-3)]
    assert kinds == ["doubly", "doubly", "none"]
    rows = np.array([[0.5, 0.5], [0.25, 0.75]])
    assert [stochasticity(each).kind for each in (rows, rows.T)] == ["row", "column"]
    assert [stochasticity(each).symmetric for each in (rows, rows + rows.T)] == [False, True]


# graphs that fall apart


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (3, r"1 of 3 nodes \(node 2\) can't"),
        (7, r"5 of 7 nodes \(node 2, 3, 4, 5, 6\) can't"),
        (8, r"6 of 8 nodes \(node 2, 3, 4, 5, 6, \.\.\.\) can't"),
    ],
)
def test_of_nodes_that_are_cut_off_the_first_five_are_named(n: int, said: str) -> None:
    with pytest.raises(ValueError, match=f"^it is not connected: {said}"):
        check_connected(Graph.undirected(n, [(0, 1)]), "it")
    check_connected(Graph.undirected(2, [(0, 1)]), "it")


def test_a_graph_that_never_changes_is_connected_unless_it_may_fall_apart() -> None:
    apart = Graph(3, [])
    for more in ({"redraw_every": 2}, {"connected": False}):
        assert Topology(3, lambda _: apart, directed=False, **more).graph(0) is apart  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the graph is not connected"):
        Topology(3, lambda _: apart, directed=False)
    with pytest.raises(ValueError, match="the graph is not connected"):
        static(Graph(3, [(0, 1), (1, 2)]))
    one_way = static(Graph(3, [(0, 1), (1, 2), (2, 0)]), notes=["so"])
    assert (one_way.directed, one_way.time_varying, one_way.notes) == (True, False, ["so"])
    assert not static(Graph.undirected(2, [(0, 1)])).directed


def test_a_topologys_own_words_are_kept() -> None:
    graph = Graph.undirected(2, [(0, 1)])
    plain = Topology(2, lambda _: graph, directed=False)
    assert (plain.receivers_know, plain.base, plain.notes, plain.redraw_every) == (True, None, (), 0)
    assert plain.weights is auto
    said = {"redraw_every": 3, "receivers_know": False, "weights": column, "base": graph, "notes": ["it"]}
    full = Topology(2, lambda _: graph, directed=True, **said)  # type: ignore[arg-type]
    assert {name: getattr(full, name) for name in said} == said
    assert (full.num_nodes, full.directed, full.time_varying) == (2, True, True)


def test_a_block_of_rounds_has_one_graph_which_is_drawn_once() -> None:
    drawn: list[int] = []

    def draw(block: int) -> Graph:
        drawn.append(block)
        return Graph.undirected(2, [(0, 1)])

    topology = Topology(2, draw, directed=False, redraw_every=3)
    for round in (0, 1, 2, 3, 5, 6, 2, 3):
        topology.graph(round)
    assert drawn == [0, 1, 2]


def test_what_is_drawn_is_drawn_again_until_it_is_connected_or_so_many_times() -> None:
    apart, whole = Graph(2, []), Graph.undirected(2, [(0, 1)])
    drawn = iter([apart, apart, whole, apart])
    assert draw_connected(lambda: next(drawn), "it", "try") is whole
    for more, times in (({}, 100), ({"tries": 3}, 3)):
        many = iter([apart] * 101)
        with pytest.raises(ValueError, match=f"^it gave no connected graph in {times} draws; try harder$"):
            draw_connected(many.__next__, "it", "try harder", **more)
        assert len(list(many)) == 101 - times
