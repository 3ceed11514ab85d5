"""What a fleet's nodes are given to compute, and how a model is judged: the contract of a task in a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from netdfl.core.types import Json, NodeId
from netdfl.training.base import Kept, Objective, Task

if TYPE_CHECKING:
    from torch import Tensor

Figures = Mapping[str, float]


class Problem(Protocol):
    """Made once per process, before nodes are forked from it; what it loads they share."""

    @property
    def dim(self) -> int:
        """Number of parameters."""
        ...

    @property
    def judged_dim(self) -> int | None:
        """Numbers of a model that is judged: `dim`, or more with what nodes keep for themselves; None: either."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of the data before a run, a sentence each."""
        ...

    def task(self, node: NodeId, device: str) -> Task:
        """The training task of one client."""
        ...

    def idle(self) -> Task:
        """The task of a node that holds no data: the server's."""
        ...

    def evaluate(self, x: Tensor, kept: Kept, *, alone: bool) -> Figures:
        """Figures of one model on the test set, by the names of the record's metrics.

        `kept` are buffers that a node keeps for itself; `alone`: the model is that node's own, not an average.
        """
        ...

    def evaluate_local(self, node: NodeId, x: Tensor, kept: Kept, *, alone: bool) -> Figures:
        """Figures of the model of one node, by itself; `alone`: no other node's was averaged with it."""
        ...

    def partition(self) -> Json | None:
        """Who holds which labels: `classes` and `counts` per client; None where there are none."""
        ...


class Idle:
    """The task of a server: parameters to start from, and nothing to train."""

    num_samples = 0
    last_loss = float("nan")

    def __init__(self, start: Tensor, objective: Objective) -> None:
        """Start from `start`, shape (d,); `objective` is the clients' loss, for examples that are made."""
        self._start, self.objective = start, objective

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self._start.numel()

    def initial(self) -> Tensor:
        """The common start itself."""
        return self._start

    def data(self, round: int) -> Any:
        """There is none."""
        raise AssertionError("a server does not train")
