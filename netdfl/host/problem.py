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
    """The problem that a fleet solves: a process creates it once, and the nodes forked from it share its data."""

    @property
    def dim(self) -> int:
        """Number of parameters."""
        ...

    @property
    def judged_dim(self) -> int | None:
        """Length of a model vector for evaluation; None if only some nodes add module buffers to it."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the data for the user before a run, one sentence each."""
        ...

    @property
    def shares_digest(self) -> str:
        """A digest of the clients' shares of the data, equal on all machines; empty if each client has its own data."""
        ...

    def task(self, node: NodeId, device: str) -> Task:
        """Return the training task of one client."""
        ...

    def idle(self, device: str) -> Task:
        """Return the task of a node without data, such as a server, on `device`."""
        ...

    def move_to(self, device: str) -> None:
        """Evaluate models on `device` from now on, in a process that has tasks there."""
        ...

    def evaluate(self, x: Tensor, kept: Kept, *, alone: bool) -> Figures:
        """Evaluate the model `x` on the test set; return the metrics by their names in the record.

        `kept` are buffers that a node keeps for itself; `alone`: the model is that node's own, not an average.
        """
        ...

    def evaluate_local(self, node: NodeId, x: Tensor, kept: Kept, *, alone: bool) -> Figures:
        """Evaluate one node's own model `x`, with its own module buffers `kept`.

        `alone`: the fleet has no other model with which it is averaged.
        """
        ...

    def partition(self) -> Json | None:
        """Return the label counts of each client's data, `classes` and `counts`; None if there are no labels."""
        ...


class IdleTask:
    """The task of a server: initial parameters, and no training."""

    num_samples = 0
    last_loss = float("nan")

    def __init__(self, start: Tensor, objective: Objective) -> None:
        """Store the initial parameters `start`, shape (d,).

        `objective` is the clients' loss, for synthetic examples.
        """
        self._start, self.objective = start, objective

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self._start.numel()

    def initial(self) -> Tensor:
        """Return the initial parameters that all nodes share."""
        return self._start

    def data(self, round: int) -> Any:
        """Raise AssertionError, because a server has no data."""
        raise AssertionError("a server does not train")
