"""A node's transport with a memory: whether it is held up, and what it can send again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from netdfl.core.clock import Clock
from netdfl.core.types import Kind, Message, Multicast, PeerMessage, unicasts
from netdfl.transport.base import Sink, Transport

MOST_KEPT = 256
"""Messages that a node keeps where it may have to send them again."""

AWAITED = (Kind.DATA, Kind.NOTICE, Kind.REQUEST, Kind.REPLY)
"""The kinds of messages for which nodes wait."""


class Outgoing:
    """A `Transport` around another. `keep` is how many messages it can send again, 0: none."""

    def __init__(self, inner: Transport, clock: Clock, *, keep: int = 0) -> None:
        """Send through `inner`."""
        self.inner, self.clock, self.keep = inner, clock, keep
        self._sending: dict[object, tuple[Sequence[Multicast], int]] = {}
        self._kept: OrderedDict[PeerMessage, Message] = OrderedDict()

    def attach(self, sink: Sink) -> None:
        """Deliver what arrives into `sink`."""
        self.inner.attach(sink)

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Hand the messages over; while that waits, `held_up` tells of them."""
        self._remember(multicasts)
        this = object()
        self._sending[this] = multicasts, self.clock.now_ns()
        try:
            await self.inner.send(multicasts)
        finally:
            del self._sending[this]

    @property
    def held_up(self) -> tuple[Sequence[Multicast], int]:
        """The messages that have waited longest to be handed over, and since when; none: no send waits.

        A node that is held up goes on to ask others and to answer them, so several sends may wait at a time.
        """
        return next(iter(self._sending.values()), ((), 0))

    def _remember(self, multicasts: Sequence[Multicast]) -> None:
        if not self.keep:
            return
        for multicast in multicasts:
            if multicast.id.kind in AWAITED:
                self._kept |= {(message.dst, message.logical): message for message in multicast.messages}
        while len(self._kept) > self.keep:
            self._kept.popitem(last=False)

    def can_send_again(self, sent: PeerMessage) -> bool:
        """Whether the message is still kept."""
        return sent in self._kept

    async def send_again(self, sent: PeerMessage) -> None:
        """Send a kept message as its next attempt. Raises KeyError where it is not kept."""
        before = self._kept[sent]
        again = before._replace(attempt=before.attempt + 1)
        self._kept[sent] = again
        await self.inner.send(unicasts([again]))

    async def aclose(self) -> None:
        """Let nothing more in or out."""
        await self.inner.aclose()
