"""Whether a model, a loss and figures fit each other and the targets, tried on two examples when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from netdfl.core.errors import InputError
from netdfl.core.whose import named_error, own_place
from netdfl.training.data.examples import form
from netdfl.training.flat import FlatModel
from netdfl.training.tasks.losses import check_one_tensor

Metrics: TypeAlias = Callable[[Any, Any], Mapping[str, float]]


@dataclass(frozen=True)
class NamedMetrics:
    """The metrics of a scenario by name; a user's `own` may change what they are given without affecting others."""

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
    """Return a loss or figure, called `what`, of a model's outputs. Raises ValueError if it can't be taken of them."""
    try:
        return judge(outputs, y)
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith("the model gives"):
            raise
        raise ValueError(f"{what} can't be taken of what the model gives: {raised(error)}") from error


def check_figures(metrics: Metrics, outputs: Any, y: Any) -> None:
    """Check that netdfl's own metrics, or a task's that call them, accept the model's outputs. Raises ValueError."""
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


def check_loss(model: FlatModel, outputs: Any, y: Any, num_classes: int) -> None:
    """Check that the model's outputs fit the targets. Raises ValueError."""
    shape = tuple(getattr(outputs, "shape", ()))
    plain = model.uses_cross_entropy
    if plain:
        check_one_tensor(outputs)
    if plain and shape != (len(y), num_classes):
        wanted = f"{len(y)} inputs and {num_classes} classes, expected {(len(y), num_classes)}"
        raise ValueError(f"the model gives outputs of shape {shape} for {wanted}: let its last layer give num_classes")
    loss = checked("the loss", model.loss, outputs, y)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        gave = form(loss) if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"the loss gives {gave}: let it give one number, the mean over the minibatch")
