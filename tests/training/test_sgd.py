"""Local SGD equals the listing, torch's own optimizer, and the momentum lemma."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.base import Gradient, Received
from netdfl.training.catalog import quadratic
from netdfl.training.momentum import QuasiGlobal
from netdfl.training.ole import Ole
from netdfl.training.sgd import LocalSgd, NoState, PlainStart, clip, sam

DIM = 7
VIEW = View(0, 3, 1, (), (), 1.0, {}, {})
TASK = quadratic(0, Streams(4), dim=DIM, noise=0.5, condition=5.0)
START = torch.linspace(-1, 2, DIM, dtype=torch.float64)


def trained(solver: LocalSgd, y: Tensor = START, weight: float = 1.0) -> Tensor:
    return solver.train(NoState(), y, Received(), weight, TASK.data(VIEW.round), VIEW)[1].x


def gradients(num: int) -> list[Gradient]:
    return list(TASK.data(VIEW.round).steps(steps=num))


class Watched:
    """Data whose gradients remember the points that they were taken at."""

    def __init__(self, num: int) -> None:
        self.points: list[list[Tensor]] = [[] for _ in range(num)]
        self.buffer = torch.empty(DIM, dtype=torch.float64)

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        for points in self.points:
            yield lambda at, points=points: self.gradient(at, points)

    def gradient(self, at: Tensor, points: list[Tensor]) -> Tensor:
        points.append(at.clone())
        return torch.mul(at, 2.0, out=self.buffer)

    def loss(self, at: Tensor) -> float:
        return float(at.dot(at))


def watched(solver: LocalSgd, num: int = 1) -> tuple[list[list[Tensor]], Tensor]:
    data = Watched(num)
    return data.points, solver.train(NoState(), START, Received(), 1.0, data, VIEW)[1].x


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_equals_torch_with_a_fresh_optimizer(momentum: float, weight_decay: float) -> None:
    ours = trained(LocalSgd(lr=0.1, lr_decay=0.9, steps=8, momentum=momentum, weight_decay=weight_decay))
    y = START.clone().requires_grad_()
    optimizer = torch.optim.SGD([y], lr=0.1 * 0.9**3, momentum=momentum, weight_decay=weight_decay)
    for gradient in gradients(8):
        y.grad = gradient(y.detach()).clone()
        optimizer.step()
    torch.testing.assert_close(ours, y.detach(), rtol=0, atol=1e-12)


def test_momentum_is_heavy_ball_started_anew() -> None:
    before, y = START, START
    for gradient in gradients(6):
        before, y = y, y - 0.1 * gradient(y) + 0.9 * (y - before)
    torch.testing.assert_close(trained(LocalSgd(lr=0.1, steps=6, momentum=0.9)), y, rtol=0, atol=1e-12)


def test_the_weight_of_gradients_in_five_steps_of_momentum() -> None:
    """Under a constant gradient of 1 the move is lr times 13.1441 (K = 5, momentum 0.9)."""

    class Constant(Watched):
        def gradient(self, at: Tensor, points: list[Tensor]) -> Tensor:
            return torch.ones_like(at)

    solver = LocalSgd(lr=1.0, steps=5, momentum=0.9)
    moved = START - solver.train(NoState(), START, Received(), 1.0, Constant(5), VIEW)[1].x
    torch.testing.assert_close(moved, torch.full_like(moved, 13.1441), rtol=0, atol=1e-4)


def test_epochs_or_steps_and_the_decayed_rate() -> None:
    assert torch.equal(trained(LocalSgd(lr=0.1, epochs=4)), trained(LocalSgd(lr=0.1, steps=4)))
    assert LocalSgd(lr=0.1, lr_decay=0.5, steps=1).rate(VIEW) == 0.1 * 0.5**3
    assert torch.equal(trained(LocalSgd(lr=0.1, steps=0)), START)


def test_the_start_is_left_as_it_is() -> None:
    y = START.clone()
    _, update = LocalSgd(lr=0.1, steps=3, momentum=0.5, rho=0.1, clip_norm=1.0, weight_decay=0.1).train(
        NoState(), y, Received(), 1.0, TASK.data(3), VIEW
    )
    assert update.before is y
    assert torch.equal(y, START)
    assert not torch.equal(update.x, START)


def test_push_sum_takes_gradients_at_z_and_steps_on_the_numerator() -> None:
    w, y = 0.4, START
    for gradient in gradients(3):
        z = y / w
        y = y - 0.1 * (gradient(z) + 0.01 * z)
    solver = LocalSgd(lr=0.1, steps=3, weight_decay=0.01)
    torch.testing.assert_close(trained(solver, weight=w), y, rtol=0, atol=1e-13)


# SAM


def test_sam_asks_the_same_minibatch_twice_the_second_time_rho_uphill() -> None:
    points, _ = watched(LocalSgd(lr=0.1, steps=3, rho=0.25), num=3)
    assert [len(batch) for batch in points] == [2, 2, 2]
    for first, second in points:
        torch.testing.assert_close(second - first, 0.25 * first / first.norm(), rtol=0, atol=1e-12)


def test_sam_written_out_with_noise() -> None:
    y = START
    for gradient in gradients(4):
        g = gradient(y).clone()
        y = y - 0.1 * gradient(y + 0.3 * g / g.norm())
    torch.testing.assert_close(trained(LocalSgd(lr=0.1, steps=4, rho=0.3)), y, rtol=0, atol=1e-11)


def test_weight_decay_is_not_in_the_ascent_and_acts_where_the_step_is_made() -> None:
    points, with_decay = watched(LocalSgd(lr=0.1, steps=1, rho=0.25, weight_decay=0.5))
    bare_points, without = watched(LocalSgd(lr=0.1, steps=1, rho=0.25))
    assert torch.equal(points[0][1], bare_points[0][1])
    torch.testing.assert_close(with_decay, without - 0.1 * 0.5 * START, rtol=0, atol=1e-13)


def test_no_radius_is_plain_sgd_and_asks_once() -> None:
    points, _ = watched(LocalSgd(lr=0.1, steps=1, rho=0.0))
    assert len(points[0]) == 1


def test_sam_at_a_stationary_point_stays() -> None:
    zero = torch.zeros(DIM, dtype=torch.float64)
    assert torch.equal(sam(lambda at: torch.zeros_like(at), zero, 0.1), zero)


# Clipping


@given(scale=st.floats(1e-3, 1e3), limit=st.floats(1e-2, 1e2))
def test_clip_bounds_the_norm_and_keeps_the_direction(scale: float, limit: float) -> None:
    g = START * scale
    clipped = clip(g.clone(), limit)
    assert float(clipped.norm()) <= limit * (1 + 1e-9)
    if float(g.norm()) < limit * (1 - 1e-9):
        assert torch.equal(clipped, g)
    torch.testing.assert_close(clipped / clipped.norm(), g / g.norm(), rtol=0, atol=1e-12)


def test_clip_leaves_zero_alone_and_does_not_hide_nan() -> None:
    assert torch.equal(clip(torch.zeros(3), 1.0), torch.zeros(3))
    assert bool(clip(torch.tensor([1.0, float("nan")]), 1.0).isnan().any())


def test_clipping_comes_before_weight_decay() -> None:
    step = START - trained(LocalSgd(lr=1.0, steps=1, clip_norm=1e-3, weight_decay=0.5))
    torch.testing.assert_close(step, 0.5 * START, rtol=0, atol=2e-3)
    assert float((step - 0.5 * START).norm()) == pytest.approx(1e-3)


def test_a_correction_is_clipped_with_the_gradient_and_decay_is_not() -> None:
    correction = torch.full_like(START, 40.0)
    solver = LocalSgd(lr=1.0, steps=1, clip_norm=1e-3, weight_decay=0.5)
    got, _ = solver.steps_from(START, 1.0, TASK.data(3), VIEW, scale=0.5, correction=correction)()
    (gradient,) = gradients(1)
    whole = 0.5 * gradient(START) + correction
    torch.testing.assert_close(START - got, 1e-3 * whole / whole.norm() + 0.5 * START, rtol=0, atol=1e-12)


# What others build on a local run


def test_a_run_blends_and_corrects_every_step() -> None:
    correction, y = torch.full_like(START, 0.3), START
    for gradient in gradients(4):
        y = y - 0.1 * (0.7 * gradient(y) + correction)
    got, count = LocalSgd(lr=0.1, steps=4).steps_from(
        START, 1.0, TASK.data(3), VIEW, scale=0.7, correction=correction
    )()
    torch.testing.assert_close(got, y, rtol=0, atol=1e-13)
    assert count == 4


def test_quasi_global_momentum_starts_from_its_memory() -> None:
    solver = QuasiGlobal(LocalSgd(lr=0.1, steps=3, momentum=0.8), mu=0.6)
    memory = torch.linspace(0, 1, DIM, dtype=torch.float64)
    state, update = solver.train(
        solver.init(START, VIEW)._replace(momentum=memory), START, Received(), 1.0, TASK.data(3), VIEW
    )
    y, v = START, memory
    for gradient in gradients(3):
        v = 0.8 * v + gradient(y)
        y = y - 0.1 * v
    torch.testing.assert_close(update.x, y, rtol=0, atol=1e-13)
    assert torch.equal(state.momentum, torch.linspace(0, 1, DIM, dtype=torch.float64)), "the memory was overwritten"
    after = solver.after_mix(state, START, START - 0.6, Received(), VIEW)
    torch.testing.assert_close(after.momentum, 0.6 * memory + 0.4 * 0.6 / 0.3, rtol=0, atol=1e-13)


def test_a_round_without_steps_leaves_quasi_global_momentum_alone() -> None:
    solver = QuasiGlobal(LocalSgd(lr=0.1, steps=0, momentum=0.8), mu=0.6)
    state, _ = solver.train(solver.init(START, VIEW), START, Received(), 1.0, TASK.data(3), VIEW)
    assert solver.after_mix(state, START, START + 1, Received(), VIEW) is state


@given(beta=st.floats(0, 1))
def test_ole_moves_past_the_mixed_vector(beta: float) -> None:
    start, previous = Ole(beta), START * 0.5 - 1
    state, y = start.begin(start.init(previous, VIEW), START, VIEW)
    torch.testing.assert_close(y, START + beta * (START - previous), rtol=0, atol=1e-13)
    assert state.previous is previous
    _, at_first = start.begin(start.init(START, VIEW), START, VIEW)
    assert torch.equal(at_first, START)


def test_the_plain_start_is_the_mixed_vector_itself() -> None:
    assert PlainStart().begin(NoState(), START, VIEW)[1] is START
