"""Delivery that is acknowledged: a data message is sent again until its receiver has said what it did with it.

A request is sent again until its reply is here; who answered it remembers the reply, and a copy moves nothing.

An acknowledgement is a message over the reverse link, with that link's faults and bytes. Whatever its attempt, the
receiver takes a message (a `LogicalId`) once, and acknowledges every copy. Until that comes the message is neither its
sender's nor lost. Time alone never gives it back to the sender, who can't know whether it was the message or the
acknowledgement that was lost: what is given back and has arrived all the same would be there twice. Only a refusal
gives it back.

A node that may live again from a checkpoint acknowledges what it has read once that is durable: what it
took and had not saved is sent again to its later life.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from netdfl.core.clock import Clock, Timer
from netdfl.core.types import (
    Acknowledgement,
    Kind,
    LogicalId,
    Message,
    Multicast,
    NodeId,
    Payload,
    PeerMessage,
    StepId,
    messages_of,
    unicasts,
)
from netdfl.transport.base import Fate, Sink, Transport, deliver_one

FIRST_NS = 500_000_000
LEAST_NS = 20_000_000
FACTOR = 3
DOUBLINGS = 5
_REFUSALS = (Fate.LATE, Fate.REFUSED)


@dataclass(frozen=True, kw_only=True)
class Resending:
    """How long to wait for an acknowledgement, and how many times a message is sent again without one.

    The time doubles with each attempt, five times at most. `auto` is three times the median of the last
    ones, at least 20 ms; before the first half a second.
    """

    timeout_ns: int | Literal["auto"] = "auto"
    attempts: int = 20


@dataclass(slots=True)
class _Unacknowledged:
    message: Message
    sent_ns: list[int]
    timer: Timer | None = None


class Acknowledged:
    """A `Transport` around another, and the `Sink` at its end. All but data and requests goes through untouched."""

    def __init__(
        self,
        node: NodeId,
        epoch: int,
        inner: Transport,
        clock: Clock,
        how: Resending,
        *,
        keeps: bool = False,
        still: Callable[[], bool] = lambda: False,
        gave_up: Callable[[Message], None] = lambda message: None,
    ) -> None:
        """Deliver for `node`, which lives for the `epoch`-th time, through `inner`.

        With `keeps`, where the node's state is saved, a message is acknowledged once it is durable. While `still`
        holds, nothing is sent again. `gave_up` is called with every message that is not sent again, though nobody
        acknowledged it.
        """
        self.node, self.epoch, self.inner, self.clock, self.how = node, epoch, inner, clock, how
        self.still, self.keeps, self.gave_up = still, keeps, gave_up
        self.refused: set[PeerMessage] = set()
        self._unacknowledged: dict[PeerMessage, _Unacknowledged] = {}
        self._acknowledged: list[Acknowledgement] = []
        self._held: dict[PeerMessage, Message] = {}
        self._saved: Mapping[str, int] = {}
        self._took: deque[int] = deque(maxlen=16)
        self._sink: Sink | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # as a transport

    def attach(self, sink: Sink) -> None:
        """Deliver what arrives into `sink`, and acknowledge it."""
        self._sink = sink
        self.inner.attach(self)

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Hand the messages over; what is data, or a request, is unacknowledged until it is answered."""
        now = self.clock.now_ns()
        awaited = [multicast for multicast in multicasts if multicast.id.kind in (Kind.DATA, Kind.REQUEST)]
        data = messages_of(awaited)
        for message in data:
            self._unacknowledged[message.dst, message.logical] = _Unacknowledged(message, [now])
        await self.inner.send(multicasts)
        for message in data:
            self._arm((message.dst, message.logical))

    async def aclose(self) -> None:
        """Let nothing more in or out."""
        self.close()
        await self.inner.aclose()

    def close(self) -> None:
        """Send nothing again from now on."""
        self._closed = True
        for entry in self._unacknowledged.values():
            if entry.timer is not None:
                entry.timer.cancel()

    # what is unacknowledged

    def unacknowledged(self) -> list[Message]:
        """The unacknowledged messages, in the order in which they were sent."""
        return [entry.message for entry in self._unacknowledged.values()]

    def unsettled(self) -> list[Message]:
        """What is unacknowledged, and what came since `take_acknowledged`: a later life has to hear of it again.

        Requests are of this life alone: a later one asks anew.
        """
        open = [message for message in self.unacknowledged() if message.kind is not Kind.REQUEST]
        return [*open, *(each.message for each in self._acknowledged)]

    def asks(self, peer: NodeId) -> bool:
        """Whether a request to `peer` is sent again unless its reply comes first."""
        entries = self._unacknowledged.values()
        return any(e.message.kind is Kind.REQUEST and e.message.dst == peer and e.timer is not None for e in entries)

    @property
    def due_again(self) -> tuple[PeerMessage, ...]:
        """The messages that are sent again unless they are acknowledged first."""
        waiting = [sent for sent, entry in self._unacknowledged.items() if entry.timer is not None]
        return () if self._closed else tuple(waiting)

    def sends_again(self, peer: NodeId, step: StepId) -> bool:
        """Say whether something for that step is sent to `peer` again unless it is acknowledged first."""
        return any(dst == peer and id.at == step for dst, id in self.due_again)

    @property
    def left(self) -> tuple[PeerMessage, ...]:
        """The messages that are unacknowledged: where this life is over, a later one sends them again."""
        return tuple(self._unacknowledged)

    def take_acknowledged(self) -> list[Acknowledgement]:
        """What was said of this node's messages since the last time, once."""
        said, self._acknowledged = self._acknowledged, []
        return said

    def adopt(self, messages: Sequence[Message]) -> None:
        """Go on with what an earlier life of this node had unacknowledged, as of this life: older ones are refused."""
        now = self.clock.now_ns()
        for message in (each._replace(epoch=self.epoch) for each in messages):
            self._unacknowledged[message.dst, message.logical] = _Unacknowledged(message, [now])
            self._arm((message.dst, message.logical))

    def _arm(self, sent: PeerMessage) -> None:
        entry = self._unacknowledged.get(sent)
        if entry is None or self._closed:
            return
        attempt = len(entry.sent_ns) - 1
        due_ns = self.clock.now_ns() + self._timeout_ns() * 2 ** min(attempt, DOUBLINGS)
        name = ("again", self.node, sent[0], self.epoch, *sent[1].at, attempt)
        entry.timer = self.clock.call_at(due_ns, name, partial(self._again, sent))

    def _timeout_ns(self) -> int:
        if self.how.timeout_ns != "auto":
            return self.how.timeout_ns
        return max(LEAST_NS, FACTOR * int(median(self._took))) if self._took else FIRST_NS

    def _again(self, sent: PeerMessage) -> None:
        entry = self._unacknowledged[sent]
        if self.still():
            self._arm(sent)
            return
        if len(entry.sent_ns) > self.how.attempts:
            entry.timer = None
            self.gave_up(entry.message)
            return
        entry.message = entry.message._replace(attempt=entry.message.attempt + 1)
        entry.sent_ns.append(self.clock.now_ns())
        self._arm(sent)
        self._post(entry.message)

    def _post(self, message: Message) -> None:
        """Send beside whatever the node does now."""
        task = asyncio.get_running_loop().create_task(self.inner.send(unicasts([message])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # as a sink

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back when the mailbox has room. See `Sink`."""
        if self._sink is not None:
            self._sink.when_room(callback)

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Take messages and acknowledge them, or take acknowledgements. See `Sink`."""
        return [self._deliver(message) for message in messages]

    def _deliver(self, message: Message) -> Fate | None:
        if message.kind is Kind.ACK:
            return self._take(message)
        if message.kind is Kind.REPLY:
            self._replied(message)
        fate = deliver_one(self._sink, message) if self._sink is not None else None
        if fate is None or message.kind is not Kind.DATA:
            return fate
        id = message.src, message.logical
        if fate in _REFUSALS:
            self.refused.add(id)
        meta = {"taken": id not in self.refused, "epoch": message.epoch}
        head = (self.node, message.src, Kind.ACK, self.epoch, message.round, message.step, message.attempt)
        self._acknowledge(id, Message(*head, Payload(meta=meta)), at_once=fate is Fate.REFUSED)
        return fate

    def _acknowledge(self, id: PeerMessage, ack: Message, *, at_once: bool) -> None:
        if self._closed:
            return
        if at_once or not self.keeps or _is_in(self._saved, id):
            self._post(ack)
        else:
            self._held[id] = ack

    def saved(self, read: Mapping[str, int]) -> None:
        """What is `read` (see `Mailbox.memory`) is durable: acknowledge it, now and from now on."""
        self._saved = read
        for id in [each for each in self._held if _is_in(read, each)]:
            self._post(self._held.pop(id))

    def _replied(self, reply: Message) -> None:
        entry = self._unacknowledged.pop((reply.src, LogicalId(Kind.REQUEST, reply.at)), None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()
        if entry is not None and len(entry.sent_ns) == 1:
            self._took.append(self.clock.now_ns() - entry.sent_ns[0])

    def _take(self, ack: Message) -> Fate:
        taken, epoch = ack.payload.meta.get("taken"), ack.payload.meta.get("epoch")
        if type(taken) is not bool or type(epoch) is not int:
            return Fate.REFUSED
        entry = self._unacknowledged.pop((ack.src, LogicalId(Kind.DATA, ack.at)), None) if epoch == self.epoch else None
        if entry is None:
            return Fate.DUPLICATE
        if entry.timer is not None:
            entry.timer.cancel()
        first = entry.message.attempt + 1 - len(entry.sent_ns)
        if 0 <= ack.attempt - first < len(entry.sent_ns):
            self._took.append(self.clock.now_ns() - entry.sent_ns[ack.attempt - first])
        self._acknowledged.append(Acknowledgement(entry.message, taken))
        return Fate.DELIVERED


def _is_in(read: Mapping[str, int], id: PeerMessage) -> bool:
    src, (_, (round, step), _) = id
    return bool(read.get(f"{round} {step}", 0) >> src & 1)
