"""The link header: a message's times on an emulated link, sent behind its frame, and the interface that takes it.

Relies on: clocks of both nodes that agree, since the times in it are read from the sender's clock.

Why: It is behind the body, so that header and body, which all receivers share, stay as they are; its times differ from
edge to edge. Its values are checked when read, because a stranger may have written them.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, Protocol, runtime_checkable

from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Message
from netdfl.transport.base import MOST_NS, Fate, Sink

LINK_HEADER = "netdfl-stamp-bin"
"""The gRPC metadata key of a link header."""

_LAYOUT = Struct("<qqqBB")


class LinkHeader(NamedTuple):
    """The times of one message on an emulated link, on the fleet's clock.

    Attributes:
        serial: the sender's number of the message.
        sent_ns: when the message was sent.
        due_ns: when the message leaves the link's own stages. The real transport may deliver it before.
        copy: 0 for the message, 1 and more for the copies that the link made.
        corrupted: whether the link damaged the message.
    """

    serial: int
    sent_ns: int
    due_ns: int
    copy: int = 0
    corrupted: bool = False

    def pack(self) -> bytes:
        """Return the header as the bytes that travel."""
        return _LAYOUT.pack(*self)

    @classmethod
    def read(cls, data: bytes) -> LinkHeader:
        """Read a header that `pack` wrote. Raises MalformedMessage."""
        if len(data) != _LAYOUT.size:
            raise MalformedMessage(f"a link header of {len(data)} bytes came, expected {_LAYOUT.size}")
        serial, sent_ns, due_ns, copy, corrupted = _LAYOUT.unpack(data)
        if serial < 0 or max(abs(sent_ns), abs(due_ns)) > MOST_NS:
            raise MalformedMessage(f"a link header says number {serial}, sent at {sent_ns} ns and due at {due_ns} ns")
        return cls(serial, sent_ns, due_ns, copy, bool(corrupted))


@runtime_checkable
class LinkHeaderSink(Sink, Protocol):
    """A sink that also takes messages with a link header, and holds those that come before the time in it."""

    def deliver_with_header(self, message: Message, link_header: bytes) -> Fate | None:
        """Accept a message with its link header, which has the time when it is due.

        Return the message's fate, `in_flight` if the fate is reported later, None if it must be offered again.
        """
