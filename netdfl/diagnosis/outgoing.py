"""The outgoing messages of a node: which sends wait for room in a mailbox, and which messages can be repeated.

Relies on: a transport whose `send` returns once receivers have accepted all messages, so that a send under way is one
that flow control holds up.

Why: A diagnosis must see a send that is held up by a full mailbox, and a remedy may order a lost message to be sent
again. So this transport wraps the node's own one and remembers both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from netdfl.core.clock import Clock
from netdfl.core.types import Kind, Message, Multicast, PeerMessage, unicasts
from netdfl.node.ledger import ASIDE
from netdfl.transport.base import Sink, Transport

MOST_KEPT = 256
"""The most sent messages that a node keeps, if it may have to send them again."""

AWAITED = (Kind.DATA, Kind.NOTICE, Kind.REQUEST, Kind.REPLY)
"""The kinds of messages for which nodes wait."""


class OutgoingMessages:
    """A `Transport` that wraps a node's own one and keeps track of the messages that the node sends."""

    def __init__(self, inner: Transport, clock: Clock, *, keep: int = 0) -> None:
        """Send through `inner`; keep the last `keep` messages, so that they can be sent again."""
        self.inner, self.clock, self.keep = inner, clock, keep
        self._sending: dict[object, tuple[Sequence[Multicast], int]] = {}
        self._kept: OrderedDict[PeerMessage, Message] = OrderedDict()

    def attach(self, sink: Sink) -> None:
        """Deliver arriving messages into `sink`."""
        self.inner.attach(sink)

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Send the messages; `held_up` returns them while this call waits for room in a receiver's mailbox."""
        self._remember(multicasts)
        this = object()
        self._sending[this] = multicasts, self.clock.now_ns()
        try:
            await self.inner.send(multicasts)
        finally:
            del self._sending[this]

    @property
    def held_up(self) -> tuple[Sequence[Multicast], int]:
        """The messages of the send that has waited longest for mailbox room, and since when; empty if no send waits.

        A node whose send waits still requests messages of others and answers requests, so several sends may wait at a
        time. Waiting heartbeats and status queries do not count, because they delay nothing.
        """
        for multicasts, since_ns in self._sending.values():
            if any(multicast.id.kind not in ASIDE for multicast in multicasts):
                return multicasts, since_ns
        return (), 0

    def _remember(self, multicasts: Sequence[Multicast]) -> None:
        if not self.keep:
            return
        for multicast in multicasts:
            if multicast.id.kind in AWAITED:
                self._kept |= {(message.dst, message.logical): message for message in multicast.messages}
        while len(self._kept) > self.keep:
            self._kept.popitem(last=False)

    def can_send_again(self, sent: PeerMessage) -> bool:
        """Return whether a sent message is still kept in memory, so that `send_again` can repeat it."""
        return sent in self._kept

    async def send_again(self, sent: PeerMessage) -> None:
        """Send a message again that is still kept in memory, with the next attempt number.

        Raises KeyError if it is not kept.
        """
        before = self._kept[sent]
        again = before._replace(attempt=before.attempt + 1)
        self._kept[sent] = again
        await self.inner.send(unicasts([again]))

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self.inner.aclose()
