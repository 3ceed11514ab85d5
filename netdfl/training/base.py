"""The contract of local training: a node's own task, its local solver, and the result of a local round.

A solver's `solve` is a generator. It yields a request for computation, a `LocalSteps`, receives the vector after the
steps and their number, and returns its state and update. Whether a request is computed by itself or together with other
nodes' (`netdfl.training.service`), the result is the same up to rounding.
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
"""The type of the state that a part of an algorithm keeps between rounds: a NamedTuple of its own."""
Extras: TypeAlias = "Mapping[str, Tensor]"
NO_EXTRAS: Extras = MappingProxyType({})
Kept: TypeAlias = "Mapping[str, Tensor]"
"""State of a node's module that is not sent: buffers and frozen parameters, by their names."""
NOTHING: Kept = MappingProxyType({})


class Update(NamedTuple):
    """The result of a local round.

    Attributes:
        before: the vector before the local steps, shape (d,).
        x: the vector after them, shape (d,).
        extras: named vectors to send along: control variates, duals, masks.
        loss: the mean training loss over the round's minibatches, NaN where there was none.
    """

    before: Tensor
    x: Tensor
    extras: Extras = NO_EXTRAS
    loss: float = nan


class Received(NamedTuple):
    """The vectors besides the model that a node's local solver gets from mixing or from the server.

    Attributes:
        extras: the vectors by name.
        read: after a round, the node's own model as the server decoded it, if compression changed it.
        unsaid: after a round, the part of the sent extras that compression left out.
        last_read: the last round in which the server used this node's report (the model that it sends), if the server
            says that it did not use the report that it asked for last; else None.
    """

    extras: Extras = NO_EXTRAS
    read: Tensor | None = None
    unsaid: Extras = NO_EXTRAS
    last_read: int | None = None


Gradient: TypeAlias = "Callable[[Tensor], Tensor]"
"""The stochastic gradient of one minibatch at flat parameters, shape (d,).

Every call uses the same minibatch and the same dropout masks. The next call overwrites the returned vector.
"""


class Objective(Protocol):
    """A task's loss as a function of parameters and of any examples, such as synthetic ones."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""

    @property
    def num_labels(self) -> int:
        """The number of labels, which are 0 to `num_labels` - 1."""

    @property
    def streams(self) -> Streams:
        """The fleet's random streams, to draw examples from."""

    def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over examples at the flat parameters `at`, differentiable by all three arguments.

        `at` has shape (d,) and `x` (N, *input_shape); `y` are labels, shape (N,), or probabilities, shape (N,
        num_labels). A model is in training mode, because the loss serves training on the examples.
        """

    def drawing(self, *key: Key) -> AbstractContextManager[None]:
        """Return a context in which a model's random draws (dropout) come from the random stream named by `key`."""


class LocalData(Protocol):
    """A node's own data in one round, as minibatch gradients."""

    @property
    def objective(self) -> Objective:
        """The loss that the gradients belong to, as a function of any examples."""

    @property
    def num_samples(self) -> int:
        """The number of examples in the node's own training set."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the model's layers, in the order of the flat vector."""

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """Yield one `Gradient` per local step: for `epochs` passes over the data, or exactly `steps`."""

    def loss(self, at: Tensor) -> float:
        """Return the mean loss at `at` over the node's training data or a fixed part of it, in evaluation mode."""


class Task(Protocol):
    """The training task of one node: a model and data, or a toy problem. No method is a coroutine."""

    @property
    def dim(self) -> int:
        """The number of parameters d."""

    @property
    def num_samples(self) -> int:
        """The number of examples in the node's own training set."""

    def initial(self) -> Tensor:
        """Return the common initial parameters, shape (d,). Nodes may share the vector; it must not be changed."""

    def data(self, round: int) -> LocalData:
        """Return the node's data for one round; batches come from named random streams."""

    @property
    def objective(self) -> Objective:
        """The loss as a function of any examples, not only the node's own."""

    @property
    def last_loss(self) -> float:
        """The mean training loss over the minibatches of the last local round; NaN before the first."""


class LocalSolver(Protocol[S]):
    """The local training of a node between two exchanges. Its state is a NamedTuple of tensors and numbers."""

    def init(self, x: Tensor, view: View) -> S:
        """Return the state before round 0 at parameters `x`."""

    def train(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[S, Update]:
        """Run the local steps from the vector `y`; return the solver's new state and the update.

        `weight` is the push-sum weight w: gradients are taken at y / w, steps are made on y. `y` must not be changed,
        because it may be the node's own vector, which mixing still needs; `Update.before` is `y`. The update's vectors
        must not be overwritten later, because a `RoundStart` may keep one, as `Ole` does.
        """

    def after_mix(self, state: S, before: Tensor, after: Tensor, received: Received, view: View) -> S:
        """Return the state after mixing has turned `before` (the round's start) into `after`."""


class MixingIndependent:
    """A mixin for local solvers whose state stays the same when the vector is mixed."""

    def after_mix(self, state: S, before: Tensor, after: Tensor, received: Received, view: View) -> S:
        """Return the state unchanged."""
        return state


class RoundStart(Protocol[S]):
    """A rule for the starting point of a local round: the mixed vector, or a point moved from it (Ole, FedInit)."""

    def init(self, x: Tensor, view: View) -> S:
        """Return the starting rule's state before round 0, at the initial vector `x`."""

    def begin(self, state: S, x: Tensor, view: View) -> tuple[S, Tensor]:
        """Return the new state, and the start of the local round: `x`, which must stay unchanged, or a new vector."""

    def trained(self, state: S, update: Update, view: View) -> S:
        """Return the starting rule's state after the local round that made `update`."""


R = TypeVar("R")
StepResult: TypeAlias = "tuple[Tensor, int]"
StepRequests: TypeAlias = Generator[Callable[[], StepResult], StepResult, R]
"""A generator that yields calls, each of which computes a vector and a number of steps.

The generator's caller runs each call and sends the result back; at its end the generator returns an R.
"""


@runtime_checkable
class RequestsSteps(Protocol[S]):
    """A local solver that leaves its steps to its caller, so that the caller can compute many nodes' steps together."""

    def solve(
        self, state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[S, Update]]:
        """Return the result of `LocalSolver.train`, but yield the steps as calls; the caller sends back the results."""


def requested(
    solver: LocalSolver[S], state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
) -> StepRequests[tuple[S, Update]]:
    """Return the result of `solver.train`, or of `solver.solve`, whose steps are yielded for the caller to compute.

    A solver with a `train` of its own yields nothing.
    """
    if _asks(type(solver)):
        asks: RequestsSteps[S] = solver  # type: ignore[assignment]  # a `cast` is a call a round
        return (yield from asks.solve(state, y, received, weight, data, view))
    return solver.train(state, y, received, weight, data, view)


@cache
def _asks(kind: type) -> bool:
    """Return whether solvers of this class have `solve` and no `train` of their own; cached, as the check is slow."""
    return issubclass(kind, RequestsSteps) and getattr(kind, "train", StepSolver.train) is StepSolver.train


class StepSolver:
    """A mixin that implements `train` for a solver that has `solve`."""

    def train(
        self: RequestsSteps[S], state: S, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[S, Update]:
        """Run `solve` and compute the steps that it yields, one at a time; return its result."""
        return alone(self.solve(state, y, received, weight, data, view))


def alone(requests: StepRequests[R], ran: StepResult | None = None) -> R:
    """Run the generator `requests` to its end, computing each call that it yields; return the generator's result.

    `ran` is the result of the call that the generator has yielded already; None: the generator has not been started.
    """
    try:
        while True:
            ran = requests.send(ran)()  # type: ignore[arg-type] # None starts it
    except StopIteration as end:
        result: R = end.value
        return result
