"""Checks that your own task keeps its contract (`netdfl.Task`); run them in a test.

from netdfl.testing.tasks import check_task

def test_my_task() -> None:
    check_task(MyTask)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import torch

from netdfl.core.rng import Streams
from netdfl.training.classification import outcome
from netdfl.training.data.examples import Samples, leaves
from netdfl.training.data.own import adapted, for_own_loss
from netdfl.training.flat import FlatModel
from netdfl.training.tasks.recipe import Recipe, made, one_form
from netdfl.training.tasks.task import Task


def check_task(make: Callable[[], Task], *, share: float = 0.2) -> None:
    """Run every check on the task that `make` returns.

    `share` is the fraction of its data that becomes the test set, if it has none. Raises AssertionError with the
    difference, or the error that the task itself raises.
    """
    first, again = _made(make, share), _made(make, share)
    starts_alike(first[0], again[0])
    reads_alike(first[1], again[1])
    learns(*first)
    is_judged(make(), *first)


def starts_alike(first: FlatModel, again: FlatModel) -> None:
    """Check that a task's model has the same initial parameters when it is made twice from one seed."""
    assert torch.equal(first.flat(), again.flat()), "two nodes start apart: draw at random in model() alone, by torch"


def reads_alike(first: Samples, again: Samples) -> None:
    """Check that a task makes the same data each time, because all nodes must get the same data."""
    pairs = zip(leaves((first.x, first.y)), leaves((again.x, again.y)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs), (
        "two nodes read other data: draw it by a seed of its own"
    )


def learns(model: FlatModel, samples: Samples) -> None:
    """Check that the loss of a minibatch is finite, depends on the model, and falls by a small gradient step."""
    at = model.flat()
    slope = torch.zeros_like(at)
    before = float(model.slope(at, samples.x, samples.y, slope))
    assert math.isfinite(before), f"the loss at the start is {before}"
    assert slope.isfinite().all(), "the gradient at the start is not finite"
    assert slope.any(), "the loss does not depend on any parameter"
    step = 1e-3 * before / float(slope.square().sum())
    after = float(model.slope(at - step * slope, samples.x, samples.y, slope))
    assert after < before, f"a small step along the gradient brings the loss from {before:g} to {after:g}"


def is_judged(task: Task, model: FlatModel, samples: Samples) -> None:
    """Check that the metrics with which the task evaluates a model are finite numbers with plain names."""
    found = outcome(model, model.flat(), samples)
    for name, value in task.metrics(found.outputs, found.targets).items():
        assert name.isidentifier(), f"a figure is called {name!r}: use plain words"
        assert math.isfinite(float(value)), f"{name} is {value}"


def _made(make: Callable[[], Task], share: float) -> tuple[FlatModel, Samples]:
    task = make()
    recipe = Recipe(
        for_own_loss(adapted(task.data())), lambda shape, classes: task.model(), lambda y: task.loss, lambda y: None
    )
    data = one_form(recipe.data, share, Streams(0))
    model, _ = made(recipe, data, SimpleNamespace(buffers="reset", initial=None), 0)
    return model, Samples(*data.train.take(torch.arange(min(8, len(data.train)))))
