"""The interface between nodes and the network: a transport takes `Multicast`s and delivers messages into `Sink`s.

Worlds (simulated, processes, containers ...) differ only below this interface. A transport never calls an algorithm. It
delivers into the sink of a node (its mailbox), in one synchronous call for all messages that arrive at one instant.

Relies on: sinks that answer at once, in the loop of their node.

Why: A synchronous call needs no task and no wake-up for each message, and by its return value a full mailbox makes
senders wait. Loss and dead peers show in the ledger and never as errors of `send`, for no algorithm may learn of them
in another way than on a real network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from netdfl.core.fates import Fate as Fate
from netdfl.core.fates import FateReason
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, Message, Multicast, Payload

MOST_NS = 1 << 60
"""The largest valid time from another node, in nanoseconds on the fleet's clock: some 36 years."""


def is_plausible(fate: str, arrived_ns: int | None) -> bool:
    """Return whether another node's report on a message can be true: a known fate, an arrival time within bounds."""
    return Fate.is_text(fate) and (arrived_ns is None or abs(arrived_ns) <= MOST_NS)


class Sink(Protocol):
    """The receiver of the messages that a transport delivers to one node."""

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Accept arriving messages for the node, in this order.

        Return the fate of each (such as `delivered`), or None where the node's mailbox is full and the caller must
        offer the message again.
        """

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, soon after the node's mailbox has room for messages again."""


@runtime_checkable
class CheckingSink(Sink, Protocol):
    """A sink that can refuse a message before its delivery, so that no message is stored that will be refused."""

    def refusal(self, message: Message) -> Fate | None:
        """Return the fate of a message that no member of the run would send; None for any other message."""


def deliver_one(sink: Sink, message: Message) -> Fate | None:
    """Deliver one message to a node's `sink`; return its fate (such as `delivered`), None if the mailbox is full."""
    (fate,) = sink.deliver((message,))
    return fate


def wake(waiters: list[asyncio.Future[None]]) -> None:
    """Wake all tasks that wait on these futures, and empty the list."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


class Ledger(Protocol):
    """The interface to which a transport reports its sent messages and their fates (delivered, lost and so on).

    Each message has one row in the run's record, which its sender's side writes. Times are nanoseconds of the fleet's
    clock.
    """

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count the messages of a multicast that was handed to the transport; together they have `nbytes` bytes."""

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Record the fate of the messages in `outcome`, one on each of its edges, which all ended alike.

        `payloads` has the payload of each of these messages, in the order of the edges.
        """

    def refused(self, edge: Edge | None, reason: FateReason, what: str) -> None:
        """Count an invalid message that was discarded on its arrival, with the `reason`.

        `what` describes what was wrong, and `edge` is None if the sender is unknown.
        """


class Transport(Protocol):
    """The interface to one node's end of the network: it sends the node's messages and delivers those that arrive."""

    def attach(self, sink: Sink) -> None:
        """Deliver arriving messages into `sink`.

        A node calls this once after each start or restart, before its first message.
        """

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Hand over the messages of one step, and return before they arrive.

        The call waits only while the queue of a receiver is full (flow control). Messages of one edge leave in order.
        Loss, delay and dead peers show in the ledger, never as an exception here.
        """

    async def aclose(self) -> None:
        """Close the transport. Messages still under way get the fate `in_flight`."""
