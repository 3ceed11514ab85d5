"""Compressed methods against the papers' recursions in numpy: top-2 of 6 numbers, gamma below 1, references from 0."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from recursions import (
    ARCS,
    DIM,
    STARTS,
    STREAMS,
    N,
    Rows,
    columns,
    directed,
    lazier,
    metropolis,
    played,
    rate,
    same,
    star,
    steps,
    top,
    undirected,
    vectors,
    weights,
)

from netdfl.algorithms.exchange import Exchange, Scheme
from netdfl.compression.sparsify import TopK

GAMMA, KEPT = 0.4, 2
W, P = metropolis(), columns()
compress = top(KEPT)
ZEROS = np.zeros((N, DIM))


def exchange(scheme: Scheme = "auto", **options: Any) -> Exchange:
    return Exchange(compressor=TopK(0.0, KEPT), scheme=scheme, gamma=GAMMA, streams=STREAMS, **options)


def each(rows: Rows) -> Rows:
    """Every row compressed by itself."""
    return np.stack([compress(row) for row in rows])


def trained(x: Rows, round: int, **options: Any) -> Rows:
    return np.stack([steps(i, x[i], rate(round), **options) for i in range(N)])


@pytest.mark.parametrize(
    ("name", "params", "momentum", "exchanges"),
    [
        ("choco_sgd", {}, 0.0, 1),
        ("delicoco", {"gossip_steps": 3}, 0.0, 3),
        ("qdfedavgm", {"momentum": 0.7}, 0.7, 1),
        ("dfedavgm", {"momentum": 0.7}, 0.7, 1),
    ],
)
def test_choco_moves_towards_the_mean_of_references(
    name: str, params: dict[str, Any], momentum: float, exchanges: int
) -> None:
    """X^ <- X^ + C(X - X^), X <- X + gamma (W X^ - X^), Q times after the local steps."""
    x, known = STARTS, ZEROS
    for round, states in enumerate(played(name, undirected(), exchange=exchange(), **params)):
        x = trained(x, round, momentum=momentum)
        for _ in range(exchanges):
            known = known + each(x - known)
            x = x + GAMMA * (W @ known - known)
        same(vectors(states), x)


def test_deepsqueeze_says_later_what_it_has_left_out() -> None:
    """M = X + E, C = C(M), E <- M - C, X <- X + gamma (W C - C)."""
    x, error = STARTS, ZEROS
    for round, states in enumerate(played("deepsqueeze", undirected(), exchange=exchange())):
        x = trained(x, round)
        meant = x + error
        said = each(meant)
        error = meant - said
        x = x + GAMMA * (W @ said - said)
        same(vectors(states), x)
        same([state.mixing.error for state in states], error)


def test_quantized_dfedavgm_as_printed() -> None:
    """X+ = X + W C(Z - X)."""
    x = STARTS
    played_rounds = played("qdfedavgm", undirected(), exchange=exchange(), momentum=0.7, form="literal")
    for round, states in enumerate(played_rounds):
        x = x + W @ each(trained(x, round, momentum=0.7) - x)
        same(vectors(states), x)


def test_quantized_push_sum_goes_by_its_recursion() -> None:
    """X^ <- X^ + C(X - X^), X+ = X - X^ + P' X^, w+ = P' w, P' = I + gamma (P - I)."""
    x, known, w, lazy = STARTS, ZEROS, np.ones(N), lazier(P, GAMMA)
    for round, states in enumerate(played("osgp", directed(), exchange=exchange("push_sum"))):
        x = np.stack([steps(i, x[i], rate(round), w=w[i]) for i in range(N)])
        known = known + each(x - known)
        x, w = x - known + lazy @ known, lazy @ w
        same(vectors(states), x)
        same(weights(states), w)
    assert w.max() > 1.5 * w.min()


def test_edge_push_sum_refers_to_z() -> None:
    """H_i <- H_i + C(x_i / w_i - H_i), x_i+ = x_i + sum_j P'_ij w_j H_j - sum_k P'_ki w_i H_i, w+ = P' w.

    Every edge of a node has the same reference here, because all are used in every round.
    """
    x, known, w, lazy = STARTS, ZEROS, np.ones(N), lazier(P, GAMMA)
    moved = lazy - np.diag(np.diag(lazy))
    for round, states in enumerate(played("osgp", directed(), exchange=exchange("edge"))):
        x = np.stack([steps(i, x[i], rate(round), w=w[i]) for i in range(N)])
        known = known + each(x / w[:, None] - known)
        given = w[:, None] * known
        x, w = x + moved @ given - moved.sum(0)[:, None] * given, lazy @ w
        same(vectors(states), x)
        same(weights(states), w)
        for i, state in enumerate(states):
            for j in (dst for src, dst in ARCS if src == i):
                same(state.mixing.sent[j].vector, known[i])
    assert w.max() > 1.5 * w.min()


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("scheme", ["plain", "ef14"])
def test_compressed_reports_to_a_server_go_by_their_recursion(
    scheme: Literal["plain", "ef14"], participation: float
) -> None:
    """Plain: w+ = w + mean C(y - w). EF14: c = C(e + y - w), e <- e + y - w - c, w+ = w + mean c."""
    network, w, memory = star(participation), STARTS[0], ZEROS.copy()
    states_of = played("fedavg", network, exchange=exchange(scheme), rounds=9, server_lr=0.7)
    for round, states in enumerate(states_of):
        said = []
        for i in network.view(N, round).out_neighbors:
            meant = steps(i, w, rate(round)) - w + memory[i]
            said.append(compress(meant))
            if scheme == "ef14":
                memory[i] = meant - said[-1]
        w = w + 0.7 * np.mean(said, axis=0)
        same(states[N].x, w)
    assert bool(memory.any()) == (scheme == "ef14")


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_ef21_adds_what_is_compressed_to_what_is_known_of_a_client(participation: float) -> None:
    """G_i <- G_i + C(y_i - w - g_i) of those that take part, w+ = w + server_lr (1/n) sum of all g_i (EF21-PP)."""
    network, w, known = star(participation), STARTS[0], ZEROS.copy()
    states_of = played("fedavg", network, exchange=exchange("ef21"), rounds=9, server_lr=0.7)
    for round, states in enumerate(states_of):
        for i in network.view(N, round).out_neighbors:
            known[i] = known[i] + compress(steps(i, w, rate(round)) - w - known[i])
        w = w + 0.7 * known.mean(0)
        same(states[N].x, w)
