"""What solvers do, worked out by hand on a few numbers: masks, momentum, optimizers, schedules, distilled examples."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.base import Received, Update
from netdfl.training.control import FedDynSolver
from netdfl.training.masked import MASK, MEAN, NEXT_MASK, MaskedSgd, layers
from netdfl.training.momentum import KeptMomentum, QuasiGlobal
from netdfl.training.ole import Ole
from netdfl.training.optimized import OptimizedSgd
from netdfl.training.perturbation import DUAL, PERTURBATION, Lesam, Smoo
from netdfl.training.rollback import SAMPLES, Rollback, SampleCounter
from netdfl.training.sgd import FixedPoint, LocalSgd, carried, over_path
from netdfl.training.stepping import OptimizerChoice, Schedule
from netdfl.training.toy import Quadratic

STREAMS = Streams(5)
VIEW = View(1, 0, 3, (0, 2), (0, 2), 0.5, {0: 0.25, 2: 0.25}, {0: 0.25, 2: 0.25})
X = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
NOTHING_CAME = Received()


def pulled(*, curvature: float = 1.0, noise: float = 0.0) -> Quadratic:
    """A quadratic around zero."""
    return Quadratic(0 * X, X, torch.full_like(X, curvature), node=1, streams=STREAMS, noise=noise)


def trained(solver: Any, state: Any = None, y: Tensor = X, received: Received = NOTHING_CAME, round: int = 0) -> Any:
    view = VIEW._replace(round=round)
    begun = solver.init(y, view) if state is None else state
    return solver.train(begun, y, received, 1.0, pulled().data(round), view)


# masks


def masked(**changed: Any) -> MaskedSgd:
    given: dict[str, Any] = {"density": 0.5, "layout": "uniform", "anneal": 0.5, "anneal_rounds": 4, "regrow": "random"}
    return MaskedSgd(sgd=LocalSgd(lr=0.1, steps=1), streams=STREAMS, **(given | changed))


def test_layers_of_two_dimensions_and_more_are_sparse_or_all_where_there_are_no_others() -> None:
    assert list(layers([(2, 3), (3,), (1, 4), (2, 1, 2)])) == [(0, 6), (9, 4), (13, 4)]
    assert list(layers([(3,), (2,)])) == [(0, 3), (3, 2)]


def test_a_first_mask_has_as_many_coordinates_in_each_layer_as_its_density_says() -> None:
    shapes = [(4, 5), (5,), (2, 10)]
    mask = masked(density=0.3).first_mask(shapes, VIEW)
    assert [int(part.sum()) for part in mask.split([20, 5, 20])] == [6, 5, 6]
    assert not torch.equal(mask, masked(density=0.3).first_mask(shapes, VIEW._replace(node=2)))
    assert torch.equal(mask, masked(density=0.3).first_mask(shapes, VIEW._replace(round=9)))
    assert not torch.equal(mask[:20], mask[25:]), "a stream for each layer"


@pytest.mark.parametrize(("round", "given_up"), [(0, 2), (1, 2), (2, 1), (3, 1), (4, 0), (9, 0)])
def test_the_smallest_give_way_to_the_steepest_fewer_and_fewer(round: int, given_up: int) -> None:
    """Of 4 of 8 active ones, ceil(4 r_t) with r_t = (1 + cos(pi t / 4)) / 4: 2, 1.7, 1, 0.3, 0."""
    mask = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0], dtype=torch.bool)
    sizes = torch.tensor([4.0, 1.0, 3.0, 2.0, 9.0, 9.0, 9.0, 9.0])
    slopes = torch.tensor([9.0, 0.0, 9.0, 0.5, 1.0, 4.0, 3.0, 2.0])
    found = masked().evolved(mask, sizes, slopes, [(8, 1)], round)
    assert found.tolist() == [
        True, given_up < 1, True, given_up < 2, False, given_up > 0, given_up > 1, False,
    ]  # fmt: skip
    assert mask.tolist() == [True] * 4 + [False] * 4


def test_steps_are_taken_on_the_mask_from_the_mean_that_mixing_left() -> None:
    solver = masked(regrow="gradient", anneal=1.0, anneal_rounds=1000)
    state, update = trained(solver)
    mask = update.extras[MASK]
    assert int(mask.sum()) == 2
    torch.testing.assert_close(update.x, 0.9 * X * mask)
    assert torch.equal(state.mask, update.extras[NEXT_MASK])
    assert int(state.mask.sum()) == 2
    again, other = trained(solver, state, received=Received({MEAN: 10 * X}))
    torch.testing.assert_close(other.x, 9 * X * state.mask)
    assert torch.equal(other.extras[MASK], state.mask)
    assert again.mask is other.extras[NEXT_MASK]
    rest, idle = MaskedSgd(**vars(solver) | {"sgd": LocalSgd(lr=0.1, steps=0)}).train(
        state, X, Received(), 1.0, pulled().data(0), VIEW
    )
    assert rest.mask is idle.extras[MASK] is idle.extras[NEXT_MASK]


# momentum, rates


def test_kept_momentum_goes_on_and_begins_anew_when_it_is_said() -> None:
    sgd = LocalSgd(lr=0.5, steps=1, momentum=0.5)
    for every in (None, 2, 1):
        solver = KeptMomentum(sgd, every)
        state, update = trained(solver)
        torch.testing.assert_close(update.x, X / 2)
        torch.testing.assert_close(state.velocity, X)
        _, update = trained(solver, state, update.x, round=1)
        expected = X / 2 - 0.5 * ((0 if every == 1 else 0.5) * X + X / 2)
        torch.testing.assert_close(update.x, expected)
    state, update = trained(KeptMomentum(sgd, 2), trained(KeptMomentum(sgd, 2))[0], X / 2, round=2)
    torch.testing.assert_close(update.x, X / 4)


def test_quasi_global_momentum_follows_how_far_the_round_has_moved_by_step() -> None:
    solver = QuasiGlobal(LocalSgd(lr=0.5, steps=2), 0.75)
    state, _ = trained(solver)
    assert state.steps == 2
    after = solver.after_mix(state, X, X - 4.0, Received(), VIEW)
    torch.testing.assert_close(after.momentum, torch.full_like(X, 0.25 * 4.0 / (0.5 * 2)))
    assert solver.after_mix(state._replace(steps=0), X, 0 * X, Received(), VIEW).momentum is state.momentum
    assert over_path(X, 0.0) is None


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Schedule(), [1.0] * 6),
        (Schedule(warmup=4), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
        (Schedule(kind="step", every=2, gamma=0.5), [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]),
        (Schedule(kind="step", every=2, gamma=0.5, warmup=1), [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]),
        (Schedule(kind="cosine", rounds=4, floor=0.2), [1.0, 0.8828427, 0.6, 0.3171573, 0.2, 0.2]),
        (Schedule(kind="cosine", rounds=3, warmup=2), [0.5, 1.0, 1.0, 0.0, 0.0, 0.0]),
        (Schedule(kind="cosine", rounds=2, warmup=2), [0.5, 1.0, 1.0, 0.0, 0.0, 0.0]),
        (Schedule(kind="cosine"), [1.0] * 6),
    ],
)
def test_a_schedule_rises_and_falls_by_rounds(schedule: Schedule, factors: list[float]) -> None:
    assert [schedule.factor(round) for round in range(6)] == pytest.approx(factors)
    sgd = LocalSgd(lr=0.5, lr_decay=0.9, schedule=schedule)
    assert sgd.rate(VIEW._replace(round=3)) == pytest.approx(0.5 * 0.9**3 * factors[3])


def test_at_a_fixed_point_all_gradients_are_of_the_start_and_their_sum_is_one_step() -> None:
    solver = FixedPoint(LocalSgd(lr=0.1, steps=3))
    _, update = solver.train(solver.init(X, VIEW), X, Received(), 0.5, pulled().data(0), VIEW)
    torch.testing.assert_close(update.x, X - 0.1 * 3 * 2 * X)
    writes: Any = SimpleNamespace(written=None)
    assert carried(writes, X, 0.5) is X
    writes.written = X + 1
    assert carried(writes, X, 1.0) is writes.written
    assert torch.equal(carried(writes, X, 0.5), (X + 1) / 2)
    assert carried(object(), X, 0.5) is X  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "radam", "adamax", "adagrad", "adadelta", "rmsprop"])
@pytest.mark.parametrize("keeps", ["reset", "kept"])
def test_an_optimizer_is_torchs_with_its_options_on_the_flat_vector(name: str, keeps: Any) -> None:
    choice = OptimizerChoice(name=name, betas=(0.8, 0.9), eps=1e-3, state=keeps)  # type: ignore[arg-type]
    solver = OptimizedSgd(lr=0.05, steps=2, optimizer=choice, decay=0.02)
    state, first = trained(solver)
    _, second = trained(solver, state, first.x, round=1)
    kind = {each.lower(): each for each in dir(torch.optim)}[name]
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.02}
    options |= {"eps": 1e-3}
    options |= {"betas": (0.8, 0.9)} if name in ("adam", "adamw", "nadam", "radam", "adamax") else {}
    at = X.clone().requires_grad_()
    optimizer = getattr(torch.optim, kind)([at], **options)
    for round in range(2):
        if round and keeps == "reset":
            optimizer = getattr(torch.optim, kind)([at], **options)
        for _ in range(2):
            at.grad = at.detach().clone()
            optimizer.step()
        torch.testing.assert_close((first, second)[round].x, at.detach())
    assert bool(state.remembered) is (keeps == "kept")


# what goes beside the model


def test_a_report_says_how_many_examples_its_client_has() -> None:
    _, update = trained(SampleCounter(LocalSgd(lr=0.1, steps=1)))
    assert update.extras[SAMPLES].tolist() == [1.0]


@pytest.mark.parametrize(("last_read", "lost"), [(None, False), (2, False), (1, True), (-1, True)])
def test_what_a_lost_report_did_is_taken_back(last_read: int | None, lost: bool) -> None:
    solver = Rollback(FedDynSolver(LocalSgd(lr=0.1, steps=1), 0.5))
    state, update = trained(solver, round=2)
    assert (state.round, solver.init(X, VIEW).round) == (2, -1)
    state = solver.after_mix(state, X, update.x, Received(), VIEW)
    torch.testing.assert_close(state.inner.drift, update.x - X)
    after, _ = trained(solver, state, received=Received(last_read=last_read), round=3)
    assert after.before is (state.before if lost else state.inner)


def test_what_was_left_unsaid_of_a_dual_is_taken_back() -> None:
    for less, by_change in ((False, False), (True, False), (False, True), (True, True)):
        solver = Smoo(LocalSgd(lr=0.1, steps=1), 0.5, by_change, less)
        state = solver.init(X, VIEW)
        told = Received({PERTURBATION: 0 * X})
        after, update = trained(solver, state, received=told)
        own = 0.5 * X / X.norm()
        torch.testing.assert_close(after.dual, own)
        torch.testing.assert_close(update.extras[DUAL], 0 * X if less else own)
        torch.testing.assert_close(update.x, X - 0.1 * (X + own))
        again, second = trained(solver, after, received=told)
        expected = (again.dual - again.last if less else again.dual) - (after.spoken if by_change else 0)
        torch.testing.assert_close(second.extras[DUAL], expected)
        left = solver.after_mix(after, X, X, Received(unsaid={DUAL: X}), VIEW)
        torch.testing.assert_close(left.dual, after.dual - X)
        assert solver.after_mix(after, X, X, Received(), VIEW).dual is after.dual


def test_lesam_looks_back_from_the_second_time_on() -> None:
    solver = Lesam(LocalSgd(lr=0.1, steps=1), 0.5)
    state, update = trained(solver)
    torch.testing.assert_close(update.x, 0.9 * X)
    _, update = trained(solver, state, 0.5 * X)
    back = 0.5 * X / X.norm()
    torch.testing.assert_close(update.x, 0.5 * X - 0.1 * (0.5 * X + back))


def test_ole_begins_past_the_mean_and_remembers_where_steps_ended() -> None:
    ole = Ole(0.5)
    state, y = ole.begin(ole.init(X, VIEW), X, VIEW)
    torch.testing.assert_close(y, X)
    state = ole.trained(state, Update(X, 3 * X), VIEW)
    torch.testing.assert_close(ole.begin(state, X, VIEW)[1], X + 0.5 * (X - 3 * X))


def test_what_a_solver_is_not_told_it_does_not_do() -> None:
    assert LocalSgd(lr=0.1) == LocalSgd(
        lr=0.1, lr_decay=1.0, epochs=None, steps=None, momentum=0.0, nesterov=False, rho=0.0, weight_decay=0.0,
        clip_norm=None, schedule=Schedule(),
    )  # fmt: skip
    assert Schedule() == Schedule(kind="constant", warmup=0, every=30, gamma=0.1, floor=0.0, rounds=None)
    assert OptimizerChoice() == OptimizerChoice(name="sgd", betas=(0.9, 0.999), eps=1e-8, state="reset")
    sgd = LocalSgd(lr=0.1)
    assert KeptMomentum(sgd) == KeptMomentum(sgd, None)
    assert Smoo(sgd, 0.5) == Smoo(sgd, 0.5, by_change=False, less_last=False)
    assert OptimizedSgd(lr=0.1, optimizer=OptimizerChoice(name="adam")).decay == 0.0
    assert Update(X, X)[2:3] == ({},)
    assert math.isnan(Update(X, X).loss)
    assert Received() == Received({}, None, {}, None)
    assert LocalSgd.rows is True
    assert (pulled().num_samples, pulled().noise) == (1, 0.0)
