"""The one seam: a transport takes `Multicast`s at one node and hands their messages to the sinks of others.

A transport never calls back into an algorithm: it delivers into a `Sink` (the node's mailbox), in one synchronous
call for all that comes at one instant. That costs no task and no wake-up per message, and it is the place where a
full mailbox pushes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from netdfl.core.fates import Fate as Fate
from netdfl.core.fates import FateReason, is_fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, Message, Multicast, Payload

MOST_NS = 1 << 60
"""A time on the fleet's clock that another node tells is within so many nanoseconds of the start, some 36 years."""


def may_be_told(fate: str, arrived_ns: int | None) -> bool:
    """Whether another node may say this of a message: a fate that there is, and a time that can be."""
    return is_fate(fate) and (arrived_ns is None or abs(arrived_ns) <= MOST_NS)


class Sink(Protocol):
    """Where a transport puts what arrives for one node."""

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Take messages in this order and return each one's fate; None: the mailbox is full, offer it again later."""

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, soon after the mailbox has room again."""


def deliver_one(sink: Sink, message: Message) -> Fate | None:
    """Deliver a message that comes alone."""
    (fate,) = sink.deliver((message,))
    return fate


class Ledger(Protocol):
    """Where a transport reports what became of each message; the record behind it writes the rows.

    One row per message, written by its sender's side. Times are the clock's nanoseconds.
    """

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count messages of `nbytes` together on the wire that were handed to the transport."""

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Take the fate of messages, and the contents of each in the order of their edges."""

    def refused(self, edge: Edge | None, reason: FateReason, what: str) -> None:
        """Something foreign or malformed came in and changed nothing."""


class Transport(Protocol):
    """One node's end of the network."""

    def attach(self, sink: Sink) -> None:
        """Deliver what arrives into `sink`; each life of the node calls it once, before the first message is due."""

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Hand over one step's messages and go on: return before they arrive.

        Waits only where a destination's queue is full (flow control). Messages of one edge leave in
        order. Loss, delay and dead peers show in the ledger, never as an exception here.
        """

    async def aclose(self) -> None:
        """Let nothing more in or out; settle what is still in flight as `in_flight`."""
