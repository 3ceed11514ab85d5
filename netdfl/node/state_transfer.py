"""How a node that lost its state gets a model: it asks its neighbors for theirs, over the links.

A request (`fetch`) and its answer (`model`) are messages like any other, with the faults and the bytes of their
links. One neighbor is asked after the other, each time with more patience; an answer counts whenever it comes.
Where none does, the node begins with its initial vector, and says why.
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
from netdfl.core.types import Kind, Message, MessageId, Multicast, NodeId, Payload, StepId, View
from netdfl.mixing.payloads import pack, vector
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
FIRST_NS = NS_PER_S // 2
LONGEST_NS = 4 * NS_PER_S
ROUND = "round"
_NOTHING = Payload()


@dataclass(frozen=True, kw_only=True)
class Joining:
    """How a node joins whose state is lost: with the model of one of `peers`, in the order to ask.

    It begins with `round`, or with the one in which that peer is by then, where that is later.
    `weight` is its push-sum weight: 0, or 1, which is new mass; None for methods without weights.
    """

    round: int
    peers: tuple[NodeId, ...]
    weight: int | None


class Fetched(NamedTuple):
    """A neighbor's model, shape (d,), the round in which it is, and whose it is; or none of them, with the reason."""

    model: Tensor | None
    round: int = 0
    source: NodeId | None = None
    reason: str = ""


class Member(Protocol):
    """What a `Node` shows of itself to its state transfer."""

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
        """What the node knows of a round; the set holds the nodes that it believes gone."""
        ...

    def post(self, message: Message) -> None:
        """Send a message beside whatever the node does now."""
        ...


class StateTransfer:
    """Gives a node's model to whoever asks for it, and asks for others' when the node has lost its own."""

    def __init__(self, node: Member) -> None:
        """Answer for `node` from now on. It has asked others `since_ns`, while it does; else None."""
        self._node = node
        self._like: Tensor | None = None
        self._asked: set[NodeId] = set()
        self._came: Fetched | None = None
        self._done: asyncio.Future[None] | None = None
        self.since_ns: int | None = None
        node.mailbox.on(Kind.FETCH, self._give)
        node.mailbox.on(Kind.MODEL, self._take)

    async def join(self, how: Joining) -> NodeState:
        """Fetch a model, and begin with it; record whose it is, or why it is nobody's."""
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

    async def _fetch(self, how: Joining, like: Tensor) -> Fetched:
        if not how.peers:
            return Fetched(None, reason="no neighbor has links both ways")
        node, began_ns = self._node, self._node.clock.now_ns()
        self._like, self.since_ns = like, began_ns
        try:
            for attempt in range(ASKS):
                peer = self._next(how.peers, attempt)
                if peer is None:
                    return Fetched(None, reason="no neighbor is there")
                self._asked.add(peer)
                id = MessageId(Kind.FETCH, node.epoch, StepId(how.round, 0), 0, attempt)
                await node.transport.send([Multicast(node.id, (peer,), id, (_NOTHING,))])
                await self._patience(attempt)
                if self._came is not None:
                    return self._came
        finally:
            self._like = self.since_ns = None
        waited_s = (node.clock.now_ns() - began_ns) / NS_PER_S
        return Fetched(None, reason=f"nobody answered {ASKS} requests for a model within {waited_s:.3g} s")

    def _next(self, peers: Sequence[NodeId], attempt: int) -> NodeId | None:
        there = [peer for peer in peers if peer not in self._node.waits.gone]
        return there[attempt % len(there)] if there else None

    async def _patience(self, attempt: int) -> None:
        """Wait until a model has come, or it is time to ask the next."""
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
        """Answer a peer, unless this node has no model itself."""
        node, state = self._node, self._node.latest
        if state is not None:
            head = (node.id, request.src, Kind.MODEL, node.epoch, request.round, request.step, request.attempt)
            node.post(Message(*head, pack(state.model(node.algorithm), meta={ROUND: state.round})))
        return Fate.DELIVERED

    def _take(self, message: Message) -> Fate:
        """Take the first model that comes of those that were asked for."""
        if self._like is None or message.src not in self._asked:
            return Fate.LATE
        try:
            model, round = vector(message, self._like).clone(), message.payload.meta.get(ROUND)
            if not model.isfinite().all() or type(round) is not int:
                what = "a finite model and a round" if type(round) is int else f"the round of a model, got {round!r}"
                raise MalformedMessage(f"node {message.src} answered a request for its model: expected {what}", message)
        except MalformedMessage as error:
            self._node.ledger.refused((message.src, message.dst), error.reason, str(error))
            return Fate.REFUSED
        if self._came is not None:
            return Fate.DUPLICATE
        self._came = Fetched(model, round, message.src)
        if self._done is not None:
            settle(self._done)
        return Fate.DELIVERED
