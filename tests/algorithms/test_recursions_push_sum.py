"""Methods by push-sum against the papers' recursions in numpy, on directed graphs where w is far from 1."""

from __future__ import annotations

import numpy as np
import pytest
from recursions import (
    ARCS,
    LINKS,
    OTHER_ARCS,
    STARTS,
    STREAMS,
    K,
    N,
    Rows,
    carried,
    columns,
    directed,
    gradient,
    played,
    rate,
    sam,
    same,
    steps,
    vectors,
    weights,
)

from netdfl.algorithms.exchange import Delivery, Exchange
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network

MATRICES = [columns(ARCS), columns(OTHER_ARCS)]


def shares(round: int) -> Rows:
    """P of a round: two graphs in turn."""
    return MATRICES[round % 2]


@pytest.mark.parametrize("delivery", ["plain", "running_sums"])
@pytest.mark.parametrize(
    ("name", "momentum", "rho"),
    [("sgp", 0.0, 0.0), ("osgp", 0.0, 0.0), ("dfedsgpm", 0.7, 0.0), ("dfedsgpsm", 0.7, 0.3)],
)
def test_steps_on_the_numerator_by_gradients_at_z(name: str, momentum: float, rho: float, delivery: Delivery) -> None:
    """G at z = x / w and SAM's ascent there; x <- x - lr v with w as it is; then X+ = P X, w+ = P w."""
    params = {k: v for k, v in {"momentum": momentum, "rho": rho}.items() if v}
    slope = sam(rho) if rho else gradient
    x, w = STARTS, np.ones(N)
    exchange = Exchange(streams=STREAMS, delivery=delivery)
    arcs = (ARCS,) if delivery == "running_sums" else (ARCS, OTHER_ARCS)
    for round, states in enumerate(played(name, directed(*arcs), exchange=exchange, clip_norm=None, **params)):
        p = MATRICES[round % len(arcs)]
        z = np.stack([steps(i, x[i], rate(round), slope, w=w[i], momentum=momentum) for i in range(N)])
        x, w = p @ z, p @ w
        same(vectors(states), x)
        same(weights(states), w)
    assert w.max() > 1.5 * w.min()


def test_links_both_ways_by_out_degree() -> None:
    """The option for graphs whose links all work both ways: P_ij = 1 / (1 + d_j), and w is not 1."""
    x, w, p = STARTS, np.ones(N), columns([*LINKS, *((j, i) for i, j in LINKS)])
    topology = TOPOLOGIES["edge_list"](N, STREAMS, edges=[*map(list, LINKS)])
    for round, states in enumerate(played("osgp", Network(topology, WEIGHTS["column"]))):
        x = p @ np.stack([steps(i, x[i], rate(round), w=w[i]) for i in range(N)])
        w = p @ w
        same(vectors(states), x)
        same(weights(states), w)
    assert w.max() > 1.5 * w.min()


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_of_sgp_goes_on_from_round_to_round(nesterov: bool) -> None:
    """As Assran's nodes: v <- beta v + g(x / w), x <- x - lr (g + beta v), v neither reset nor mixed; or x - lr v."""
    x, w, v = STARTS, np.ones(N), np.zeros_like(STARTS)
    for round, states in enumerate(played("sgp", directed(ARCS, OTHER_ARCS), momentum=0.7, nesterov=nesterov)):
        ends = [carried(i, x[i], rate(round), v=v[i], w=w[i], momentum=0.7, nesterov=nesterov) for i in range(N)]
        z, v = (np.stack(part) for part in zip(*ends, strict=True))
        x, w = shares(round) @ z, shares(round) @ w
        same(vectors(states), x)
        same(weights(states), w)


@pytest.mark.parametrize("num_steps", [1, K])
def test_overlap_sgp_gives_away_before_it_steps(num_steps: int) -> None:
    """X_i+ = sum_j P_ij x_j - lr g_i(z_i) with one step; with more, z is of what the node kept."""
    x, w = STARTS, np.ones(N)
    for round, states in enumerate(played("overlap_sgp", directed(ARCS, OTHER_ARCS), local_steps=num_steps)):
        p = shares(round)
        own = np.diag(p)
        y = x * own[:, None]
        for _ in range(num_steps):
            z = y / (w * own)[:, None]
            y = y - rate(round) * np.stack([gradient(i, z[i]) for i in range(N)])
        if num_steps == 1:
            same(y, x * own[:, None] - rate(round) * np.stack([gradient(i, x[i] / w[i]) for i in range(N)]))
        x, w = y + (p - np.diag(own)) @ x, p @ w
        same(vectors(states), x)
        same(weights(states), w)


def test_asyng_takes_all_gradients_at_one_z() -> None:
    """X <- x - lr sum_k g(z), z = x / w of the round's start; then X+ = P X, w+ = P w."""
    x, w = STARTS, np.ones(N)
    for round, states in enumerate(played("asyng", directed(ARCS, OTHER_ARCS), tau=1, clip_norm=None)):
        z = x / w[:, None]
        y = x - rate(round) * K * np.stack([gradient(i, z[i]) for i in range(N)])
        x, w = shares(round) @ y, shares(round) @ w
        same(vectors(states), x)
        same(weights(states), w)
