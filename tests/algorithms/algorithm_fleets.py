"""Small networks and toy tasks that the tests of algorithms share."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.testing.loopback import run_fleet
from netdfl.testing.rounds import States
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network
from netdfl.topology.selection import sampled
from netdfl.training.catalog import consensus
from netdfl.training.sgd import LocalSgd
from netdfl.training.toy import Quadratic

N, DIM = 6, 5
STREAMS = Streams(11)
EXCHANGE = Exchange()
_DISTIL: dict[str, Any] = {"warmup_rounds": 2, "per_class": 2, "distil_steps": 2, "distil_iterations": 40}
_DYNAFED = _DISTIL | {"distil_gap": 2, "input_lr": 0.5, "rate": 0.3, "rate_lr": 0.02, "tuning_lr": 0.05, "augment": ()}
SMALL: dict[str, dict[str, Any]] = {
    "fedsynsam": _DISTIL | {"input_lr": 0.5, "synthetic_batch": 1},
    "asyng": {"lr": 0.1, "clip_norm": 10.0},
    "dispfl": {"density": 1.0},
    "slowmo": {"every": 2},
    "dynafed": _DYNAFED,
    "dynafed_synonly": _DYNAFED,
}
"""What makes a method's costly part short enough for a test, early enough to matter in one, and fit for toy tasks."""


def network(kind: str, weights: str = "auto", **options: Any) -> Network:
    """N clients on a topology; with a server as one node more where the kind is `star`."""
    if kind == "star":
        participants = sampled(N, STREAMS, **options)
        return Network(TOPOLOGIES["star"](N + 1, STREAMS), server=N, participants=participants)
    return Network(TOPOLOGIES[kind](N, STREAMS, **options), partial(WEIGHTS[weights]) if weights != "auto" else None)


def quadratics(
    num_nodes: int = N, *, spread: float = 1.0, noise: float = 0.3, common_start: bool = True
) -> dict[NodeId, Quadratic]:
    """Quadratics that disagree, with gradient noise; all nodes start from the same vector unless said otherwise."""
    return {i: _quadratic(i, spread, noise, 0 if common_start else i) for i in range(num_nodes)}


def apart(num_nodes: int) -> dict[NodeId, Quadratic]:
    """Nodes that train nothing and start from different vectors."""
    return {i: consensus(i, STREAMS, dim=DIM) for i in range(num_nodes)}


def _quadratic(i: NodeId, spread: float, noise: float, start: int) -> Quadratic:
    center = torch.from_numpy(STREAMS.rng("center", i).standard_normal(DIM)) * spread
    begin = torch.from_numpy(STREAMS.rng("start", start).standard_normal(DIM))
    curvature = torch.linspace(0.2, 1.0, DIM, dtype=torch.float64)
    return Quadratic(center, begin, curvature, node=i, streams=STREAMS, noise=noise)


def run(alg: Algorithm, net: Network, num_rounds: int = 5, **options: Any) -> States:
    """Every node's last state."""
    kept = run_fleet(alg, net.view, quadratics(net.num_nodes, **options), num_rounds)
    return {i: states.states[-1] for i, states in kept.items()}


def stack(states: States) -> Tensor:
    """The clients' vectors, shape (N, DIM)."""
    return torch.stack([states[i].x for i in range(N)])


def sgd(**options: Any) -> LocalSgd:
    """Local SGD of three steps, unless said otherwise."""
    return LocalSgd(**({"lr": 0.1, "steps": 3} | options))
