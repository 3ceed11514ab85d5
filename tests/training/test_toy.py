"""The toy problems are what they say: their gradients, optima, starts and noise."""

from __future__ import annotations

import math

import pytest
import torch

from netdfl.core.rng import Streams
from netdfl.training.catalog import consensus, quadratic
from netdfl.training.toy import optimum

STREAMS = Streams(8)


def test_the_gradient_is_the_loss_differentiated() -> None:
    task = quadratic(2, STREAMS, dim=5, condition=10.0)
    at = torch.linspace(-1, 1, 5, dtype=torch.float64)
    (gradient,) = task.data(0).steps(steps=1)
    h = 1e-6
    for k, unit in enumerate(torch.eye(5, dtype=torch.float64) * h):
        slope = (task.data(0).loss(at + unit) - task.data(0).loss(at - unit)) / (2 * h)
        assert float(gradient(at)[k]) == pytest.approx(slope, abs=1e-7)
    assert task.data(0).loss(task.center) == 0.0
    assert math.isclose(task.last_loss, task.data(0).loss(at))


def test_noise_depends_on_node_round_and_step_alone_and_stays_for_a_minibatch() -> None:
    task = quadratic(0, STREAMS, noise=1.0)
    at = task.initial()
    one, two = (g(at) for g in task.data(3).steps(steps=2))
    again = next(task.data(3).steps(steps=1))
    assert torch.equal(again(at), one)
    assert torch.equal(again(at), one), "a minibatch changed between two calls"
    assert not torch.equal(one, two)
    assert not torch.equal(next(task.data(4).steps(steps=1))(at), one)
    assert not torch.equal(next(quadratic(1, STREAMS, noise=1.0).data(3).steps(steps=1))(at), one)


def test_epochs_are_steps() -> None:
    data = quadratic(0, STREAMS).data(0)
    assert len(list(data.steps(epochs=3))) == len(list(data.steps(steps=3))) == 3


@pytest.mark.parametrize("init", ["normal", "integers", "ramp"])
def test_consensus_pulls_nowhere(init: str) -> None:
    task = consensus(3, STREAMS, dim=4, init=init)  # type: ignore[arg-type]
    (gradient,) = task.data(0).steps(steps=1)
    assert not gradient(task.initial()).any()
    assert not torch.equal(task.initial(), consensus(2, STREAMS, dim=4, init=init).initial())  # type: ignore[arg-type]


def test_starts_are_of_their_kind() -> None:
    assert torch.equal(consensus(3, STREAMS, dim=3, init="ramp").initial(), torch.tensor([3.0, 4.0, 5.0]).double())
    whole = consensus(0, STREAMS, dim=50, init="integers", dtype="float32").initial()
    assert whole.dtype == torch.float32
    assert torch.equal(whole, whole.round())
    assert 0 <= int(whole.min()) < int(whole.max()) <= 1023


def test_curvature_runs_from_one_over_the_condition_to_one() -> None:
    curvature = quadratic(0, STREAMS, condition=100.0).curvature
    assert (float(curvature[0]), float(curvature[-1])) == pytest.approx((0.01, 1.0))
    assert float(quadratic(0, STREAMS, heterogeneity=0.0).center.abs().max()) == 0.0


def test_each_node_has_its_own_curvature_and_a_short_list_begins_again() -> None:
    tasks = [quadratic(i, STREAMS, dim=3, condition=4.0, curvature=(0.5, 3.0)) for i in range(3)]
    assert [float(task.curvature[-1]) for task in tasks] == [0.5, 3.0, 0.5]
    assert [float(task.curvature[0]) for task in tasks] == [0.125, 0.75, 0.125]
    assert torch.equal(tasks[1].center, quadratic(1, STREAMS, dim=3).center)


def test_the_optimum_is_where_the_mean_gradient_is_zero() -> None:
    tasks = [quadratic(i, STREAMS, dim=4, condition=9.0, curvature=(0.3, 1.0, 7.0)) for i in range(5)]
    best = optimum(tasks)
    slopes = torch.stack([next(task.data(0).steps(steps=1))(best) for task in tasks])
    assert float(slopes.mean(0).abs().max()) < 1e-15
    assert float(slopes.abs().max()) > 0.1
    still = [consensus(i, STREAMS, dim=4) for i in range(5)]
    assert torch.equal(optimum(still), torch.stack([task.start for task in still]).mean(0))
