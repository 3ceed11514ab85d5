"""The contract of a fleet's problem: the tasks of its nodes, and the evaluation of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from netdfl.core.types import Json, NodeId
from netdfl.training.base import Kept, Objective, Task

if TYPE_CHECKING:
    from torch import Tensor

Figures = Mapping[str, float]


class FleetProblem(Protocol):
    """The problem of a fleet, made once per process before nodes are forked from it, so that they share its data."""

    @property
    def dim(self) -> int:
        """Number of parameters."""
        ...

    @property
    def judged_dim(self) -> int | None:
        """Length of a judged model: `dim`, or more with buffers that nodes keep; None if both occur."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the data before a run, a sentence each."""
        ...

    def task(self, node: NodeId, device: str) -> Task:
        """Return the training task of one client."""
        ...

    def idle(self) -> Task:
        """Return the task of a node that holds no data: the server's."""
        ...

    def evaluate(self, x: Tensor, kept: Kept, *, alone: bool) -> Figures:
        """Return the figures of one model on the test set, by the names of the record's metrics.

        `kept` are buffers that a node keeps for itself; `alone`: the model is that node's own, not an average.
        """
        ...

    def evaluate_local(self, node: NodeId, x: Tensor, kept: Kept, *, alone: bool) -> Figures:
        """Return the figures of one node's own model; `alone`: no other model was averaged with it."""
        ...

    def partition(self) -> Json | None:
        """Return the labels of each client's data, `classes` and `counts`; None if there are no labels."""
        ...


class IdleTask:
    """The task of a server: parameters to start from, and nothing to train."""

    num_samples = 0
    last_loss = float("nan")

    def __init__(self, start: Tensor, objective: Objective) -> None:
        """Start from `start`, shape (d,). `objective` is the clients' loss, used for synthetic examples."""
        self._start, self.objective = start, objective

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self._start.numel()

    def initial(self) -> Tensor:
        """The common start itself."""
        return self._start

    def data(self, round: int) -> Any:
        """Raise AssertionError: a server has no data."""
        raise AssertionError("a server does not train")
