"""Distillation finds what made a trajectory, and the loss for made examples is the loss for given ones."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from netdfl.core.errors import TrainingError
from netdfl.core.rng import Streams
from netdfl.core.types import Role, View
from netdfl.training.base import Objective
from netdfl.training.classification import Classification
from netdfl.training.data.examples import Samples
from netdfl.training.distill import Distiller, SyntheticExamples, Tuning
from netdfl.training.flat import FlatModel
from netdfl.training.siamese import TRANSFORMATIONS, dsa
from netdfl.training.toy import Centers
from tests.training.built import build

STREAMS, DIM, RATE = Streams(4), 5, 0.2
VIEW = View(8, 5, 8, (), (), 0.0, {}, {}, Role.SERVER, 8)
CURVATURE = torch.linspace(0.5, 1.5, DIM, dtype=torch.float64)
CENTER = torch.linspace(-2, 2, DIM, dtype=torch.float64)


def descent(rounds: int = 6) -> list[Tensor]:
    """Gradient descent on one quadratic."""
    models = [torch.zeros(DIM, dtype=torch.float64)]
    for _ in range(rounds):
        models.append(models[-1] - RATE * CURVATURE * (models[-1] - CENTER))
    return models


def distiller(**options: Any) -> Distiller:
    common = {"per_class": 3, "iterations": 300, "steps": 2, "gap": 2, "optimizer": "adam"}
    return Distiller(**(common | {"input_lr": 0.1, "rate": RATE, "rate_lr": 0.0} | options))


@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "input_lr": 1.0}, {"loss": "raw"}], ids=str)
def test_the_examples_are_what_the_trajectory_was_drawn_to(options: dict[str, Any]) -> None:
    made = distiller(**options).distil(descent(), Centers(CURVATURE, STREAMS), VIEW)
    assert made.x.shape == (3, DIM)
    torch.testing.assert_close(made.x.mean(0), CENTER, rtol=0, atol=0.05)


def test_the_rate_is_learned_too() -> None:
    """A rate that is wrong at first leaves a mismatch that no examples can take away."""

    def missed(rate_lr: float) -> float:
        made = distiller(rate=0.5, rate_lr=rate_lr).distil(descent(), Centers(CURVATURE, STREAMS), VIEW)
        return float((made.x.mean(0) - CENTER).norm())

    assert missed(0.01) < 0.3 * missed(0.0)


def test_same_seed_and_round_same_examples() -> None:
    first, again, later = (
        distiller(iterations=5).distil(descent(), Centers(CURVATURE, STREAMS), view)
        for view in (VIEW, VIEW, View(8, 6, 8, (), (), 0.0, {}, {}, Role.SERVER, 8))
    )
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, later.x)


def test_a_distillation_that_diverges_says_where() -> None:
    wild = distiller(optimizer="sgd", input_lr=1e200, loss="raw")
    with pytest.raises(TrainingError, match=r"^the distillation's loss is (nan|inf) in iteration \d+"):
        wild.distil(descent(), Centers(CURVATURE, STREAMS), VIEW)


def test_tuning_goes_to_what_the_examples_say_and_leaves_its_argument() -> None:
    examples, before = (
        SyntheticExamples(CENTER.expand(2, DIM), torch.zeros(2, dtype=torch.long)),
        torch.zeros(DIM).double(),
    )
    after = Tuning(steps=500, lr=0.05).tune(before, Centers(CURVATURE, STREAMS), examples, VIEW)
    torch.testing.assert_close(after, CENTER, rtol=0, atol=1e-3)
    assert not before.any()


# a model


def task(model: str = "mlp", shape: tuple[int, ...] = (1, 4, 4)) -> Classification:
    module = build(model, shape, 3, 1).double()
    flat = FlatModel(module)
    rng = STREAMS.rng("samples")
    x, y = torch.from_numpy(rng.standard_normal((8, *shape))), torch.from_numpy(rng.integers(3, size=8))
    return Classification(flat, flat.flat(), Samples(x, y), node=0, streams=STREAMS, batch_size=8, num_labels=3)


def slope(objective: Objective, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    leaf = at.clone().requires_grad_()
    return torch.autograd.grad(objective.loss(leaf, x, y), leaf, create_graph=True)[0]


def test_the_objective_is_the_loss_that_is_trained_on() -> None:
    own = task()
    gradient = next(own.data(0).steps(steps=1))
    at = own.initial() + 0.1
    samples = own.samples
    torch.testing.assert_close(slope(own.objective, at, samples.x, samples.y), gradient(at), rtol=0, atol=1e-12)
    assert (own.objective.input_shape, own.objective.num_labels) == ((1, 4, 4), 3)


def test_soft_labels_at_the_corners_are_hard_labels() -> None:
    own = task()
    x, y = own.samples.x, own.samples.y
    soft = torch.nn.functional.one_hot(y, 3).double()
    at = own.initial()
    torch.testing.assert_close(own.objective.loss(at, x, soft), own.objective.loss(at, x, y))


@pytest.mark.parametrize(("model", "shape"), [("mlp", (1, 4, 4)), ("convnet", (1, 16, 16))])
def test_a_trained_vector_can_be_derived_by_its_inputs(model: str, shape: tuple[int, ...]) -> None:
    """By the chain through a gradient step, checked against a difference quotient."""
    own = task(model, shape)
    at, y = own.initial(), own.samples.y
    x = own.samples.x.clone().requires_grad_()
    direction = torch.ones_like(x)

    def after(inputs: Tensor) -> Tensor:
        return (at - 0.1 * slope(own.objective, at, inputs, y)).square().sum()

    (derived,) = torch.autograd.grad(after(x), x)
    step = 1e-6
    quotient = (after(x + step * direction) - after(x - step * direction)) / (2 * step)
    assert float((derived * direction).sum()) == pytest.approx(float(quotient.detach()), rel=1e-4, abs=1e-9)


def trajectory_of(own: Classification, num: int = 3) -> list[Tensor]:
    """Models that SGD went through."""
    models = [own.initial()]
    for gradient in own.data(0).steps(steps=num):
        models.append(models[-1] - 0.5 * gradient(models[-1]))
    return models


def test_the_examples_learn_through_their_augmentation() -> None:
    """Where a rectangle is cut out they learn nothing: after one step, just what was kept has moved."""
    own, options = task(), {"iterations": 1, "steps": 1, "gap": 1, "input_lr": 0.1}
    models = trajectory_of(own)
    before, plain, cut = (
        distiller(**(options | changed)).distil(models, own.objective, VIEW).x
        for changed in ({"iterations": 0}, {}, {"augment": ("cutout",)})
    )
    kept = dsa(torch.ones_like(before), STREAMS.rng("augment", "distil", VIEW.round), transformations=("cutout",))
    assert 0 < float((1 - kept).sum()) < kept.numel()
    assert bool((plain != before).all())
    assert torch.equal(cut == before, kept == 0)


def test_every_step_sees_another_change() -> None:
    seen: list[Tensor] = []

    class Watched:
        input_shape, num_labels, streams = (1, 4, 4), 3, STREAMS

        def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
            seen.append(x)
            return task().objective.loss(at, x, y)

        def drawing(self, *key: int | str) -> AbstractContextManager[None]:
            return nullcontext()

    examples = SyntheticExamples(task().samples.x, task().samples.y)
    tuning = Tuning(steps=6, lr=0.01, augment=("color",))
    first = tuning.tune(task().initial(), Watched(), examples, VIEW)
    assert len({float(x.sum()) for x in seen}) == 6
    assert torch.equal(first, tuning.tune(task().initial(), Watched(), examples, VIEW))
    plain = Tuning(steps=6, lr=0.01).tune(task().initial(), Watched(), examples, VIEW)
    assert all(torch.equal(x, examples.x) for x in seen[-6:])
    assert not torch.equal(first, plain)


def test_augmented_examples_depend_on_seed_and_round_alone() -> None:
    own = task()
    tool = distiller(iterations=3, gap=1, augment=TRANSFORMATIONS)
    first = tool.distil(trajectory_of(own), own.objective, VIEW)
    torch.manual_seed(5)
    again = tool.distil(trajectory_of(own), own.objective, VIEW)
    plain = distiller(iterations=3, gap=1).distil(trajectory_of(own), own.objective, VIEW)
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, plain.x)


def test_vectors_are_not_augmented() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 5\): expected pictures, \(N, C, H, W\); use no augmentation"):
        distiller(augment=("flip",)).distil(descent(), Centers(CURVATURE, STREAMS), VIEW)
