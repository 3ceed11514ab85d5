"""The contract of a task of one's own: a model, data, a loss, and what models are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from netdfl.training.toy import Quadratic as Quadratic


class Task(Protocol):
    """What a fleet trains, where `task: {kind: "mine:MyTask"}` names a class, or a function that returns one.

    Every node makes the same task, so what it draws at random comes from the scenario's seed: `model` runs under it.
    """

    def model(self) -> nn.Module:
        """The model that every node starts from."""

    def data(self) -> Any:
        """The data: `netdfl.Datasets`, or what it may be made of, like (train, test). Each client gets its part.

        Given each client's own test examples, its model is judged on them (`mean_personal_...`) beside the test set
        of all.
        """

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The mean loss of a minibatch, of what the model gives for its inputs; what local steps bring down."""

    def metrics(self, outputs: Any, targets: Any) -> Mapping[str, float]:
        """Figures by name, of the outputs for all examples that are tested at once: `mae` becomes `test_mae`."""


def as_number(found: Any) -> float:
    """A figure: a number, or a tensor of one. Raises TypeError for anything else."""
    if isinstance(found, Tensor) and found.numel() == 1:
        return float(found)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError("one number, as float or as a tensor")
    return float(found)
