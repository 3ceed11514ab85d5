"""An algorithm as a combination of parts, a node's state between rounds, and the interface of a node to round loops.

A `View` is what a node knows of the network in one round: its neighbors, their weights in mixing, and its own role.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.algorithms.own import LOOKED_AT, begun, checked, is_own, looked_at, sending, writes_to
from netdfl.compression.vector import finite
from netdfl.core.errors import NotFiniteError
from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, View
from netdfl.mixing.base import has_mass
from netdfl.training.base import StepRequests, Update, alone, requested

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.algorithms.fitness import Fits, Warns
    from netdfl.mixing.base import Refinement
    from netdfl.training.base import Kept, LocalData, LocalSolver, Objective, Received, RoundStart

T = TypeVar("T")
FamilyName = Literal["gossip", "server", "bilateral", "overlap"]
OwnScheme = Literal["choco", "deepsqueeze"]
AS_THEY_ARE: AbstractContextManager[None] = nullcontext()
"""A context that leaves random generators as they are, for algorithms without a user's own parts."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """An algorithm, combined from parts: the start of a round, local training, mixing, and the wait policy.

    `family` names the loop that runs these parts. `mixing` is a `Mixing`, or an `Aggregation` in the server family.
    `refine` is the work that a server does on its model after aggregation, if any.
    """

    family: FamilyName
    start: RoundStart
    local: LocalSolver
    mixing: Any
    wait: WaitPolicy
    refine: Refinement | None = None

    def served_alone(self, view: View) -> bool:
        """Return whether the server needs no client in the round of `view`, because it trains its model by itself."""
        return self.refine is not None and self.refine.alone(view)


class NodeState(NamedTuple):
    """The state of a node that survives a round, which is the content of a checkpoint.

    Attributes:
        round: the next round to begin.
        x: the node's vector, shape (d,).
        start: the state of the part that begins a round, `Algorithm.start`.
        local: the state of its local solver.
        mixing: the state of its mixing.
        received: the vectors that the last exchange passed to the local solver.
        z: the model, shape (d,), of a node whose push-sum weight is below `LEAST_WEIGHT`, until weight arrives from a
            neighbor. Such a node lost its state and rejoined with weight 0, or sent all its weight away and received
            none. Else None.
        statistics: the model's buffers that are not mixed with other nodes', such as running means, by name.
    """

    round: int
    x: Tensor
    start: object
    local: object
    mixing: object
    received: Received
    z: Tensor | None = None
    statistics: Kept | None = None

    def model(self, alg: Algorithm) -> Tensor:
        """Return the model, shape (d,): z = x / w for push-sum, the kept `z` while the weight w is nearly 0, else x."""
        weight = 1.0 if alg.family == "server" else alg.mixing.weight(self.mixing)
        if weight == 1.0:
            return self.x
        return self.z if self.z is not None and not has_mass(weight) else self.x / weight

    def train(self, alg: Algorithm, data: LocalData, view: View) -> tuple[NodeState, Update]:
        """Run one local round: the round's start, the local steps, and the round's end. Raises NotFiniteError."""
        return alone(self.solve(alg, data, view))

    def solve(self, alg: Algorithm, data: LocalData, view: View) -> StepRequests[tuple[NodeState, Update]]:
        """Run one local round, but yield its steps as calls, so that the caller can compute many nodes' steps together.

        While the node's push-sum weight is nearly 0, the steps are made on the kept `z`, and their sum is added to x.
        """
        weight = 1.0 if alg.family == "server" else alg.mixing.weight(self.mixing)
        z = None if self.z is None or has_mass(weight) else self.z
        x, weight = (self.x, weight) if z is None else (z, 1.0)
        writes = writes_to(x)
        start, y = begun(alg.start, alg.start.begin(self.start, x, view), x, writes)
        statistics = cast("KeepsStatistics", data) if _keeps_statistics(type(data)) else None
        if statistics is not None:
            z_begun = y if weight == 1.0 else y / weight  # no copy at weight 1, where the first gradient is taken at y
            statistics.begin(z_begun, self.statistics)
        trained_by = requested(alg.local, self.local, y, self.received, weight, data, view)
        writes = writes_to(y)
        local, update = checked(alg.local, (yield from trained_by), y, writes)
        if not finite(update.x):
            raise NotFiniteError("a parameter became infinite or NaN", -1)
        kept = None
        if statistics is not None:
            trained, kept = statistics.ended(update.x, weight)
            update = update._replace(x=trained)
        start = alg.start.trained(start, update, view)
        if z is not None:
            update = update._replace(x=self.x + (update.x - z))
        same = start is self.start and local is self.local and kept is self.statistics
        state = self if same else self._replace(start=start, local=local, statistics=kept)
        return state, update if update.before is self.x else Update(self.x, update.x, update.extras, update.loss)

    def outgoing(self, alg: Algorithm, update: Update, step: int, view: View) -> tuple[NodeState, Outbox]:
        """Return the new state, and the messages to send in the round's mixing step number `step`."""
        outgoing = alg.mixing.outgoing if view.round >= LOOKED_AT else sending(alg.mixing)
        mixing, outbox = outgoing(self.mixing, update, step, view)
        return self if mixing is self.mixing else self._replace(mixing=mixing), outbox

    def mix(self, alg: Algorithm, update: Update, inbox: Inbox, step: int, view: View) -> tuple[NodeState, Update]:
        """Mix the messages received in the round's mixing step number `step`; return the new state and update."""
        mix = alg.mixing.mix if view.round >= LOOKED_AT else looked_at(alg.mixing)
        mixing, mixed, received = mix(self.mixing, update, inbox, step, view)
        same = mixing is self.mixing and received is self.received
        after = self if same else self._replace(mixing=mixing, received=received)
        if alg.mixing.push and self.z is None and not has_mass(alg.mixing.weight(mixing)):
            after = after._replace(z=update.x / alg.mixing.weight(self.mixing))
        return after, mixed

    def refine(self, alg: Algorithm, objective: Objective, view: View) -> NodeState:
        """Do the server's additional work on its model after aggregation."""
        if alg.refine is None:
            return self
        mixing, x = alg.refine.refine(self.mixing, self.x, objective, view)
        return self._replace(x=x, mixing=mixing)

    def end_round(self, alg: Algorithm, update: Update, view: View) -> NodeState:
        """Finish the round: store the mixed vector, and let the local solver update its state after mixing."""
        local = alg.local.after_mix(self.local, self.x, update.x, self.received, view)
        massless = self.z is not None and not has_mass(alg.mixing.weight(self.mixing))
        z = self.z if massless else None  # by position: `_replace` takes twice as long
        return NodeState(view.round + 1, update.x, self.start, local, self.mixing, self.received, z, self.statistics)


@runtime_checkable
class KeepsStatistics(Protocol):
    """The data of a node whose model has running statistics or other buffers that change in local steps."""

    def begin(self, z: Tensor, kept: Kept | None) -> None:
        """Start local steps at the model `z`; `kept` are buffers that stay at the node, by name."""

    def ended(self, x: Tensor, weight: float) -> tuple[Tensor, Kept | None]:
        """Return `x` and the buffers that stay at the node; `weight` is the push-sum weight.

        `x` is the result of the local steps; the running statistics of these steps, if they are mixed with other
        nodes', are written into it.
        """


@cache
def _keeps_statistics(kind: type) -> bool:
    """Return whether data of this type implement `KeepsStatistics`; cached because the check is slow."""
    return issubclass(kind, KeepsStatistics)


@dataclass(eq=False, slots=True)
class LocalRound:
    """A local round to be computed: by a plain call, or by `solve`, a generator that leaves the steps to its caller.

    Attributes:
        state: the node's state before the round.
        alg: the algorithm.
        data: the node's data in this round.
        view: the node's view of the network in this round.
    """

    state: NodeState
    alg: Algorithm
    data: LocalData
    view: View

    def __call__(self) -> tuple[NodeState, Update]:
        """Train and return the result; random numbers that a user's code draws depend only on node and round."""
        with self.drawing():
            return self.state.train(self.alg, self.data, self.view)

    def drawing(self) -> AbstractContextManager[object]:
        """Return a context in which random numbers that a user's code draws depend only on (node, round)."""
        drawing = getattr(self.data, "drawing", None)
        return AS_THEY_ARE if drawing is None else drawing(anyway=is_own(type(self.alg.local)))

    def solve(self) -> StepRequests[tuple[NodeState, Update]]:
        """Train, but yield the steps as calls, which the caller computes."""
        return self.state.solve(self.alg, self.data, self.view)


class RoundContext(Protocol):
    """The interface that a node offers to the round loop of its algorithm. Every operation that may wait is here."""

    def begin(self, alg: Algorithm) -> NodeState:
        """Return the initial state: a new one, or the one restored after a restart."""

    def rounds(self, first: int) -> AsyncIterator[View]:
        """Yield the node's view of the network in each round, from `first` to the last, as it begins the round."""

    async def train(self, state: NodeState, alg: Algorithm, view: View) -> tuple[NodeState, Update]:
        """Run one local round off the event loop."""

    async def refine(self, state: NodeState, alg: Algorithm, view: View) -> NodeState:
        """Run a server's further work on its model, which may be long, off the event loop."""

    def exchanges(self, view: View) -> int:
        """Return the number of message exchanges in a round, which the mixing decides."""

    def drawing(self, what: str, round: int, *key: int) -> AbstractContextManager[object]:
        """Return a context in which random numbers of a user's part depend only on (node, round, `what`, `key`).

        `what` names the use of the numbers, `key` tells several such uses in a round apart.
        """

    async def do(self, function: Callable[..., T], *args: object) -> T:
        """Run a computation: inline if it is short, off the event loop if it would block the loop."""

    async def send(self, view: View, step: int, outbox: Outbox) -> None:
        """Send the messages of the round's exchange number `step`, without waiting for their delivery."""

    async def gather(self, view: View, step: int, wait: WaitPolicy, sources: tuple[NodeId, ...] | None = None) -> Inbox:
        """Wait, as the policy says, for messages of exchange number `step` from the in-neighbors (or `sources`)."""

    async def collect(self, view: View, wait: WaitPolicy, lag: int | None) -> Inbox:
        """Wait for messages that are `lag` rounds old, then return all received ones up to this round.

        A `lag` of None never waits, and also returns the messages of nodes that are ahead of this one.
        """

    def serve(self, answer: Callable[[Message], None] | None) -> None:
        """Call `answer` with every request of a peer from now on; None: keep requests for later.

        `answer` must not wait. Requests are also answered after the node's last round.
        """

    def reply(self, request: Message, payload: Payload) -> None:
        """Answer a request, now or later."""

    def owed(self, peer: NodeId) -> bool:
        """Return whether an earlier request to `peer` is unanswered and will be repeated."""

    def is_last(self, view: View) -> bool:
        """Return whether the view's round is the last one."""

    async def ask(self, view: View, peer: NodeId, payload: Payload, wait: WaitPolicy) -> Inbox:
        """Send a request to `peer`, and wait for its reply as the policy says."""

    async def end_round(self, state: NodeState, view: View) -> None:
        """End the round. Only here the state is saved in snapshots and checkpoints."""


@dataclass(frozen=True)
class Entry:
    """An algorithm in the catalog, with traits. Checks of a scenario use these traits, and no algorithm's name.

    Attributes:
        build: the function that builds the algorithm.
        family: the name of its round loop.
        needs: the kinds of mixing matrix for which it is defined, one of which is enough: `doubly`, `row`, `column`
            stochastic; `server` (a star around a node with the server role), `both_ways` (any weights on links that
            work both ways), or `average` (the exact average in certain rounds).
        source: the publication.
        fits: a check for parameters that do not work with the network or the number of rounds.
        warns: a check for parameters that work, but that the user hardly meant.
        selects: whether a node chooses its receivers itself during the run.
        scheme: the compression scheme that is part of the method's definition, if any.
        literal: the parameter and its value with which it sends C(z - x), as the paper prints it, and keeps no copy of
            the vector that receivers know.
        sparse: whether it sends sparse vectors, and averages each coordinate over the vectors that contain it.
        counterpart: the algorithm to use with compression instead, because this one's messages can't be compressed.
        adds_up: whether clients report a change beside the model, which the server adds up and sends down.
        tells: whether the server sends another vector down with the model.
        remembers: whether the server adds up vectors that clients keep: control variates, drifts, duals.
        augments: whether its parameter `augment` changes pictures.
        extrapolates: whether it moves a vector beyond the average, so that the vector must not hold running statistics.
    """

    build: Callable[..., Algorithm]
    family: FamilyName
    needs: frozenset[str]
    source: str
    _: KW_ONLY
    fits: Fits | None = None
    warns: Warns | None = None
    selects: bool = False
    scheme: OwnScheme | None = None
    literal: tuple[str, str] | None = None
    sparse: bool = False
    counterpart: str = ""
    adds_up: bool = False
    tells: bool = False
    remembers: bool = False
    augments: bool = False
    extrapolates: bool = False

    @property
    def kind(self) -> str:
        """The name of the algorithm's kind for people: its family, or push-sum for gossip with push-sum weights."""
        return "push-sum" if self.family == "gossip" and "column" in self.needs else self.family


Catalog = Mapping[str, Entry]
