"""Acknowledged delivery: a data message is sent again until its receiver acknowledges it.

    sent ──> unacknowledged ──acknowledged, "taken": true──> the receiver has it
               │   ^    └────acknowledged, "taken": false──> the receiver refused it: the sender takes it back
               └───┘ timer: sent again, as the next attempt, at most `ResendPolicy.attempts` times

An acknowledgement is a message over the reverse link, with the faults and bytes of that link. A receiver takes a
message (a `LogicalId`) once, whatever its attempt, and acknowledges each copy. Until the acknowledgement comes, a
message is neither the sender's nor lost. No time-out gives it back to the sender: the sender can't know whether the
message or the acknowledgement was lost, and a message that was taken back but had arrived would be counted twice. Only
a refusal gives it back. This is how push-sum keeps its mass, the sum of the weights of all nodes and messages.

A notice, by which a node says that it sends nothing in a step, is acknowledged like data, but at once: it has no weight
to keep.

A request is sent again until its reply comes. The peer that answered remembers its reply, so a second copy of the
request changes nothing.

Where the node's state is saved, the node acknowledges a message only once a checkpoint that includes it is durable. A
message that it had read but not saved is sent to it again after its restart.

Relies on: a mailbox that takes a message once, whatever its attempt, and links that lose acknowledgements as they lose
messages.

Why: Loss must not destroy push-sum mass, and neither may a time-out double it; so a message belongs to nobody until its
receiver has spoken. Acknowledgements cost bytes and can be lost, because free ones would make acknowledged methods look
better than they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from netdfl.core.clock import Clock, Timer
from netdfl.core.fates import FOREIGN
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
    answer_to,
    messages_of,
)
from netdfl.node.background import BackgroundSends
from netdfl.transport.base import CheckingSink, Fate, Sink, Transport, deliver_one

FIRST_NS = 500_000_000
LEAST_NS = 20_000_000
FACTOR = 3
DOUBLINGS = 5
NOT_ADMITTED = Fate.refused(FOREIGN)
_ACKNOWLEDGED = (Kind.DATA, Kind.NOTICE)
_REFUSALS = (Fate.LATE, Fate.REFUSED)


@dataclass(frozen=True, kw_only=True)
class ResendPolicy:
    """The time to wait for an acknowledgement, and how many times a message is sent again without one.

    The time doubles with each attempt, five times at most. `auto` is three times the median of the last 16 times that
    acknowledgements took, at least 20 ms; half a second before the first is known.
    """

    timeout_ns: int | Literal["auto"] = "auto"
    attempts: int = 20


@dataclass(slots=True)
class _PendingMessage:
    """An unacknowledged message: as last sent, the times at which it was sent, and the timer for sending it again."""

    message: Message
    sent_ns: list[int]
    timer: Timer | None = None
    given_up: bool = False


class AcknowledgingTransport:
    """A `Transport` around another one that acknowledges arriving data and repeats messages until acknowledged.

    It is also the inner transport's `Sink`. Messages other than data, notices and requests go through unchanged.
    """

    def __init__(
        self,
        node: NodeId,
        epoch: int,
        inner: Transport,
        clock: Clock,
        how: ResendPolicy,
        *,
        keeps: bool = False,
        still: Callable[[], bool] = lambda: False,
        gave_up: Callable[[Message], None] = lambda message: None,
        came_again: Callable[[Message], None] = lambda message: None,
        left_out: Callable[[Message], None] = lambda message: None,
    ) -> None:
        """Send and receive through the transport `inner`.

        Args:
            node: the node that sends and receives.
            epoch: the number of the node's restarts; acknowledgements of messages sent before the last do not count.
            inner: the transport that carries the messages.
            clock: the time of the timers.
            how: when and how often a message is sent again.
            keeps: whether the node's state is saved. If so, a message is acknowledged once a saved state includes it.
            still: returns whether the node is paused; nothing is sent again meanwhile.
            gave_up: called with each message that was sent as often as allowed and is still unacknowledged.
            came_again: called once with each arriving data message of a round before the one given to `join_at`.
            left_out: called with each acknowledgement that is not sent because too many messages wait for its receiver.
        """
        self.node, self.epoch, self.inner, self.clock, self.how = node, epoch, inner, clock, how
        self.still, self.keeps, self.gave_up, self.came_again = still, keeps, gave_up, came_again
        self._first = 0
        self.refused: set[PeerMessage] = set()
        self._unacknowledged: dict[PeerMessage, _PendingMessage] = {}
        self._acknowledged: list[Acknowledgement] = []
        self._held: dict[PeerMessage, Message] = {}
        self._saved: Mapping[str, int] = {}
        self._took: deque[int] = deque(maxlen=16)
        self._sink: Sink | None = None
        self._checks: CheckingSink | None = None
        self._background = BackgroundSends(inner.send, left_out)
        self._closed = False

    # as a transport

    def attach(self, sink: Sink) -> None:
        """Deliver arriving messages into `sink`, and acknowledge them to their senders."""
        self._sink = sink
        self._checks = sink if isinstance(sink, CheckingSink) else None
        self.inner.attach(self)

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Send the messages, and repeat data, notices and requests until an acknowledgement or a reply comes."""
        now = self.clock.now_ns()
        awaited = [multicast for multicast in multicasts if multicast.id.kind in (*_ACKNOWLEDGED, Kind.REQUEST)]
        data = messages_of(awaited)
        for message in data:
            self._unacknowledged[message.dst, message.logical] = _PendingMessage(message, [now])
        await self.inner.send(multicasts)
        for message in data:
            self._arm((message.dst, message.logical))

    async def aclose(self) -> None:
        """Stop repeating messages, and close the inner transport."""
        self.close()
        await self.inner.aclose()

    def join_at(self, round: int) -> None:
        """Report arriving messages of rounds before `round` to `came_again`: this node may have taken them already.

        This is for a node that lost its state, and so does not know what it took before it crashed.
        """
        self._first = round

    def close(self) -> None:
        """Stop repeating unacknowledged messages."""
        self._closed = True
        for entry in self._unacknowledged.values():
            if entry.timer is not None:
                entry.timer.cancel()

    # what is unacknowledged

    def unacknowledged(self) -> list[Message]:
        """Return the unacknowledged messages, in the order in which they were sent."""
        return [entry.message for entry in self._unacknowledged.values()]

    def unsettled(self) -> list[Message]:
        """Return the messages that the node must send again after a restart, to learn whether receivers took them.

        They are the unacknowledged ones, and those whose acknowledgement the algorithm has not fetched by
        `take_acknowledged` yet. Requests and notices are not among them: a restarted node makes its own.
        """
        open = [message for message in self.unacknowledged() if message.kind is Kind.DATA]
        return [*open, *(each.message for each in self._acknowledged)]

    def untaken(self) -> list[Message]:
        """Return the data messages that no receiver is known to have taken, except for those given up already."""
        entries = self._unacknowledged.values()
        open = [e.message for e in entries if e.message.kind is Kind.DATA and not e.given_up]
        return [*open, *(each.message for each in self._acknowledged if not each.taken)]

    def abandon(self) -> None:
        """Report to `gave_up` all data messages that no receiver is known to have taken; this node loses its state."""
        for message in self.untaken():
            self.gave_up(message)

    def unsaved(self) -> list[PeerMessage]:
        """Return the arrived data messages that this node has accepted and that no saved state of it includes yet."""
        return [id for id, ack in self._held.items() if ack.payload.meta["taken"]]

    def asks(self, peer: NodeId) -> bool:
        """Return whether this node's request to `peer` is unanswered and will be sent again."""
        return any(dst == peer and id.kind is Kind.REQUEST for dst, id in self.due_again)

    @property
    def due_again(self) -> tuple[PeerMessage, ...]:
        """The messages of this node that are unacknowledged and will be sent again."""
        waiting = [sent for sent, entry in self._unacknowledged.items() if entry.timer is not None]
        return () if self._closed else tuple(waiting)

    def sends_again(self, peer: NodeId, step: StepId) -> bool:
        """Return whether this node's message to `peer` for `step` is unacknowledged and will be sent again."""
        return any(dst == peer and id.at == step for dst, id in self.due_again)

    @property
    def left(self) -> tuple[PeerMessage, ...]:
        """The unacknowledged messages that the node resends after a restart: all but notices, which it makes anew."""
        return tuple(sent for sent in self._unacknowledged if sent[1].kind is not Kind.NOTICE)

    def take_acknowledged(self) -> list[Acknowledgement]:
        """Return the acknowledgements of this node's messages that came since the last call, each once."""
        said, self._acknowledged = self._acknowledged, []
        return said

    def adopt(self, messages: Sequence[Message]) -> None:
        """Take over `messages`, which were unacknowledged when this node crashed; send them until acknowledged."""
        now = self.clock.now_ns()
        for message in (each._replace(epoch=self.epoch) for each in messages):
            self._unacknowledged[message.dst, message.logical] = _PendingMessage(message, [now])
            self._arm((message.dst, message.logical))

    def _arm(self, sent: PeerMessage) -> None:
        entry = self._unacknowledged.get(sent)
        if entry is None or self._closed:
            return
        attempt = len(entry.sent_ns) - 1
        due_ns = self.clock.now_ns() + self._timeout_ns() * 2 ** min(attempt, DOUBLINGS)
        word = "notice again" if sent[1].kind is Kind.NOTICE else "again"
        name = (word, self.node, sent[0], self.epoch, *sent[1].at, attempt)
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
            entry.timer, entry.given_up = None, True
            if entry.message.kind is not Kind.NOTICE:
                self.gave_up(entry.message)
            return
        entry.message = entry.message._replace(attempt=entry.message.attempt + 1)
        entry.sent_ns.append(self.clock.now_ns())
        self._arm(sent)
        self._background.send(entry.message)

    # as a sink

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the node's mailbox has room for messages."""
        if self._sink is not None:
            self._sink.when_room(callback)

    def refusal(self, message: Message) -> Fate | None:
        """Return the fate of a message that the node's sink refuses; None if the message may be delivered.

        An acknowledgement is never refused here, because it does not reach the sink.
        """
        return None if self._checks is None or message.kind is Kind.ACK else self._checks.refusal(message)

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Handle arriving messages: pass data to the node and acknowledge them; match acknowledgements to sent ones."""
        return [self._deliver(message) for message in messages]

    def _deliver(self, message: Message) -> Fate | None:
        if message.kind is Kind.ACK:
            return self._take(message)
        if message.kind is Kind.REPLY:
            self._replied(message)
        fate = deliver_one(self._sink, message) if self._sink is not None else None
        if fate is None or message.kind not in _ACKNOWLEDGED:
            return fate
        id = message.src, message.logical
        if message.kind is Kind.NOTICE:
            self._acknowledge(id, self._ack(message, taken=True, notice=True), at_once=True)
            return fate
        if fate == NOT_ADMITTED:  # the id is not kept: each copy is refused anew, as there is no bound on such ids
            self._acknowledge(id, self._ack(message, taken=False), at_once=True)
            return fate
        if fate in _REFUSALS:
            self.refused.add(id)
        if message.round < self._first and fate is not Fate.DUPLICATE:
            self.came_again(message)
        ack = self._ack(message, taken=id not in self.refused)
        self._acknowledge(id, ack, at_once=fate is Fate.REFUSED)
        return fate

    def _ack(self, message: Message, **said: bool) -> Message:
        """Return an acknowledgement of `message`; it is void if the sender has restarted since it sent `message`."""
        return answer_to(message, Kind.ACK, self.epoch, Payload(meta={**said, "epoch": message.epoch}))

    def _acknowledge(self, id: PeerMessage, ack: Message, *, at_once: bool) -> None:
        if self._closed:
            return
        if at_once or not self.keeps or _is_in(self._saved, id):
            self._background.answer(ack)
        else:
            self._held[id] = ack

    def saved(self, read: Mapping[str, int]) -> None:
        """Acknowledge the messages in `read`, which are now saved on disk, and later also repeated copies of them.

        `read` has the form of `Mailbox.memory`: for each step, the senders as a bit set.
        """
        self._saved = read
        for id in [each for each in self._held if _is_in(read, each)]:
            self._background.send(self._held.pop(id))

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
        kind = Kind.NOTICE if ack.payload.meta.get("notice") is True else Kind.DATA
        entry = self._unacknowledged.pop((ack.src, LogicalId(kind, ack.at)), None) if epoch == self.epoch else None
        if entry is None:
            return Fate.DUPLICATE
        if entry.timer is not None:
            entry.timer.cancel()
        first = entry.message.attempt + 1 - len(entry.sent_ns)
        if 0 <= ack.attempt - first < len(entry.sent_ns):
            self._took.append(self.clock.now_ns() - entry.sent_ns[ack.attempt - first])
        if kind is Kind.DATA:
            self._acknowledged.append(Acknowledgement(entry.message, taken))
        return Fate.DELIVERED


def _is_in(read: Mapping[str, int], id: PeerMessage) -> bool:
    src, (_, (round, step), _) = id
    return bool(read.get(f"{round} {step}", 0) >> src & 1)
