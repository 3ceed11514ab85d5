"""Local training as a conversation: a solver asks for local steps, and whoever computes them chooses how.

A solver's `solve` is a generator. It yields what it wants computed, a `LocalSteps`, gets the vector and how
many steps it took, and returns its state and update. Computed by itself, or beside those of other nodes
(`netdfl.training.service`), the answer is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.core.types import View
    from netdfl.training.base import LocalData, LocalSolver, Received, Update

R = TypeVar("R")
S = TypeVar("S", default=Any)
StepResult: TypeAlias = "tuple[Tensor, int]"
StepRequests: TypeAlias = Generator[Callable[[], StepResult], StepResult, R]
"""Yields calls that give (vector, number of steps), gets what they gave, returns an R."""


@runtime_checkable
class RequestsSteps(Protocol[S]):
    """A local solver that asks for its steps. See `LocalSolver`."""

    def solve(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[S, Update]]:
        """As `LocalSolver.train`."""
        ...


def requested(
    solver: LocalSolver[S], state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
) -> StepRequests[tuple[S, Update]]:
    """What `solver.train` gives; its steps are asked for, where it asks and has no `train` of its own."""
    if _asks(type(solver)):
        return (yield from cast("RequestsSteps[S]", solver).solve(state, y, received, weight, data, view))
    return solver.train(state, y, received, weight, data, view)


@cache
def _asks(kind: type) -> bool:
    """Whether solvers of this kind ask for their steps: once a kind, for such a question is slow."""
    return issubclass(kind, RequestsSteps) and getattr(kind, "train", Solving.train) is Solving.train


class Solving:
    """Gives a solver that asks the `train` that every solver has."""

    def train(
        self: RequestsSteps[S], state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[S, Update]:
        """Compute by itself whatever `solve` asks for."""
        return alone(self.solve(state, y, received, weight, data, view))


def alone(requests: StepRequests[R], ran: StepResult | None = None) -> R:
    """What `requests` returns once all it asks for was computed by itself; `ran` answers what it has asked already."""
    try:
        while True:
            ran = requests.send(ran)()  # type: ignore[arg-type] # None starts it
    except StopIteration as end:
        result: R = end.value
        return result
