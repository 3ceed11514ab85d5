"""Checks that a model, a loss and metrics fit each other and the targets, on two examples when a scenario is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from netdfl.core.errors import InputError
from netdfl.core.whose import named_error, own_place
from netdfl.training.data.examples import form, mapped
from netdfl.training.drawing import aside
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import applied
from netdfl.training.models.copying import copied
from netdfl.training.tasks.losses import check_one_tensor

Metrics: TypeAlias = Callable[[Any, Any], Mapping[str, float]]


@dataclass(frozen=True)
class NamedMetrics:
    """The metrics of a scenario by name; a user's (`own`) get copies of their arguments, as they may write to them."""

    judges: Mapping[str, Callable[[Any, Any], float]]
    own: frozenset[str] = frozenset()

    def __call__(self, outputs: Any, targets: Any) -> dict[str, float]:
        """Return every metric of some outputs and targets."""
        return {
            name: judge(*deepcopy((outputs, targets))) if name in self.own else judge(outputs, targets)
            for name, judge in self.judges.items()
        }

    def check(self, outputs: Any, y: Any) -> None:
        """Check that netdfl's own metrics accept the model's outputs. Raises ValueError."""
        for name, judge in self.judges.items():
            if name not in self.own:
                checked(f"the figure {name}", judge, outputs, y)


def raised(error: Exception) -> str:
    """Return an error's text, with the place in a user's own code that raised it."""
    return named_error(error) + (f" ({own})" if (own := own_place(error)) else "")


def checked(what: str, judge: Callable[[Any, Any], Any], outputs: Any, y: Any) -> Any:
    """Return the loss or metric `judge` of a model's outputs. Raises ValueError, which calls it `what`, if it fails."""
    try:
        return judge(outputs, y)
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith("the model gives"):
            raise
        raise ValueError(f"{what} can't be taken of what the model gives: {raised(error)}") from error


def check_figures(metrics: Metrics, outputs: Any, y: Any) -> None:
    """Check that netdfl's metrics, or a task's that call them, accept the model's outputs. Raises ValueError."""
    if isinstance(metrics, NamedMetrics):
        metrics.check(outputs, y)
    if isinstance(metrics, NamedMetrics) or isinstance(outputs, Tensor):
        return  # figures of one's own are tried elsewhere
    try:
        metrics(outputs, y)
    except ValueError as error:
        if str(error).startswith("the model gives"):
            raise
    except Exception:
        return  # a figure of one's own, of two examples


def check_loss(model: FlatModel, x: Any, y: Any, outputs: Any, num_classes: int) -> None:
    """Check that the loss accepts the model's outputs for `x` in training and evaluation mode. Raises ValueError.

    `outputs` are the outputs in evaluation mode, `y` the targets. A training pass that fails is reported
    when the model is trained.
    """
    shape = tuple(getattr(outputs, "shape", ()))
    plain = model.uses_cross_entropy
    if plain:
        check_one_tensor(outputs)
    if plain and shape != (len(y), num_classes):
        wanted = f"{len(y)} inputs and {num_classes} classes, expected {(len(y), num_classes)}"
        raise ValueError(f"the model gives outputs of shape {shape} for {wanted}: let its last layer give num_classes")
    if model.perceptron is not None:
        return
    trained = _in_training(model, x)
    faults = [fault for given in (outputs, trained) if (fault := _fault_of(model, given, y)) is not None]
    if len(faults) == 2 or (faults and (trained is None or form(trained) == form(outputs))):
        raise faults[0]
    for fault in faults:
        gives = f"{form(trained)} in training mode and {form(outputs)} in evaluation mode"
        why = "" if str(fault).startswith("the model gives") else f" ({fault})"
        remedy = f"name a loss of your own that takes both{why}"
        raise ValueError(f"the model gives {gives}, and the loss takes but one of them: {remedy}") from fault


def _in_training(model: FlatModel, x: Any) -> Any:
    """Return the outputs of a copy of the model in training mode; None if the copy raises an error."""
    try:
        with aside():
            return applied(copied(model.module).train(), mapped(x, Tensor.clone))
    except Exception:
        return None


def _fault_of(model: FlatModel, outputs: Any, y: Any) -> Exception | None:
    """Return the error of the loss for some outputs; None if the loss returns a number."""
    if outputs is None:
        return None
    try:
        if model.uses_cross_entropy:
            check_one_tensor(outputs)
        with aside():
            loss = checked("the loss", model.loss, outputs, mapped(y, Tensor.clone))
    except (InputError, ValueError) as error:
        return error
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return None
    gave = form(loss) if isinstance(loss, Tensor) else type(loss).__name__
    return ValueError(f"the loss gives {gave}: let it give one number, the mean over the minibatch")


def class_axis(module: nn.Module, x: Any, outputs: Tensor) -> int:
    """Return the axis of class scores, 1 or -1, of outputs (N, L, L), or with more axes of length L.

    It is the one that keeps its length where a copy of the model is given inputs of another length. Raises ValueError
    if the model takes inputs of no other length, or if both axes keep or lose their length.
    """
    length = outputs.shape[1]
    found = set()
    for change in (lambda t, axis: t.narrow(axis, 0, length - 1), lambda t, axis: torch.cat([t, t], axis)):
        try:
            with aside(), torch.no_grad():
                given = applied(copied(module).eval(), mapped(x, partial(_of_other_length, length, change)))
            second, last = given.shape[1] == length, given.shape[-1] == length
        except Exception:
            continue
        if second != last:
            found.add(1 if second else -1)
    if len(found) == 1:
        return found.pop()
    what = (
        f"the model gives outputs of shape {tuple(outputs.shape)}, and classes may lie on any axis of length {length}"
    )
    raise ValueError(f"{what}: give sequences of another length, or name a loss and metrics of your own")


def _of_other_length(length: int, change: Callable[[Tensor, int], Tensor], tensor: Tensor) -> Tensor:
    """Return an input tensor with `change` applied to every axis of this length, except the first axis."""
    for axis in range(1, tensor.dim()):
        if tensor.shape[axis] == length:
            tensor = change(tensor, axis)
    return tensor
