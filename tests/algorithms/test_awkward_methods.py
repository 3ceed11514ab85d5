"""The methods that strain the interfaces go through them without a change to the core or a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, STREAMS, N, network, quadratics, run, sgd, stack
from torch import Tensor

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.parts import (
    ControlAveraging,
    Gossip,
    GossipThenStep,
    Ole,
    PlainStart,
    PushSum,
    QuasiGlobal,
    ScaffoldSolver,
    gossip,
    server,
)
from netdfl.core.types import Inbox, NodeId, Outbox, View
from netdfl.mixing.base import MixResult
from netdfl.mixing.payloads import pack, to_all, vector
from netdfl.testing.loopback import run_fleet
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.network import Network
from netdfl.training.base import LocalData, Received, Update
from netdfl.training.catalog import consensus
from netdfl.training.sgd import LocalSgd
from netdfl.training.toy import Quadratic

LR = 0.1


def matrix(net: Network, round: int) -> Tensor:
    return torch.from_numpy(net.matrix(round))


def step_of_all(x: Tensor, tasks: dict[NodeId, Quadratic], round: int = 0) -> Tensor:
    """One plain gradient of every node, each at its own row of `x`."""
    gradients = [next(tasks[i].data(round).steps(steps=1))(x[i]) for i in range(N)]
    return torch.stack(gradients)


# Ole: a start that keeps the last local round's end


def apart() -> dict[NodeId, Quadratic]:
    """Nothing pulls, every node starts elsewhere."""
    return {i: consensus(i, STREAMS, dim=DIM) for i in range(N)}


def test_ole_begins_past_the_mixed_vector_and_keeps_the_mean() -> None:
    """Without gradients y_0 of each round is ((1 + beta) W - beta I) Z_prev, and so its end z."""
    beta, net, tasks = 0.7, network("random_sym", neighbors=3), apart()
    alg = gossip(EXCHANGE, sgd(), start=Ole(beta))
    kept = run_fleet(alg, net.view, tasks, 6)
    z = torch.stack([tasks[i].initial() for i in range(N)])
    mean = z.mean(0)
    for round in range(6):
        if round:
            z = ((1 + beta) * matrix(net, round - 1) - beta * torch.eye(N, dtype=z.dtype)) @ z
        previous = torch.stack([kept[i].states[round].start.previous for i in range(N)])
        torch.testing.assert_close(previous, z, rtol=0, atol=1e-14)
        torch.testing.assert_close(previous.mean(0), mean, rtol=0, atol=1e-14)


def test_ole_is_over_relaxation_of_the_self_weight_also_while_training() -> None:
    """X+ = W Z where Z comes from local training at x + beta (x - z_prev)."""
    beta, net, tasks = 0.4, network("ring"), quadratics(noise=0.0)
    alg = gossip(EXCHANGE, sgd(steps=1, lr=LR), start=Ole(beta))
    x = torch.stack([tasks[i].initial() for i in range(N)])
    z = x
    for _ in range(4):
        y = x + beta * (x - z)
        z = y - LR * step_of_all(y, tasks)
        x = matrix(net, 0) @ z
    torch.testing.assert_close(stack(run(alg, net, 4, noise=0.0)), x, rtol=0, atol=1e-14)


# Multiple gossip steps


@pytest.mark.parametrize("q", [1, 2, 4])
def test_multiple_gossip_is_a_power_of_the_matrix(q: int) -> None:
    net, tasks = network("random_sym", neighbors=3), apart()
    kept = run_fleet(gossip(EXCHANGE, sgd(), mixing=Gossip(steps=q)), net.view, tasks, 3)
    x = torch.stack([tasks[i].initial() for i in range(N)])
    for round in range(3):
        x = torch.linalg.matrix_power(matrix(net, round), q) @ x
        mixed = torch.stack([kept[i].states[round].x for i in range(N)])
        torch.testing.assert_close(mixed, x, rtol=0, atol=1e-14)


def test_multiple_push_sum_steps_keep_the_mass() -> None:
    net, tasks = network("random_push", out_neighbors=2), apart()
    alg = gossip(EXCHANGE, sgd(), mixing=PushSum(steps=2))
    kept = run_fleet(alg, net.view, tasks, 10)
    assert sum(kept[i].weights[-1] for i in range(N)) == pytest.approx(N, abs=1e-12)
    mean = torch.stack([tasks[i].initial() for i in range(N)]).mean(0)
    z = torch.stack([kept[i].states[-1].x / kept[i].weights[-1] for i in range(N)])
    torch.testing.assert_close(z, mean.expand_as(z), rtol=0, atol=1e-4)


# QG-DSGDm: momentum that learns what mixing did


def test_quasi_global_momentum_follows_the_mixed_vector() -> None:
    beta, mu, net, tasks = 0.8, 0.6, network("ring"), quadratics(noise=0.0)
    alg = gossip(EXCHANGE, QuasiGlobal(sgd(steps=1, lr=LR, momentum=beta), mu))
    x = torch.stack([tasks[i].initial() for i in range(N)])
    m = torch.zeros_like(x)
    for _ in range(5):
        mixed = matrix(net, 0) @ (x - LR * (beta * m + step_of_all(x, tasks)))
        m = mu * m + (1 - mu) * (x - mixed) / LR
        x = mixed
    states = run(alg, net, 5, noise=0.0)
    torch.testing.assert_close(stack(states), x, rtol=0, atol=1e-13)
    momenta = torch.stack([states[i].local.momentum for i in range(N)])
    torch.testing.assert_close(momenta, m, rtol=0, atol=1e-12)


# SCAFFOLD: an extra tensor both ways in the server family


def scaffold() -> Algorithm:
    return server(EXCHANGE, ScaffoldSolver(sgd(lr=LR)), ControlAveraging())


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_scaffolds_control_is_the_mean_of_the_clients(participation: float) -> None:
    net = network("star", participation=participation)
    kept = run_fleet(scaffold(), net.view, quadratics(N + 1), 8)
    for round in range(8):
        controls = torch.stack([kept[i].states[round].local.control for i in range(N)])
        common = kept[N].states[round].mixing.vector
        torch.testing.assert_close(common, controls.mean(0), rtol=0, atol=1e-13)
    assert float(common.norm()) > 1e-3


def test_scaffolds_first_two_rounds_are_the_papers() -> None:
    """Option II, written out for one client step by step."""
    net, tasks, steps = network("star"), quadratics(N + 1, noise=0.0), 3
    w, common = tasks[N].initial(), torch.zeros(DIM, dtype=torch.float64)
    own = torch.zeros(N, DIM, dtype=torch.float64)
    for _ in range(2):
        y = w.expand(N, DIM)
        for _ in range(steps):
            y = y - LR * (step_of_all(y, tasks) - own + common)
        fresh = own - common + (w - y) / (steps * LR)
        common = common + (fresh - own).mean(0)
        own, w = fresh, y.mean(0)
    states = play_rounds(scaffold(), first_states(scaffold(), tasks, net.view), tasks, net.view, 2)
    torch.testing.assert_close(states[N].x, w, rtol=0, atol=1e-13)
    torch.testing.assert_close(states[2].local.control, own[2], rtol=0, atol=1e-12)


def test_scaffold_reaches_the_optimum_where_clients_curve_differently_and_fedavg_does_not() -> None:
    """What control variates are for: no client drift. Curvatures differ, so FedAvg's fixed point is off."""
    tasks = quadratics(N + 1, noise=0.0)
    for i, task in tasks.items():
        task.curvature = task.curvature * (0.2 + 0.3 * i)
    total = sum(tasks[i].curvature for i in range(N))
    best = sum(tasks[i].curvature * tasks[i].center for i in range(N)) / total
    plain = Algorithm(
        family="server", start=PlainStart(), local=sgd(lr=LR), mixing=ControlAveraging().inner, wait=EXCHANGE.wait
    )
    view_of = network("star").view
    off = {
        name: float((play_rounds(alg, first_states(alg, tasks, view_of), tasks, view_of, 300)[N].x - best).norm())
        for name, alg in {"scaffold": scaffold(), "fedavg": plain}.items()
    }
    assert off["scaffold"] < 1e-5
    assert off["fedavg"] > 1e-2


# Lian's order


def test_lians_gradient_is_taken_before_mixing_and_added_after() -> None:
    net, tasks = network("ring"), quadratics(noise=0.0)
    alg = gossip(EXCHANGE, sgd(steps=1, lr=LR), mixing=GossipThenStep())
    x = torch.stack([tasks[i].initial() for i in range(N)])
    for _ in range(4):
        x = matrix(net, 0) @ x - LR * step_of_all(x, tasks)
    torch.testing.assert_close(stack(run(alg, net, 4, noise=0.0)), x, rtol=0, atol=1e-14)


def test_lians_order_mixes_the_nodes_own_vector_not_where_a_start_moved_it() -> None:
    beta, net, tasks = 0.4, network("ring"), quadratics(noise=0.0)
    alg = gossip(EXCHANGE, sgd(steps=1, lr=LR), mixing=GossipThenStep(), start=Ole(beta))
    x = torch.stack([tasks[i].initial() for i in range(N)])
    z = x
    for _ in range(4):
        y = x + beta * (x - z)
        z = y - LR * step_of_all(y, tasks)
        x = matrix(net, 0) @ x + (z - x)
    torch.testing.assert_close(stack(run(alg, net, 4, noise=0.0)), x, rtol=0, atol=1e-14)


# A masked average: DisPFL's count-normalised aggregation, the masks travel too


class MaskState(NamedTuple):
    mask: Tensor


@dataclass(frozen=True)
class MaskedSgd:
    """Local SGD on the coordinates of an own mask, which goes along with the vector."""

    sgd: LocalSgd
    keep: float

    def init(self, x: Tensor, view: View) -> MaskState:
        draws = torch.from_numpy(STREAMS.rng("mask", view.node).random(x.numel()))
        return MaskState((draws < self.keep).to(x.dtype))

    def train(
        self, state: MaskState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[MaskState, Update]:
        x, _ = self.sgd.steps_from(y * state.mask, weight, data, view)()
        return state, Update(y, x * state.mask, {"mask": state.mask})

    def after_mix(self, state: MaskState, before: Tensor, after: Tensor, received: Received, view: View) -> MaskState:
        """Give the coordinate of the smallest weight up for the one that most neighbors keep and this node does not."""
        popular = torch.where(state.mask > 0, -1.0, received.extras["kept_by"])
        smallest = torch.where(state.mask > 0, after.abs(), torch.inf)
        mask = state.mask.clone()
        mask[smallest.argmin()], mask[popular.argmax()] = 0.0, 1.0
        return MaskState(mask)


class MaskedAverage:
    """x_i = (sum_j x_j M_j / sum_j M_j) M_i over the node and its neighbors, coordinate by coordinate."""

    push = False

    def init(self, x: Tensor, view: View) -> None:
        return None

    def weight(self, state: None) -> float:
        return 1.0

    def num_steps(self, round: int, view: View) -> int:
        return 1

    def outgoing(self, state: None, update: Update, step: int, view: View) -> tuple[None, Outbox]:
        return state, to_all(view, pack(update.x, {"mask": update.extras["mask"].bool()}))

    def mix(self, state: None, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        own = update.extras["mask"]
        total, count = update.x * own, own.clone()
        for message in inbox:
            mask = vector(message, own.bool(), "extra.mask").to(own.dtype)
            total, count = total + vector(message, own) * mask, count + mask
        return MixResult(state, update._replace(x=total / count.clamp(min=1) * own), Received({"kept_by": count}))


def test_a_masked_average_goes_through_with_its_masks() -> None:
    net, tasks = network("random_sym", neighbors=3), quadratics(noise=0.0)
    local = MaskedSgd(sgd(steps=1, lr=LR), keep=0.6)
    kept = run_fleet(gossip(EXCHANGE, local, mixing=MaskedAverage()), net.view, tasks, 3)
    x = torch.stack([tasks[i].initial() for i in range(N)])
    mask = torch.stack([local.init(x[i], net.view(i, 0)).mask for i in range(N)])
    for round in range(3):
        z = (x * mask - LR * step_of_all(x * mask, tasks)) * mask
        hears = (matrix(net, round) > 0).to(z.dtype)
        count = hears @ mask
        x = (hears @ z) / count.clamp(min=1) * mask
        mixed = torch.stack([kept[i].states[round].x for i in range(N)])
        torch.testing.assert_close(mixed, x, rtol=0, atol=1e-14)
        mask = torch.stack([kept[i].states[round].local.mask for i in range(N)])
    assert not torch.equal(mask, torch.stack([local.init(x[i], net.view(i, 0)).mask for i in range(N)]))


def test_with_full_masks_it_is_the_plain_average() -> None:
    net = network("random_sym", neighbors=3)
    options: dict[str, Any] = {"noise": 0.2}
    masked = gossip(Exchange(), _FullMask(sgd(), keep=2.0), mixing=MaskedAverage())
    torch.testing.assert_close(
        stack(run(masked, net, **options)), stack(run(gossip(EXCHANGE, sgd()), net, **options)), rtol=0, atol=1e-13
    )


class _FullMask(MaskedSgd):
    def after_mix(self, state: MaskState, before: Tensor, after: Tensor, received: Received, view: View) -> MaskState:
        return state
