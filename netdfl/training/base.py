"""The contract of local training: a node's own task, its solver, and what a local round leaves.

A solver's `solve` is a generator. It yields what it wants computed, a `LocalSteps`, gets the vector and how many steps
it took, and returns its state and update. Computed by itself, or beside those of other nodes
(`netdfl.training.service`), the answer is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from math import nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from typing_extensions import TypeVar

from netdfl.core.rng import Key, Streams
from netdfl.core.types import View

if TYPE_CHECKING:
    from torch import Tensor

S = TypeVar("S", default=Any)
"""The state of a part: a NamedTuple of its own."""
Extras: TypeAlias = "Mapping[str, Tensor]"
NO_EXTRAS: Extras = MappingProxyType({})
Kept: TypeAlias = "Mapping[str, Tensor]"
"""What a node's module keeps for itself: buffers, and parameters that are not trained, by their names."""
NOTHING: Kept = MappingProxyType({})


class Update(NamedTuple):
    """A local round's outcome: the vector before it, the vector after it, and what travels with it.

    `before` and `x` have shape (d,). `extras` are control variates, duals, masks: named vectors. `loss`
    is the mean training loss over the round's minibatches, NaN where there was none.
    """

    before: Tensor
    x: Tensor
    extras: Extras = NO_EXTRAS
    loss: float = nan


class Received(NamedTuple):
    """What mixing, or the server, handed to the local solver beside the model: named vectors.

    `last_read` is the last round whose report the server has used, where it lacks a later one.
    After a round, `read` is the node's own model as the server read it, where compression changed it, and
    `unsaid` is what compression left out of the extras that the node sent.
    """

    extras: Extras = NO_EXTRAS
    read: Tensor | None = None
    unsaid: Extras = NO_EXTRAS
    last_read: int | None = None


Gradient: TypeAlias = "Callable[[Tensor], Tensor]"
"""The stochastic gradient of one minibatch at flat parameters, shape (d,).

The same minibatch, and the same masks of dropout, at every call. The vector returned is overwritten by the next call.
"""


class Objective(Protocol):
    """A task's loss as a function of parameters and examples: for examples that are made, not given."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""

    @property
    def num_labels(self) -> int:
        """Labels are 0 to `num_labels` - 1."""

    @property
    def streams(self) -> Streams:
        """The fleet's random streams, to draw examples from."""

    def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss at the flat parameters `at`, shape (d,), over examples; differentiable by `at`, `x` and `y`.

        `x` has shape (N, *input_shape); `y` are labels, shape (N,), or probabilities, shape (N, num_labels). A model
        is in training mode, for what the loss is asked for is training on the examples.
        """

    def drawing(self, *key: Key) -> AbstractContextManager[None]:
        """What a model draws at random within (dropout) is of the stream `key`; nothing where none is drawn."""


class LocalData(Protocol):
    """A node's own data in one round, as minibatch gradients."""

    @property
    def objective(self) -> Objective:
        """The loss that the gradients are of, for other examples."""

    @property
    def num_samples(self) -> int:
        """Size of the node's own training set."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the model's layers, in the order in which the flat vector holds them."""

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """One `Gradient` per local step: `epochs` passes over the data, or exactly `steps`."""

    def loss(self, at: Tensor) -> float:
        """Mean loss over the node's training data at `at`, or a fixed part of it; a model is in evaluation mode."""


class Task(Protocol):
    """What one node trains: a model and data, or a toy problem. Nothing here awaits."""

    @property
    def dim(self) -> int:
        """Number of parameters d."""

    @property
    def num_samples(self) -> int:
        """Size of the node's own training set."""

    def initial(self) -> Tensor:
        """The parameters that every node starts from, shape (d,). Nodes may share the vector: nobody writes to it."""

    def data(self, round: int) -> LocalData:
        """The node's data as the round `round` sees it; batches come from named random streams."""

    @property
    def objective(self) -> Objective:
        """The loss for other examples than the node's own."""

    @property
    def last_loss(self) -> float:
        """Mean training loss over the minibatches of the last local round; NaN before the first."""


class LocalSolver(Protocol[S]):
    """What a node does between two exchanges. Its state is a NamedTuple of tensors and numbers."""

    def init(self, x: Tensor, view: View) -> S:
        """The state before round 0 at parameters `x`."""

    def train(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[S, Update]:
        """Run the local steps from `y` and return the new state and the update.

        `weight` is the push-sum weight w: gradients are taken at y / w, steps are made on y. `y` stays
        as it is, because it may be the node's own vector, which mixing still asks for; `Update.before`
        is `y`. The update's vectors are not overwritten later: a start may keep one (Ole).
        """

    def after_mix(self, state: S, before: Tensor, after: Tensor, received: Received, view: View) -> S:
        """The state once mixing has turned `before` (the round's start) into `after`."""


class Untouched:
    """A local solver whose state is what its own steps made of it, whatever mixing did."""

    def after_mix(self, state: S, before: Tensor, after: Tensor, received: Received, view: View) -> S:
        """Nothing changes."""
        return state


class RoundStart(Protocol[S]):
    """Where a local round begins: at the mixed vector itself, or moved from it (Ole, FedInit)."""

    def init(self, x: Tensor, view: View) -> S:
        """The state before round 0."""

    def begin(self, state: S, x: Tensor, view: View) -> tuple[S, Tensor]:
        """The vector that the local round starts from: `x` itself, or a new one; `x` stays as it is."""

    def trained(self, state: S, update: Update, view: View) -> S:
        """The state once the local round is done."""


R = TypeVar("R")
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


def requested(
    solver: LocalSolver[S], state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
) -> StepRequests[tuple[S, Update]]:
    """What `solver.train` gives; its steps are asked for, where it asks and has no `train` of its own."""
    if _asks(type(solver)):
        asks: RequestsSteps[S] = solver  # type: ignore[assignment]  # a `cast` is a call a round
        return (yield from asks.solve(state, y, received, weight, data, view))
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
