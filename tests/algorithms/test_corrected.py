"""FedDyn, FedSMOO and FedLESAM written out by hand, and what their server's vectors stand for."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, STREAMS, N, network, quadratics
from torch import Tensor

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.sparsify import TopK
from netdfl.core.types import Message
from netdfl.testing.loopback import LastState, run_fleet
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.training.base import Gradient, LocalData
from netdfl.training.toy import Quadratic
from netdfl.training.wrapped import WrappedData

LR, STEPS, LAMBDA, RHO = 0.1, 3, 0.2, 0.3
Tasks = dict[int, Quadratic]


def method(name: str, **params: float) -> Algorithm:
    return ALGORITHMS[name].build(EXCHANGE, lr=LR, local_steps=STEPS, **params)


def play(alg: Algorithm, tasks: Tasks, rounds: int, **star: float) -> dict[int, LastState]:
    return run_fleet(alg, network("star", **star).view, tasks, rounds)


def gradient(task: Quadratic, at: Tensor) -> Tensor:
    return task.curvature * (at - task.center)


def uphill(direction: Tensor) -> Tensor:
    return RHO * direction / direction.norm()


@pytest.mark.parametrize("smoo", [False, True], ids=["feddyn", "fedsmoo"])
def test_the_first_three_rounds_are_the_papers(smoo: bool) -> None:
    tasks = quadratics(N + 1, noise=0.0)
    w, shared = tasks[N].initial(), torch.zeros(DIM, dtype=torch.float64)
    drift, dual = torch.zeros(N, DIM, dtype=torch.float64), torch.zeros(N, DIM, dtype=torch.float64)
    for _ in range(3):
        y = w.repeat(N, 1)
        for i in range(N):
            for _ in range(STEPS):
                step = torch.zeros(DIM, dtype=torch.float64)
                if smoo:
                    step = uphill(gradient(tasks[i], y[i]) - dual[i] - shared)
                    dual[i] += step - shared
                y[i] -= LR * (gradient(tasks[i], y[i] + step) + LAMBDA * (y[i] - w) + LAMBDA * drift[i])
        drift += y - w
        w = y.mean(0) + drift.mean(0)
        shared = uphill(dual.mean(0)) if smoo else shared
    alg = method("fedsmoo", penalty=LAMBDA, rho=RHO) if smoo else method("feddyn", penalty=LAMBDA)
    net = network("star")
    states = play_rounds(alg, first_states(alg, tasks, net.view), tasks, net.view, 3)
    torch.testing.assert_close(states[N].x, w, rtol=0, atol=1e-12)
    torch.testing.assert_close(drift_in(states[2].local), drift[2], rtol=0, atol=1e-12)
    if smoo:
        torch.testing.assert_close(states[2].local.inner.dual, dual[2], rtol=0, atol=1e-10)
        torch.testing.assert_close(states[N].mixing.inner.shared, shared, rtol=0, atol=1e-12)


def drift_in(state: Any) -> Tensor:
    """The drift that a state, or one that it wraps, holds."""
    drift: Tensor = state.drift if hasattr(state, "drift") else drift_in(state.inner)
    return drift


@pytest.mark.parametrize("scheme", [None, "plain", "ef14", "ef21"])
@pytest.mark.parametrize(("name", "participation"), [("feddyn", 1.0), ("feddyn", 0.5), ("fedlesam_d", 0.5)])
def test_the_server_knows_the_mean_drift_though_nobody_sends_it(
    name: str, participation: float, scheme: Literal["plain", "ef14", "ef21"] | None
) -> None:
    exchange = Exchange(compressor=TopK(0.0, 2), scheme=scheme, streams=STREAMS) if scheme else EXCHANGE
    alg = ALGORITHMS[name].build(exchange, lr=LR, local_steps=STEPS)
    kept = play(alg, quadratics(N + 1), 8, participation=participation)
    for round in range(8):
        locals_ = [kept[i].states[round].local for i in range(N)]
        drifts = torch.stack([drift_in(local) for local in locals_])
        torch.testing.assert_close(drift_in(kept[N].states[round].mixing), drifts.mean(0), rtol=0, atol=1e-13)
    assert float(drifts.norm()) > 1e-2


@pytest.mark.parametrize(("name", "within"), [("feddyn", 1e-5), pytest.param("fedavg", None, marks=pytest.mark.soak)])
def test_feddyn_reaches_the_optimum_where_clients_curve_differently(name: str, within: float | None) -> None:
    tasks = quadratics(N + 1, noise=0.0)
    for i, task in tasks.items():
        task.curvature = task.curvature * (0.2 + 0.3 * i)
    total = sum(tasks[i].curvature for i in range(N))
    best = sum(tasks[i].curvature * tasks[i].center for i in range(N)) / total
    alg, view_of = method(name), network("star").view
    after = play_rounds(alg, first_states(alg, tasks, view_of), tasks, view_of, 800)
    off = float((after[N].x - best).norm())
    assert off < within if within else off > 1e-2


def test_fedlesam_looks_back_to_the_model_of_its_own_last_active_round() -> None:
    """Half of the clients take part, so w_old is in general not the server's last model."""
    tasks, net, rounds = quadratics(N + 1, noise=0.0), network("star", participation=0.5), 8
    w, last, skipped = tasks[N].initial(), dict[int, tuple[int, Tensor]](), 0
    for round in range(rounds):
        models = []
        for i in net.view(N, round).out_neighbors:
            shift = torch.zeros(DIM, dtype=torch.float64)
            if i in last:
                shift = uphill(last[i][1] - w)
                skipped += last[i][0] < round - 1
            y = w.clone()
            for _ in range(STEPS):
                y = y - LR * gradient(tasks[i], y + shift)
            models.append(y)
            last[i] = (round, w)
        w = torch.stack(models).mean(0)
    assert skipped
    kept = play(method("fedlesam", rho=RHO), tasks, rounds, participation=0.5)
    torch.testing.assert_close(kept[N].states[-1].x, w, rtol=0, atol=1e-12)


class Counted(Quadratic):
    """Counts its gradients."""

    calls = 0

    def data(self, round: int) -> LocalData:
        def counting(gradient: Gradient) -> Gradient:
            def counted(at: Tensor) -> Tensor:
                self.calls += 1
                return gradient(at)

            return counted

        return WrappedData(super().data(round), counting)


@pytest.mark.parametrize(("name", "passes"), [("fedlesam", 1), ("fedsam", 2), ("fedsmoo", 2)])
def test_fedlesam_costs_no_second_gradient(name: str, passes: int) -> None:
    tasks = quadratics(N + 1, noise=0.0)
    tasks[0].__class__ = Counted
    play(method(name, rho=RHO), tasks, 4)
    assert tasks[0].calls == 4 * STEPS * passes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "down", "up"),
    [
        ("fedavg", 1, 1),
        ("feddyn", 1, 1),
        ("fedlesam", 1, 1),
        ("fedlesam_d", 1, 1),
        ("fedlesam_s", 2, 2),
        ("fedsmoo", 2, 2),
    ],
)
def test_what_is_sent_is_what_the_docstring_says(name: str, down: int, up: int) -> None:
    sent = {0: set[int](), 1: set[int]()}

    def watch(message: Message) -> bool:
        sent[message.step].add(sum(array.nbytes for array in message.payload.arrays.values()) // (8 * DIM))
        return False

    run_fleet(method(name), network("star").view, quadratics(N + 1), 3, lost=watch)
    assert sent == {0: {down}, 1: {up}}
    assert f"{'' if down == 1 else '2 '}d numbers down" in " ".join((ALGORITHMS[name].build.__doc__ or "").split())
