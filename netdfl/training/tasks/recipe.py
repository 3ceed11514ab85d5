"""The ingredients of training: data in one form for all kinds of datasets, a model that fits, a loss and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from netdfl.core.errors import DatasetError, OwnPartError
from netdfl.core.rng import Streams
from netdfl.training.data.client_files import ClientFiles
from netdfl.training.data.dataset import Dataset, Labels, Pixels, data_root
from netdfl.training.data.examples import Examples, Samples, Tree, leaves, shape_of
from netdfl.training.data.finite import NonFiniteExample, spoiled_in
from netdfl.training.data.own import Datasets, SharedData, adapted, for_own_loss, shared, some_targets, with_test
from netdfl.training.drawing import aside
from netdfl.training.flat import FlatModel, Loss
from netdfl.training.models.buffers import applied, means
from netdfl.training.models.build import load_initial, seeded_module, settle
from netdfl.training.models.copying import copied
from netdfl.training.tasks.fits import Metrics, NamedMetrics, check_figures, check_loss, class_axis, raised
from netdfl.training.tasks.losses import (
    LEFT_OUT,
    LOSSES,
    METRICS,
    OF_CLASSES,
    OF_NUMBERS,
    USUAL,
    check_num_classes,
    either_fits,
    fitting_loss,
    on_axis,
)
from netdfl.training.tasks.task import Task


@dataclass(frozen=True)
class Recipe:
    """The data, model, loss and metrics of a scenario's task.

    Attributes:
        data: the dataset.
        model: returns a module for an input shape and a number of classes.
        loss: returns the loss that suits the targets; None stands for cross-entropy of one class each.
        metrics: returns the metrics that suit the targets; None stands for accuracy.
        numbers: whether the loss takes targets as numbers, even integers, which are then no classes.
        by_values: whether the choice of loss and metrics depends on the targets' values, not only on their type.
        classes: whether whole targets are classes, learned by netdfl's own cross-entropy.
        on_axis: returns, for an axis, the recipe whose loss and metrics take class scores on this axis; None if all of
            them are a user's own or take no class scores.
    """

    data: Dataset | Datasets | ClientFiles
    model: Callable[[tuple[int, ...], int], nn.Module]
    loss: Callable[[Any], Loss | None]
    metrics: Callable[[Any], Metrics | None]
    numbers: bool = False
    by_values: bool = False
    classes: bool = False
    on_axis: Callable[[int], Recipe] | None = None


def recipe_of(task: Any) -> Recipe:
    """Return the recipe of a scenario's `task: train`, or of a user's own task.

    Raises DatasetError, InputError.
    """
    if not hasattr(task, "dataset"):
        own: Task = task.build()
        data = for_own_loss(adapted(own.data()))
        return Recipe(data, lambda shape, classes: own.model(), lambda y: own.loss, lambda y: _named(own.metrics))
    numbers = not isinstance(task.loss, str) and task.loss.kind in OF_NUMBERS
    automatic = isinstance(task.loss, str)
    classes = automatic or task.loss.kind == "cross_entropy"
    data = task.dataset.build(data_root())
    alone = not automatic and task.loss.own and all(part.own for part in task.metrics)
    found = Recipe(
        for_own_loss(data) if alone else data,
        task.model.build,
        partial(_loss, task),
        partial(_metrics, task),
        numbers,
        by_values=automatic,
        classes=classes,
    )

    def on_axis(axis: int) -> Recipe:
        return replace(found, loss=partial(_loss, task, axis=axis), metrics=partial(_metrics, task, axis=axis))

    judged = any(part.kind in OF_CLASSES for part in task.metrics)
    return replace(found, on_axis=on_axis) if classes or judged else found


def _loss(task: Any, y: Any, axis: int | None = None) -> Loss | None:
    name = fitting_loss(y) if isinstance(task.loss, str) else task.loss.kind
    if name == "cross_entropy" and y.dim() == 1:
        return None
    chosen: Loss = _on(axis, name, LOSSES[name] if isinstance(task.loss, str) else task.loss.build)
    return chosen


def _metrics(task: Any, y: Any, axis: int | None = None) -> Metrics | None:
    if not task.metrics and _loss(task, y) is None:
        return None
    if not task.metrics:
        loss = fitting_loss(y) if isinstance(task.loss, str) else task.loss.kind
        return NamedMetrics({name: _on(axis, name, METRICS[name]) for name in USUAL.get(loss, ())})
    names = [part.kind.rpartition(":")[2].rpartition(".")[2] for part in task.metrics]
    own = frozenset(name for name, part in zip(names, task.metrics, strict=True) if part.own)
    judges = {name: _on(axis, part.kind, part.build) for name, part in zip(names, task.metrics, strict=True)}
    return NamedMetrics(judges, own)


def _on(axis: int | None, name: str, judge: Any) -> Any:
    """Return the loss or metric `judge`, called `name`, for class scores on `axis`; None: shapes show the axis."""
    return judge if axis is None or name not in OF_CLASSES else on_axis(axis, judge)


def _check_below_0(data: SharedData) -> None:
    """Check that no target in memory is below 0, except -100, which is ignored. Raises DatasetError."""
    for name, each in (("dataset", data.train), ("test set", data.test)):
        y = each.y if isinstance(each, Samples) else torch.zeros(0)
        if bool(((y < 0) & (y != LEFT_OUT)).any()):
            remedy = f"number the classes from 0 on; {LEFT_OUT} stands for what is left out"
            raise DatasetError(f"the {name} has a target below 0: {remedy}")


def _check_tests_have_classes(data: SharedData) -> None:
    """Check that the targets of test sets are whole numbers, as classes are. Raises DatasetError."""
    for each in (data.test, *(data.client_tests or ())):
        y = each.take(torch.arange(1))[1] if each is not None and len(each) else None
        if isinstance(y, Tensor) and y.is_floating_point():
            told = f"the test set has targets of {y.dtype}, and those of the training set are whole numbers, classes"
            raise DatasetError(f"{told}: give both as integers")


def _targets(train: Examples, y: Tree) -> Tree:
    """Return the targets from which a loss is chosen: all in memory, or the first ones of a set that is read on demand.

    Where only their type matters, return `y`, the targets of the first examples.
    """
    if not isinstance(y, Tensor) or not y.is_floating_point() or y.dim() == 1:
        return y
    found: list[Tensor] = []
    for some in some_targets(train):
        found.append(some)
        if fitting_loss(some) != "binary_cross_entropy":
            break
    return torch.cat(found)


def _named(metrics: Metrics) -> Metrics:
    """Wrap the metrics of a user's task, so that they raise OwnPartError if one is called `loss`, as the loss is."""

    def judge(outputs: Any, targets: Any) -> Mapping[str, float]:
        found = metrics(outputs, targets)
        if isinstance(found, Mapping) and "loss" in found:
            raise OwnPartError(
                "the task's metrics have a figure named 'loss', as the loss's own is", "name it otherwise"
            )
        return found

    return judge


def made(recipe: Recipe, data: SharedData, settings: Any, seed: int) -> tuple[FlatModel, Metrics | None]:
    """Return the model, initialized by `seed`, and its metrics; `settings` has the scenario's `buffers` and `initial`.

    `buffers` is the policy for running statistics, `initial` a file of weights or None. Raises ValueError where model,
    data and loss do not fit, DatasetError where the targets are wrong.
    """
    x, y = data.first()
    as_numbers = recipe.numbers or not data.num_classes
    wanted = (shape_of(y) or (1,))[0] if as_numbers else data.num_classes
    targets = _targets(data.train, y) if recipe.by_values else y
    loss = recipe.loss(targets)
    if loss is None and data.labels is None:
        remedy = "number the classes from 0 on, or learn numbers by task.loss: mse"
        raise DatasetError(f"the dataset has a target below 0: {remedy}")
    if loss is None and isinstance(data.test, Samples) and any((found < 0).any() for found in leaves(data.test.y)):
        raise DatasetError("the test set has a target below 0: number its classes from 0 on")
    classes = loss is not None and recipe.classes and isinstance(y, Tensor) and not y.is_floating_point()
    if loss is None or classes:
        _check_tests_have_classes(data)
    if classes:
        _check_below_0(data)
    module = seeded_module(lambda: recipe.model(shape_of(x), wanted), seed)
    outputs = settle(module, x, seed)
    if recipe.on_axis is not None and not as_numbers and either_fits(outputs, y):
        recipe = recipe.on_axis(class_axis(module, x, outputs))
        loss = recipe.loss(targets)
    if settings.initial is not None:
        load_initial(module, settings.initial)
    model = FlatModel(module, loss, buffers=_means(module, x), policy=settings.buffers)
    model.try_on(x, y)
    if classes:
        check_num_classes(outputs, y, data.num_classes)
    check_loss(model, x, y, outputs, data.num_classes)
    metrics = recipe.metrics(targets)
    if metrics is not None:
        check_figures(metrics, outputs, y)
    return model, metrics


@dataclass(frozen=True)
class _StandardizedSplit:
    """One split of a `Dataset`, whose examples are standardized on demand."""

    data: Dataset
    x: Pixels
    y: Labels

    def __len__(self) -> int:
        return len(self.y)

    def only(self, indices: NDArray[np.int64] | slice) -> Samples:
        x, y = self.data.standardized(self.x[indices]), np.array(self.y[indices])
        return Samples(torch.from_numpy(x), torch.from_numpy(y))

    def take(self, indices: Tensor) -> tuple[Any, Any]:
        found = self.only(indices.numpy())
        return found.x, found.y

    def to(self, device: str | torch.device) -> Samples:
        return self.only(slice(None)).to(device)

    def spoiled(self, name: str) -> list[NonFiniteExample]:
        """Return the first inputs with NaN or infinity in the split `name`; none if the sum of all is finite."""
        if self.x.dtype == np.uint8 or np.isfinite(self.x.sum(dtype=np.float64)):
            return []
        rows = np.flatnonzero(~np.isfinite(self.x).reshape(len(self.x), -1).all(1))
        return list(spoiled_in(self.only(rows), name, rows))


def one_form(data: Dataset | Datasets | ClientFiles, share: float, streams: Streams) -> SharedData:
    """Return data in the form that all datasets have in common. Raises DatasetError.

    If a user's `Datasets` brings no test set, a `share` of its examples is held out as one.
    """
    if isinstance(data, ClientFiles):
        return data.form()
    if isinstance(data, Dataset):
        train, test = (
            _StandardizedSplit(data, data.train_x, data.train_y),
            _StandardizedSplit(data, data.test_x, data.test_y),
        )
        return SharedData(
            train=train,
            test=test,
            labels=data.train_y,
            num_classes=data.num_classes,
            num_given=len(data.train_x),
            spoiled=[*train.spoiled("train"), *test.spoiled("test")],
        )
    return with_test(shared(data), share, streams.rng("test"))


def _means(module: nn.Module, x: Any) -> list[str]:
    """Return the names of the module's running statistics. Raises ValueError if it can't be trained on `x`."""
    try:
        return means(module, x)
    except Exception as error:
        raise ValueError(f"the model can't be run in training mode: {raised(error)}") from error


def refusal(model: FlatModel, x: Any, y: Any) -> str | None:
    """Return the reason why the model can't be trained on a minibatch, as PyTorch states it; None if it can."""
    try:
        with aside(), torch.no_grad():
            model.loss(applied(copied(model.module).train(), x), y)
    except Exception as error:
        return raised(error)
    return None
