"""Server methods with compressed reports on quadratics that disagree."""

from __future__ import annotations

import torch
from compressed_fleets import each_lost
from torch import Tensor

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, ExtrasTravel, WaitPolicy
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.rng import Streams
from netdfl.testing.loopback import run_fleet
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.topology.selection import sampled
from netdfl.training.catalog import quadratic

CLIENTS, DIM, LR = 6, 20, 0.3


def fleet(scheme: str, compressor: str, num_rounds: int, participation: float = 1.0, **options: float) -> Tensor:
    """The server's model after `num_rounds` of FedAvg, one local step a round."""
    streams = Streams(1)
    tasks = {i: quadratic(i, streams, dim=DIM, condition=3.0) for i in range(CLIENTS + 1)}
    participants = sampled(CLIENTS, streams, participation=participation)
    network = Network(TOPOLOGIES["star"](CLIENTS + 1, streams), server=CLIENTS, participants=participants)
    exchange = Exchange(compressor=COMPRESSORS[compressor](**options), scheme=scheme)  # type: ignore[arg-type]
    alg = ALGORITHMS["fedavg"].build(exchange, lr=LR, local_steps=1)
    states = first_states(alg, tasks, network.view)
    return play_rounds(alg, states, tasks, network.view, num_rounds)[CLIENTS].x


def fleet_under_loss(scheme: str, probability: float) -> Tensor:
    """The server's model after 160 rounds of top-25 % reports, of which some are lost."""
    streams = Streams(1)
    tasks = {i: quadratic(i, streams, dim=DIM, condition=3.0) for i in range(CLIENTS + 1)}
    network = Network(TOPOLOGIES["star"](CLIENTS + 1, streams), server=CLIENTS)
    exchange = Exchange(
        compressor=COMPRESSORS["top_k"](fraction=0.25),
        scheme=scheme,  # type: ignore[arg-type]
        wait=WaitPolicy(deadline_ns=1_000_000),
    )
    alg = ALGORITHMS["fedavg"].build(exchange, lr=LR, local_steps=1)
    lost = each_lost(probability, 100)
    kept = run_fleet(alg, network.view, tasks, 160, lost=lambda m: m.dst == CLIENTS and lost(m))
    return kept[CLIENTS].states[-1].x


def controls(
    extras: ExtrasTravel,
    num_rounds: int,
    participation: float = 1.0,
    compressor: str = "top_k",
    method: str = "scaffold",
    **options: float,
) -> tuple[NodeState, list[NodeState]]:
    """The server's state and the clients' after `num_rounds` of SCAFFOLD, or of another `method`."""
    streams = Streams(1)
    tasks = {i: quadratic(i, streams, dim=DIM, condition=3.0) for i in range(CLIENTS + 1)}
    participants = sampled(CLIENTS, streams, participation=participation)
    network = Network(TOPOLOGIES["star"](CLIENTS + 1, streams), server=CLIENTS, participants=participants)
    exchange = Exchange(compressor=COMPRESSORS[compressor](**options), scheme="plain", extras=extras)
    alg = ALGORITHMS[method].build(exchange, lr=LR / 4, local_steps=2)
    states = play_rounds(alg, first_states(alg, tasks, network.view), tasks, network.view, num_rounds)
    return states[CLIENTS], [states[i] for i in range(CLIENTS)]


def optimum() -> Tensor:
    """The minimum of the mean of the clients' quadratics."""
    return torch.stack([quadratic(i, Streams(1), dim=DIM).center for i in range(CLIENTS)]).mean(0)


def gradient_descent_and_ef21() -> tuple[Tensor, Tensor]:
    """EF21 without compression after 20 rounds, and gradient descent written out."""
    task = quadratic(0, Streams(1), dim=DIM, condition=3.0)
    x = task.initial()
    for _ in range(20):
        x = x - LR * task.curvature * (x - optimum())
    return fleet("ef21", "identity", 20), x


def server_gap(scheme: str, participation: float = 1.0, num_rounds: int = 200) -> float:
    """How far top-25 % leaves the server from the optimum."""
    return float((fleet(scheme, "top_k", num_rounds, participation, fraction=0.25) - optimum()).norm())
