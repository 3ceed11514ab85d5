"""An algorithm as orthogonal parts, the state that survives a round, and what the loops ask of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from netdfl.algorithms.exchange import WaitPolicy
from netdfl.compression.vector import finite
from netdfl.core.errors import NotFiniteError, OwnPartError
from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, View
from netdfl.core.whose import defined_at
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


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Orthogonal parts: where a round starts, what it does locally, how it mixes, what it waits for.

    `family` names the loop that runs them. `mixing` is a `Mixing`, or an `Aggregation` in the server
    family. `refine` is what a server does with its model beside averaging, where it does.
    """

    family: FamilyName
    start: RoundStart
    local: LocalSolver
    mixing: Any
    wait: WaitPolicy
    refine: Refinement | None = None

    def served_alone(self, view: View) -> bool:
        """Whether the server works by itself in the view's round, and nobody sends."""
        return self.refine is not None and self.refine.alone(view)


class NodeState(NamedTuple):
    """Everything that survives a round, and nothing else: what a checkpoint holds.

    `round` is the next one to begin. `x` has shape (d,). `received` is what the last exchange handed
    to the local solver. `z`, shape (d,), is the model of a node without mass, whose push-sum weight is below
    `LEAST_WEIGHT`, until a share comes: one that lost its state and rejoined with weight 0, or that gave all away and
    heard nothing. `statistics` are the buffers that the node's model keeps for itself, by name.
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
        """z = x / w for push-sum, `z` without mass, x for every other method; shape (d,)."""
        weight = 1.0 if alg.family == "server" else alg.mixing.weight(self.mixing)
        if weight == 1.0:
            return self.x
        return self.z if self.z is not None and not has_mass(weight) else self.x / weight

    def train(self, alg: Algorithm, data: LocalData, view: View) -> tuple[NodeState, Update]:
        """One local round: start.begin, the local steps, start.trained. Raises NotFiniteError."""
        return alone(self.solve(alg, data, view))

    def solve(self, alg: Algorithm, data: LocalData, view: View) -> StepRequests[tuple[NodeState, Update]]:
        """As `train`, but the local steps are asked for. Without mass the steps are made on `z`, and added to x."""
        weight = 1.0 if alg.family == "server" else alg.mixing.weight(self.mixing)
        z = None if self.z is None or has_mass(weight) else self.z
        x, weight = (self.x, weight) if z is None else (z, 1.0)
        start, y = alg.start.begin(self.start, x, view)
        statistics = cast("KeepsStatistics", data) if _keeps_statistics(type(data)) else None
        if statistics is not None:
            statistics.begin(y / weight, self.statistics)
        trained_by = requested(alg.local, self.local, y, self.received, weight, data, view)
        local, update = _checked(alg.local, (yield from trained_by), y)
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
        return state, Update(self.x, update.x, update.extras, update.loss)

    def outgoing(self, alg: Algorithm, update: Update, step: int, view: View) -> tuple[NodeState, Outbox]:
        """What the mixing sends in `step`."""
        mixing, outbox = alg.mixing.outgoing(self.mixing, update, step, view)
        return self if mixing is self.mixing else self._replace(mixing=mixing), outbox

    def mix(self, alg: Algorithm, update: Update, inbox: Inbox, step: int, view: View) -> tuple[NodeState, Update]:
        """Mix what came in `step`."""
        mixing, mixed, received = alg.mixing.mix(self.mixing, update, inbox, step, view)
        same = mixing is self.mixing and received is self.received
        after = self if same else self._replace(mixing=mixing, received=received)
        if alg.mixing.push and self.z is None and not has_mass(alg.mixing.weight(mixing)):
            after = after._replace(z=update.x / alg.mixing.weight(self.mixing))
        return after, mixed

    def refine(self, alg: Algorithm, objective: Objective, view: View) -> NodeState:
        """What the server makes of its own model, once it has aggregated."""
        if alg.refine is None:
            return self
        mixing, x = alg.refine.refine(self.mixing, self.x, objective, view)
        return self._replace(x=x, mixing=mixing)

    def end_round(self, alg: Algorithm, update: Update, view: View) -> NodeState:
        """Close the round: the mixed vector becomes the node's, the solver sees what mixing did."""
        local = alg.local.after_mix(self.local, self.x, update.x, self.received, view)
        massless = self.z is not None and not has_mass(alg.mixing.weight(self.mixing))
        z = self.z if massless else None  # by position: `_replace` takes twice as long
        return NodeState(view.round + 1, update.x, self.start, local, self.mixing, self.received, z, self.statistics)


@runtime_checkable
class KeepsStatistics(Protocol):
    """A node's data whose model has running statistics and other buffers, which local steps change by themselves."""

    def begin(self, z: Tensor, kept: Kept | None) -> None:
        """Local steps begin at the model `z`; `kept` are the buffers that the node keeps for itself, by name."""

    def ended(self, x: Tensor, weight: float) -> tuple[Tensor, Kept | None]:
        """`x`, where they led, with the statistics that they left; and what the node keeps for itself."""


@cache
def _keeps_statistics(kind: type) -> bool:
    """Whether data of that type do; asked once, for to look at a protocol costs more than a short round."""
    return issubclass(kind, KeepsStatistics)


@cache
def _is_own(kind: type) -> bool:
    """Whether a part is a user's, not netdfl's; asked once for each type."""
    return kind.__module__.partition(".")[0] != "netdfl"


def _checked(solver: LocalSolver, found: Any, y: Tensor) -> tuple[Any, Update]:
    """What the solver has returned. Raises OwnPartError where a user's own returned something else."""
    checked: tuple[Any, Update] = found
    if not _is_own(type(solver)):
        return checked
    wrong = ""
    if not isinstance(found, tuple) or len(found) != 2:
        wrong = f"returned {type(found).__name__}"
    elif not isinstance(found[1], Update):
        wrong = f"returned (state, {type(found[1]).__name__})"
    elif getattr(found[1].x, "shape", None) != y.shape:
        wrong = (
            f"returned an update to a vector of {tuple(getattr(found[1].x, 'shape', ()))} from one of {tuple(y.shape)}"
        )
    if wrong:
        kind = type(solver)
        place = defined_at(getattr(kind, "solve" if hasattr(kind, "solve") else "train", kind)) or defined_at(kind)
        told = f"the local solver {kind.__name__} {wrong}" + (f" ({place})" if place else "")
        raise OwnPartError(told, "return (state, Update(before, x)) from train")
    return checked


@dataclass(eq=False, slots=True)
class LocalRound:
    """A local round that waits to be computed: by itself, when called, or by whoever answers what it asks for."""

    state: NodeState
    alg: Algorithm
    data: LocalData
    view: View

    def __call__(self) -> tuple[NodeState, Update]:
        """See `NodeState.train`; what a user's code draws at random is drawn by node and round."""
        with self.drawing():
            return self.state.train(self.alg, self.data, self.view)

    def drawing(self) -> AbstractContextManager[object]:
        """Within, what a user's code draws beside its steps is of the stream of (node, round)."""
        drawing = getattr(self.data, "drawing", None)
        return nullcontext() if drawing is None else drawing(anyway=_is_own(type(self.alg.local)))

    def solve(self) -> StepRequests[tuple[NodeState, Update]]:
        """See `NodeState.solve`."""
        return self.state.solve(self.alg, self.data, self.view)


class RoundContext(Protocol):
    """What a family's loop asks of the node it runs on. Everything that awaits is here."""

    def begin(self, alg: Algorithm) -> NodeState:
        """The state to start from: the first, or the one kept over a restart."""

    def rounds(self, first: int) -> AsyncIterator[View]:
        """The view of each round from `first` to the scenario's last, as the node begins it."""

    async def train(self, state: NodeState, alg: Algorithm, view: View) -> tuple[NodeState, Update]:
        """Run one local round off the event loop."""

    async def refine(self, state: NodeState, alg: Algorithm, view: View) -> NodeState:
        """Run a server's own work on its model, which may be long, off the event loop."""

    def exchanges(self, view: View) -> int:
        """How often a round sends, receives and mixes, as the mixing says."""

    def drawing(self, what: str, round: int, *key: int) -> AbstractContextManager[object]:
        """Within, a user's own part draws from the stream of (node, round) and what it does; `do` sees to it itself."""

    async def do(self, function: Callable[..., T], *args: object) -> T:
        """Run a piece of maths: inline where it is short, off the event loop where it would block it."""

    async def send(self, view: View, step: int, outbox: Outbox) -> None:
        """Send one step's payloads and go on."""

    async def gather(self, view: View, step: int, wait: WaitPolicy, sources: tuple[NodeId, ...] | None = None) -> Inbox:
        """Wait for the step's messages from the in-neighbors (or `sources`) as the policy says."""

    async def collect(self, view: View, wait: WaitPolicy, lag: int | None) -> Inbox:
        """All that came of this round and earlier ones, once what is `lag` rounds old has come as the policy says.

        None never waits, and takes what nodes that are ahead have sent too.
        """

    def serve(self, answer: Callable[[Message], None] | None) -> None:
        """Hand every request of a peer to `answer`, at any time from now on; None: keep them for later.

        `answer` must not wait. Requests are answered after the last round too.
        """

    def reply(self, request: Message, payload: Payload) -> None:
        """Answer a request, now or later."""

    def owed(self, peer: NodeId) -> bool:
        """Whether an earlier request to `peer` is being sent again, because its reply has not come."""

    def is_last(self, view: View) -> bool:
        """Whether no round follows the view's."""

    async def ask(self, view: View, peer: NodeId, payload: Payload, wait: WaitPolicy) -> Inbox:
        """Send a request to `peer` and wait for its reply as the policy says."""

    async def end_round(self, state: NodeState, view: View) -> None:
        """The round is over: the only place where state is snapshot or checkpointed."""


@dataclass(frozen=True)
class Entry:
    """A row of the catalog: how to build the algorithm, what it needs of the graph, where it is from, and its traits.

    `needs` are the kinds of mixing matrix it is defined for: `doubly`, `row`, `column` stochastic; or
    `server` (a star around a node with the server role), `both_ways` (any weights on links that work
    both ways), `average` (the exact average in certain rounds); of nothing that is named, any will do.

    Every check of a scenario goes by the traits, and by no algorithm's name.

    Attributes:
        fits: What else does not go together.
        warns: What goes together and is hardly meant.
        selects: A node chooses its receivers itself, as it goes.
        scheme: What it sends is this scheme's by definition, compressed or not.
        literal: The parameter, and its value, by which it sends C(z - x) as printed and keeps no reference.
        sparse: It sends sparse vectors, and averages each coordinate over those that came.
        counterpart: Its messages can't be compressed; the algorithm that is for that.
        adds_up: Clients report a change beside the model, which the server adds up, and sends down with the model.
        tells: The server sends another vector down with the model.
        remembers: The server adds up what clients keep: control variates, drifts, duals.
        augments: Its parameter `augment` changes pictures.
        extrapolates: It moves a vector beyond what was averaged: running statistics must not be in that vector.
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


Catalog = Mapping[str, Entry]
