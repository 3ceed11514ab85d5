"""State transfer: a node that lost its state asks its neighbors for a model, over the links.

A request (`fetch`) and its answer (`model`) are ordinary messages, with the faults and the bytes of their links. The
node asks one neighbor after the other, and waits longer each time. An answer to any of these requests counts, even a
late one. If none comes, the node begins with its initial vector and records the reason.

    without a state ──fetch──▶ asked ──a model comes──▶ joined
                                 ├──none in time──▶ the next neighbor is asked
                                 └──none to any request──▶ the initial vector

Relies on: `latest`, the state of a node's last finished round, from which the node answers at any time, whatever it is
doing.

Why: A node that begins again from its initial vector pulls the fleet back. A supervisor that handed out a model would
be free and always there, which no real fleet has. The weight of a fetched model is the scenario's choice
(`rejoin_weight`), since it is new push-sum mass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from netdfl.algorithms.base import Algorithm, NodeState
from netdfl.algorithms.families import joining_state
from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Kind, Message, MessageId, Multicast, NodeId, Payload, StepId, View, answer_to
from netdfl.mixing.payloads import is_finite, pack, vector
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.waits import Waits
from netdfl.node.worker import settle
from netdfl.record.base import Recorder
from netdfl.training.base import Task
from netdfl.transport.base import Fate, Transport

if TYPE_CHECKING:
    from torch import Tensor

ASKS = 8
MOST_ANSWERS = 4 * ASKS
"""How many requests for a model are answered to a peer between two restarts of it; links may duplicate requests."""
FIRST_NS = NS_PER_S // 2
LONGEST_NS = 4 * NS_PER_S
ROUND = "round"
_NOTHING = Payload()


@dataclass(frozen=True, kw_only=True)
class JoinPlan:
    """The plan by which a node without a state joins the run.

    Attributes:
        round: the first round of the node, unless the peer that gives its model is in a later one.
        peers: the neighbors to ask for a model, in this order.
        weight: the push-sum weight to begin with: 0, or 1, which is new mass. None for methods without weights.
    """

    round: int
    peers: tuple[NodeId, ...]
    weight: int | None


class FetchedModel(NamedTuple):
    """A neighbor's model, shape (d,), with the neighbor's round and id; or no model and the reason why none came."""

    model: Tensor | None
    round: int = 0
    source: NodeId | None = None
    reason: str = ""


class Member(Protocol):
    """The attributes of a `Node` that its state transfer uses."""

    id: NodeId
    epoch: int
    num_rounds: int
    algorithm: Algorithm
    task: Task
    latest: NodeState | None
    transport: Transport
    clock: Clock
    recorder: Recorder
    ledger: NodeLedger
    mailbox: Mailbox
    waits: Waits

    @property
    def view_of(self) -> Callable[[int, frozenset[NodeId]], View]:
        """A function from a round and the nodes considered gone to the node's view of that round."""
        ...

    def post(self, message: Message) -> None:
        """Send a message in a background task."""
        ...


class StateTransfer:
    """The model transfer of one node: it answers requests for its model; if it lost its own, it asks neighbors."""

    def __init__(self, node: Member) -> None:
        """Start to answer peers' requests for the model of `node`.

        The attribute `since_ns` is the time at which the node began to ask for a model itself; None: it does not ask.
        """
        self._node = node
        self._like: Tensor | None = None
        self._asked: set[NodeId] = set()
        self._came: FetchedModel | None = None
        self._done: asyncio.Future[None] | None = None
        self._given: dict[NodeId, tuple[int, int]] = {}  # each peer's restarts, and its requests since the last one
        self._packed: tuple[NodeState, Payload] | None = None  # the model that was given last, the same for all peers
        self.since_ns: int | None = None
        node.mailbox.on(Kind.FETCH, self._give)
        node.mailbox.on(Kind.MODEL, self._take)

    async def join(self, how: JoinPlan) -> NodeState:
        """Ask neighbors for a model as planned in `how`, and return a state that starts from it; record its source.

        If none comes, record the reason, and start from the initial vector.
        """
        node = self._node
        initial = node.task.initial()
        fetched = await self._fetch(how, initial)
        round = min(max(how.round, fetched.round), node.num_rounds)
        node.recorder.event(
            node.clock.now_ns(),
            node.id,
            round,
            "rejoin",
            source=fetched.source,
            weight=None if how.weight is None else float(how.weight),
            reason=fetched.reason,
        )
        model = initial if fetched.model is None else fetched.model
        view = node.view_of(min(round, node.num_rounds - 1), frozenset())
        return joining_state(initial, model, how.weight, node.algorithm, view)._replace(round=round)

    async def _fetch(self, how: JoinPlan, like: Tensor) -> FetchedModel:
        if not how.peers:
            return FetchedModel(None, reason="no neighbor has links both ways")
        node, began_ns = self._node, self._node.clock.now_ns()
        self._like, self.since_ns = like, began_ns
        try:
            for attempt in range(ASKS):
                peer = self._next(how.peers, attempt)
                if peer is None:
                    return FetchedModel(None, reason="no neighbor is there")
                self._asked.add(peer)
                id = MessageId(Kind.FETCH, node.epoch, StepId(how.round, 0), 0, attempt)
                await node.transport.send([Multicast(node.id, (peer,), id, (_NOTHING,))])
                await self._patience(attempt)
                if self._came is not None:
                    return self._came
        finally:
            self._like = self.since_ns = None
        waited_s = (node.clock.now_ns() - began_ns) / NS_PER_S
        return FetchedModel(None, reason=f"nobody answered {ASKS} requests for a model within {waited_s:.3g} s")

    def _next(self, peers: Sequence[NodeId], attempt: int) -> NodeId | None:
        there = [peer for peer in peers if peer not in self._node.waits.gone]
        return there[attempt % len(there)] if there else None

    async def _patience(self, attempt: int) -> None:
        """Wait until a model has come, or until the next neighbor should be asked: longer with each `attempt`."""
        if self._came is not None:
            return
        clock = self._node.clock
        self._done = done = asyncio.get_running_loop().create_future()
        due_ns = clock.now_ns() + min(FIRST_NS << attempt, LONGEST_NS)
        timer = clock.call_at(due_ns, ("fetch", self._node.id, attempt), partial(settle, done))
        try:
            await done
        finally:
            timer.cancel()

    def _give(self, request: Message) -> Fate:
        """Answer a peer's request for this node's model, unless it has none yet or the peer asks too often."""
        node, state = self._node, self._node.latest
        epoch, asked = self._given.get(request.src, (0, 0))
        asked = asked + 1 if epoch == request.epoch else 1
        self._given[request.src] = request.epoch, asked
        if state is not None and asked <= MOST_ANSWERS:
            if self._packed is None or self._packed[0] is not state:
                self._packed = state, pack(state.model(node.algorithm), meta={ROUND: state.round})
            node.post(answer_to(request, Kind.MODEL, node.epoch, self._packed[1]))
        return Fate.DELIVERED

    def _take(self, message: Message) -> Fate:
        """Store the first valid model that a neighbor sends on this node's request; refuse any other."""
        if self._like is None or message.src not in self._asked:
            return Fate.LATE
        try:
            model, told = vector(message, self._like).clone(), message.payload.meta.get(ROUND)
            round = told if type(told) is int and 0 <= told <= self._node.num_rounds else None
            if round is None or not is_finite(message.payload):
                what = f"the round of a model, got {told!r:.40}" if round is None else "a finite model and a round"
                raise MalformedMessage(f"node {message.src} answered a request for its model: expected {what}", message)
        except MalformedMessage as error:
            self._node.ledger.refused((message.src, message.dst), error.reason, str(error))
            return Fate.REFUSED
        if self._came is not None:
            return Fate.DUPLICATE
        self._came = FetchedModel(model, round, message.src)
        if self._done is not None:
            settle(self._done)
        return Fate.DELIVERED
