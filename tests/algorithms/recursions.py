"""Quadratics in numpy, and fleets that run the code on the same ones: for the papers' recursions, written out.

What a test compares with is float64 arithmetic on arrays of shape (N, DIM), a row a node, straight from the
papers' listings. Every node has a curvature, a center and a start of its own, degrees differ, the rate falls
from round to round, and a round has several steps: so that no two terms of a listing are equal by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.core.rng import Streams
from netdfl.testing.loopback import run_fleet
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network
from netdfl.topology.selection import sampled
from netdfl.training.toy import Quadratic

Rows = NDArray[np.float64]
Slope = Callable[[int, Rows], Rows]

N, DIM, ROUNDS, K = 5, 6, 7, 3
LR, DECAY = 0.15, 0.8
STEPS: dict[str, Any] = {"lr": LR, "lr_decay": DECAY, "local_steps": K}
STREAMS = Streams(23)
EXCHANGE = Exchange(streams=STREAMS)
LINKS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)]
ARCS = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3), (1, 0)]
OTHER_ARCS = [(0, 4), (4, 3), (3, 1), (1, 2), (2, 0), (2, 1), (2, 3)]

_rng = np.random.default_rng(5)
CENTERS: Rows = 2 * _rng.standard_normal((N, DIM))
CURVATURES: Rows = _rng.uniform(0.2, 1.4, (N, DIM))
STARTS: Rows = _rng.standard_normal((N, DIM))
SAMPLES: Rows = np.array([3.0, 1.0, 8.0, 5.0, 2.0])


def rate(round: int) -> float:
    """The step size of a round."""
    return LR * DECAY**round


def gradient(i: int, at: Rows) -> Rows:
    """Node i's gradient."""
    return CURVATURES[i] * (at - CENTERS[i])


def unit(vector: Rows) -> Rows:
    """A vector of length 1."""
    return vector / np.sqrt((vector**2).sum())


def sam(rho: float) -> Slope:
    """SAM's gradient."""
    return lambda i, at: gradient(i, at + rho * unit(gradient(i, at)))


def steps(
    i: int,
    y: Rows,
    lr: float,
    slope: Slope = gradient,
    *,
    w: float = 1.0,
    momentum: float = 0.0,
    v: Rows | None = None,
) -> Rows:
    """V <- momentum v + slope(y / w), y <- y - lr v, K times; v is 0 at first, or as given."""
    return carried(i, y, lr, slope, w=w, momentum=momentum, v=np.zeros(DIM) if v is None else v)[0]


def carried(
    i: int,
    y: Rows,
    lr: float,
    slope: Slope = gradient,
    *,
    v: Rows,
    momentum: float,
    w: float = 1.0,
    nesterov: bool = False,
) -> tuple[Rows, Rows]:
    """As `steps`, from v on; Nesterov: y <- y - lr (slope + momentum v). Returns y and v."""
    for _ in range(K):
        g = slope(i, y / w)
        v = momentum * v + g
        y = y - lr * (g + momentum * v if nesterov else v)
    return y, v


def metropolis(links: Sequence[tuple[int, int]] = LINKS) -> Rows:
    """W_ij = 1 / (1 + max(d_i, d_j)) on links, the rest on the diagonal."""
    degrees = [sum(i in link for link in links) for i in range(N)]
    weights = np.zeros((N, N))
    for i, j in links:
        weights[i, j] = weights[j, i] = 1 / (1 + max(degrees[i], degrees[j]))
    return weights + np.diag(1 - weights.sum(1))


def columns(arcs: Sequence[tuple[int, int]] = ARCS) -> Rows:
    """P_ij = 1 / (1 + out-degree of j) for an arc from j to i, and on the diagonal."""
    shares = np.eye(N)
    for j, i in arcs:
        shares[i, j] = 1.0
    return shares / shares.sum(0)


def lazier(matrix: Rows, gamma: float) -> Rows:
    """I + gamma (M - I)."""
    return np.eye(N) + gamma * (matrix - np.eye(N))


def top(count: int) -> Callable[[Rows], Rows]:
    """Keeps the `count` largest magnitudes of a vector."""

    def compress(vector: Rows) -> Rows:
        said = np.zeros_like(vector)
        largest = np.argsort(-np.abs(vector))[:count]
        said[largest] = vector[largest]
        return said

    return compress


# the same fleet in netdfl


def undirected() -> Network:
    """`LINKS` with Metropolis weights."""
    return Network(TOPOLOGIES["edge_list"](N, STREAMS, edges=[*map(list, LINKS)]), partial(WEIGHTS["metropolis"]))


def directed(*rounds: Sequence[tuple[int, int]]) -> Network:
    """The arcs of each round in turn, `ARCS` where none are given, with shares by out-degree."""
    arcs = [[list(arc) for arc in each] for each in rounds or (ARCS,)]
    return Network(TOPOLOGIES["by_round"](N, STREAMS, rounds=arcs, directed=True), partial(WEIGHTS["column"]))


def star(participation: float = 1.0) -> Network:
    """Node N serves the others."""
    participants = sampled(N, STREAMS, participation=participation)
    return Network(TOPOLOGIES["star"](N + 1, STREAMS), server=N, participants=participants)


def played(
    name: str, network: Network, *, exchange: Exchange = EXCHANGE, rounds: int = ROUNDS, **params: Any
) -> list[list[NodeState]]:
    """Every node's state after each round: the algorithm `name` of the catalog, in its own loop."""
    tasks = {i: _task(i) for i in range(network.num_nodes)}
    kept = run_fleet(ALGORITHMS[name].build(exchange, **(STEPS | params)), network.view, tasks, rounds)
    return [[kept[i].states[round] for i in range(network.num_nodes)] for round in range(rounds)]


def _task(i: int) -> Quadratic:
    at = i % N  # a server starts where node 0 does, and trains nothing
    task = Quadratic(*map(torch.from_numpy, (CENTERS[at], STARTS[at], CURVATURES[at])), node=i, streams=STREAMS)
    task.num_samples = int(SAMPLES[at])
    return task


def vectors(states: Sequence[NodeState]) -> Rows:
    """The clients' vectors x."""
    return torch.stack([state.x for state in states[:N]]).numpy()


def weights(states: Sequence[NodeState]) -> Rows:
    """The nodes' push-sum weights."""
    return np.array([state.mixing.weight for state in states])


def same(ours: Any, theirs: Any) -> None:
    """Equal up to rounding."""
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=1e-11)
