"""Local training as a conversation: a solver asks for local steps, and whoever computes them chooses how.

A solver's `solve` is a generator. It yields what it wants computed, a `LocalSteps`, gets the vector and how
many steps it took, and returns its state and update. Computed by itself, or beside those of other nodes
(`netdfl.training.service`), the answer is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.core.types import View
    from netdfl.training.base import LocalData, Received, Update

R = TypeVar("R")
StepResult: TypeAlias = "tuple[Tensor, int]"
StepRequests: TypeAlias = Generator[Callable[[], StepResult], StepResult, R]
"""Yields calls that give (vector, number of steps), gets what they gave, returns an R."""


@runtime_checkable
class RequestsSteps(Protocol):
    """A local solver that asks for its steps. See `LocalSolver`."""

    def solve(
        self, state: Any, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[Any, Update]]:
        """As `LocalSolver.train`."""
        ...


def requested(solver: Any, *args: Any) -> StepRequests[tuple[Any, Update]]:
    """What `solver.train(*args)` gives; its steps are asked for, where it asks and has no `train` of its own."""
    if isinstance(solver, RequestsSteps) and getattr(type(solver), "train", Solving.train) is Solving.train:
        return (yield from solver.solve(*args))
    trained: tuple[Any, Update] = solver.train(*args)
    return trained


class Solving:
    """Gives a solver that asks the `train` that every solver has."""

    def train(self: RequestsSteps, *args: Any) -> tuple[Any, Update]:
        """Compute by itself whatever `solve` asks for."""
        return alone(self.solve(*args))


def alone(requests: StepRequests[R], ran: StepResult | None = None) -> R:
    """What `requests` returns once all it asks for was computed by itself; `ran` answers what it has asked already."""
    try:
        while True:
            ran = requests.send(ran)()  # type: ignore[arg-type] # None starts it
    except StopIteration as end:
        result: R = end.value
        return result
