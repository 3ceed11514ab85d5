"""Methods that reduce to one that the catalog doesn't have: the other side is written out here, as its paper has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from algorithm_fleets import EXCHANGE, N, network, quadratics, run, stack
from torch import Tensor

from netdfl.algorithms import parts
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Sgd
from netdfl.testing.loopback import run_fleet
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.training.base import Gradient
from netdfl.training.toy import Quadratic

ROUNDS, LR, STEPS = 4, 0.2, 3
STEP: dict[str, Any] = {"lr": LR, "local_steps": STEPS}
TIGHT: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


def descend(task: Quadratic, round: int, y: Tensor, direction: Callable[[Gradient, Tensor], Tensor]) -> Tensor:
    """Plain local steps of a round, y <- y - lr direction."""
    for gradient in task.data(round).steps(steps=STEPS):
        y = y - LR * direction(gradient, y)
    return y


def plain(gradient: Gradient, y: Tensor) -> Tensor:
    return gradient(y)


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_mofedsam_without_ascent_is_fedcm(rho: float) -> None:
    """v = alpha g + (1 - alpha) m, y <- y - lr v, w+ = mean(y_i), m+ = mean(w - y_i) / (K lr)."""
    alpha, net, tasks = 0.3, network("star", participation=0.5), quadratics(N + 1)
    w = tasks[N].initial()
    m = torch.zeros_like(w)
    for round in range(ROUNDS):
        blend = lambda gradient, y, m=m: alpha * gradient(y) + (1 - alpha) * m  # noqa: E731
        ends = [descend(tasks[i], round, w, blend) for i in net.view(N, round).out_neighbors]
        mean = torch.stack(ends).mean(0)
        w, m = mean, (w - mean) / (STEPS * LR)
    ours = run(ALGORITHMS["mofedsam"].build(EXCHANGE, rho=rho, alpha=alpha, **STEP), net, ROUNDS)[N].x
    assert (float((ours - w).abs().max()) <= 1e-12) == (rho == 0.0)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_slowmo_of_one_node_without_momentum_is_lookahead(beta: float) -> None:
    """`every` rounds of fast steps from phi, then phi <- phi + alpha (theta - phi)."""
    every, alpha, tasks = 2, 0.5, quadratics(1)
    phi = tasks[0].initial()
    for outer in range(ROUNDS // every):
        theta = phi
        for round in range(outer * every, (outer + 1) * every):
            theta = descend(tasks[0], round, theta, plain)
        phi = phi + alpha * (theta - phi)
    alg = ALGORITHMS["slowmo"].build(EXCHANGE, every=every, alpha=alpha, beta=beta, **STEP)
    alone = Network(TOPOLOGIES["full"](1, EXCHANGE.streams))
    ours = run_fleet(alg, alone.view, quadratics(1), ROUNDS)[0].states[-1].x
    assert (float((ours - phi).abs().max()) <= 1e-12) == (beta == 0.0)


@pytest.mark.parametrize("kind", ["ring", "random_sym"])
def test_dfedsgpsm_on_a_doubly_stochastic_matrix_is_dfedsam_with_momentum(kind: str) -> None:
    """Ascent and momentum together, both above 0, with clipping and decay."""
    steps: dict[str, Any] = STEP | {"lr_decay": 0.9, "weight_decay": 0.01, "clip_norm": 2.0}
    local = parts.local_sgd(Sgd(**steps), momentum=0.7, rho=0.3)
    theirs = stack(run(parts.gossip(EXCHANGE, local), network(kind), ROUNDS))
    ours, without_ascent, without_momentum = (
        stack(run(ALGORITHMS["dfedsgpsm"].build(EXCHANGE, rho=rho, momentum=momentum, **steps), network(kind), ROUNDS))
        for rho, momentum in ((0.3, 0.7), (0.0, 0.7), (0.3, 0.0))
    )
    torch.testing.assert_close(ours, theirs, **TIGHT)
    assert float((without_ascent - theirs).abs().max()) > 1e-6
    assert float((without_momentum - theirs).abs().max()) > 1e-6


@pytest.mark.parametrize("kind", ["full", "ring"])
def test_oledfl_on_a_full_graph_is_fedinit(kind: str) -> None:
    """y_i = w + beta (w - z_i), z_i where the client's last round ended, then local SGD and w+ = mean(z_i)."""
    beta, tasks = 0.4, quadratics()
    w = tasks[0].initial()
    z = {i: w for i in tasks}
    for round in range(ROUNDS):
        z = {i: descend(task, round, w + beta * (w - z[i]), plain) for i, task in tasks.items()}
        w = torch.stack(list(z.values())).mean(0)
    ours = stack(run(ALGORITHMS["oledfl_sgd"].build(EXCHANGE, beta=beta, **STEP), network(kind), ROUNDS))
    assert (float((ours - w).abs().max()) <= 1e-12) == (kind == "full")
