"""Synthetic examples and toys worked out by hand: what is distilled, tuned, guided, augmented; where nothing pulls."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.core.errors import NotFiniteError, TrainingError
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.base import Received, alone
from netdfl.training.catalog import SIZED_NBYTES, TRAINING_FREE, consensus, quadratic, sized, without_torch
from netdfl.training.distill import Distiller, SyntheticExamples, Tuning
from netdfl.training.guided import HOLDS, INPUTS, LABELS, FedSynSamSolver
from netdfl.training.sgd import LocalSgd
from netdfl.training.toy import Centers, Quadratic, optimum, still

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


# synthetic examples


class Once(Centers):
    """Remembers what was asked to be drawn."""

    def drawing(self, *key: Any) -> Any:
        self.__dict__.setdefault("asked", []).append(key)
        return nullcontext()


def test_a_guided_ascent_is_blended_from_the_nodes_own_gradient_and_that_of_synthetic_examples() -> None:
    task = pulled()
    data: Any = task.data(0)
    data.objective = Once(task.curvature, STREAMS)
    made = {INPUTS: torch.stack([2 * X, 4 * X]), LABELS: torch.tensor([0, 0])}
    for beta, rho in ((0.25, 0.5), (1.0, 0.5), (0.25, 0.0)):
        solver = FedSynSamSolver(sgd=LocalSgd(lr=0.1, steps=1), rho=rho, beta=beta, batch=2)
        state, update = solver.train(solver.init(X, VIEW), X, Received(made), 1.0, data, VIEW)
        direction = beta * X + (1 - beta) * (X - 3 * X)
        torch.testing.assert_close(update.x, X - 0.1 * (X + rho * direction / direction.norm()))
        assert update.extras[HOLDS].tolist() == [1.0]
        assert dict(state.synthetic) == made
    assert data.objective.asked == [("synthetic", 1, 0, 0)]
    plain, alone_ = trained(solver)
    assert alone_.extras[HOLDS].tolist() == [0.0]
    assert not plain.synthetic


@pytest.mark.parametrize("rho", [0.5, 0.0])
def test_a_blended_descent_goes_down_both_gradients_on_one_minibatch_a_step(rho: float) -> None:
    task = pulled()
    data: Any = task.data(0)
    data.objective = Once(task.curvature, STREAMS)
    beta, made = 0.25, {INPUTS: torch.stack([2 * X, 4 * X, 9 * X]), LABELS: torch.tensor([0, 0, 0])}
    solver = FedSynSamSolver(sgd=LocalSgd(lr=0.1, steps=2), rho=rho, beta=beta, batch=1, blend="both")
    _, update = solver.train(solver.init(X, VIEW), X, Received(made), 1.0, data, VIEW)
    rng, y = STREAMS.rng("synthetic", VIEW.node, VIEW.round), X
    for _ in range(2):
        center = made[INPUTS][rng.permutation(3)[0]]

        def blended(at: Tensor, center: Tensor = center) -> Tensor:
            return beta * at + (1 - beta) * (at - center)

        top = y + rho * blended(y) / blended(y).norm()
        y = y - 0.1 * blended(top)
    torch.testing.assert_close(update.x, y)
    asked = 1 + (rho > 0)
    assert data.objective.asked == [("synthetic", 1, 0, step) for step in (0, 1) for _ in range(asked)]


def test_without_synthetic_examples_or_weight_for_them_a_blended_step_is_sams() -> None:
    made = {INPUTS: torch.stack([2 * X, 4 * X]), LABELS: torch.tensor([0, 0])}
    for beta, came in ((0.25, {}), (1.0, made)):
        solver = FedSynSamSolver(sgd=LocalSgd(lr=0.1, steps=1), rho=0.5, beta=beta, batch=2, blend="both")
        _, update = trained(solver, received=Received(came))
        torch.testing.assert_close(update.x, X - 0.1 * (X + 0.5 * X / X.norm()))


def distiller(**changed: Any) -> Distiller:
    given: dict[str, Any] = {"per_class": 2, "iterations": 1, "steps": 1, "gap": 2, "optimizer": "sgd"}
    return Distiller(**(given | {"input_lr": 0.1, "rate": 0.5, "rate_lr": 0.0} | changed))


@pytest.mark.parametrize("loss", ["normalised", "raw"])
def test_distilled_examples_lead_from_one_model_to_a_later_one(loss: Any) -> None:
    objective = Once(torch.ones(2, dtype=torch.float64), STREAMS)
    models = [torch.tensor([k, -k], dtype=torch.float64) for k in (0.0, 1.0, 3.0)]
    made = distiller(iterations=300, input_lr=1.0, loss=loss, rate_lr=1e-3).distil(models, objective, VIEW)
    assert made.x.shape == (2, 2)
    assert made.y.tolist() == [0, 0]
    at = models[0] - 0.5 * (models[0] - made.x).mean(0)
    assert float((at - models[2]).norm()) < 0.7
    assert not made.x.requires_grad
    assert objective.asked[:2] == [("distil", 0, 0), ("distil", 0, 1)]  # type: ignore[attr-defined]
    with pytest.raises(TrainingError, match="the distillation's loss is nan in iteration 0; expected a finite one"):
        distiller().distil([torch.full_like(each, math.nan) for each in models], objective, VIEW)


def test_tuning_is_steps_of_adam_on_all_examples() -> None:
    objective = Once(torch.ones(4, dtype=torch.float64), STREAMS)
    examples = SyntheticExamples(torch.stack([0 * X, 2 * X]), torch.tensor([0, 0]))
    found = Tuning(steps=3, lr=0.25).tune(X + 1, objective, examples, VIEW)
    at = (X + 1).clone().requires_grad_()
    optimizer = torch.optim.Adam([at], lr=0.25)
    for _ in range(3):
        at.grad = at.detach() - X
        optimizer.step()
    torch.testing.assert_close(found, at.detach())
    assert objective.asked == [("tune", 0, step) for step in range(3)]  # type: ignore[attr-defined]


# toys


def test_toys_are_of_the_size_and_the_type_asked_for_and_alike_with_and_without_torch() -> None:
    for init in ("normal", "integers", "ramp"):
        for dtype in ("float32", "float64"):
            one = consensus(2, STREAMS, dim=5, init=init, dtype=dtype)  # type: ignore[arg-type]
            other = without_torch(2, STREAMS, dim=5, init=init, dtype=dtype)
            assert one.initial().numpy().tolist() == np.asarray(other.initial()).tolist()
            assert str(one.initial().dtype) == f"torch.{dtype}"
            assert not one.pulls
    assert np.asarray(without_torch(2, STREAMS, dim=5, init="ramp").initial()).tolist() == [2, 3, 4, 5, 6]
    large = np.asarray(without_torch(2, STREAMS, dim=4000, init="integers").initial())
    assert (large.min(), large.max()) == (0, 1023)
    assert sized(2, STREAMS, bytes=1000).dim * 8 == SIZED_NBYTES
    assert {"consensus", "sized"} == TRAINING_FREE
    assert torch.equal(sized(2, STREAMS, bytes=9).initial(), consensus(2, STREAMS, dim=4).initial())
    pulls = quadratic(3, STREAMS, dim=3, curvature=(1.0, 4.0), condition=100.0).curvature
    torch.testing.assert_close(pulls, torch.tensor([0.04, 0.4, 4.0], dtype=torch.float64))


def test_a_round_of_a_quadratic_knows_its_loss_and_stops_where_that_is_not_finite() -> None:
    task = pulled(curvature=2.0)
    data = task.data(0)
    assert data.loss(X) == float(X.square().sum())
    assert (data.num_samples, data.shapes, task.objective.num_labels) == (1, ((4,),), 1)
    steps = list(data.steps(steps=3))
    assert torch.equal(steps[0](X), 2 * X)
    with pytest.raises(NotFiniteError, match="the training loss became nan") as caught:
        steps[2](X * math.nan)
    assert caught.value.step == 2
    assert [len(list(data.steps(epochs=2))), len(list(data.steps())), len(list(data.steps(epochs=5, steps=1)))] == [
        *(2, 0, 1),
    ]
    quiet = still(X, 1, STREAMS).data(0)
    assert quiet.rests(X)  # type: ignore[attr-defined]
    assert not quiet.rests(X * math.inf)  # type: ignore[attr-defined]
    assert not pulled().data(0).rests(X)  # type: ignore[attr-defined]
    assert pulled(curvature=0.0, noise=0.5).pulls
    assert not pulled(curvature=0.0).pulls


def test_the_optimum_is_where_pulls_even_out_and_the_mean_start_where_nothing_pulls() -> None:
    one = Quadratic(X, 0 * X, torch.tensor([1.0, 1.0, 0.0, 2.0]).double(), node=0, streams=STREAMS)
    two = Quadratic(3 * X, 2 * X, torch.tensor([1.0, 3.0, 0.0, 0.0]).double(), node=1, streams=STREAMS)
    torch.testing.assert_close(optimum([one, two]), X * torch.tensor([2.0, 2.5, 1.0, 1.0]))
    plain = [without_torch(node, STREAMS) for node in range(3)]
    mean = np.mean([np.asarray(task.start) for task in plain], axis=0)
    np.testing.assert_allclose(np.asarray(optimum(plain)), mean)


def test_a_generator_of_steps_is_answered_from_what_ran_already() -> None:
    def asking() -> Any:
        first = yield lambda: (X, 1)
        second = yield lambda: (X, 2)
        return first[1], second[1]

    assert alone(asking()) == (1, 2)
    begun = asking()
    next(begun)
    assert alone(begun, (X, 3)) == (3, 2)
