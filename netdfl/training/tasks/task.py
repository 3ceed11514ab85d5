"""The contract of a user's own task: a model, data, a loss, and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from netdfl.training.toy import Quadratic as Quadratic


class Task(Protocol):
    """A user's own task, which a scenario names as `task: {kind: "mine:MyTask"}`.

    Every node makes the same task: random draws in `model` come from the scenario's seed.
    """

    def model(self) -> nn.Module:
        """Return the model that every node starts from."""

    def data(self) -> Any:
        """Return the data: `netdfl.Datasets`, or a form that converts to it. Each client gets its part.

        If the data have test examples of each client, its model is also evaluated on these (`mean_personal_...`).
        """

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return the mean loss of a minibatch from the model's outputs; local steps minimize it."""

    def metrics(self, outputs: Any, targets: Any) -> Mapping[str, float]:
        """Return metrics by name, from the outputs for all test examples: `mae` becomes `test_mae`."""


def as_number(found: Any) -> float:
    """Convert a metric to a float: a number, or a tensor of one number. Raises TypeError for other values."""
    if isinstance(found, Tensor) and found.numel() == 1:
        return float(found)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError("one number, as float or as a tensor")
    return float(found)
