"""What emulated links write beside a message's frame, and the sink that reads it."""

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
    """One message's way over an emulated link, on the fleet's clock.

    `serial` is the sender's number for it; `due_ns` is when it leaves the link's own stages, which may
    be after it has come; `copy` counts duplicates.
    """

    serial: int
    sent_ns: int
    due_ns: int
    copy: int = 0
    corrupted: bool = False

    def pack(self) -> bytes:
        """As it travels."""
        return _LAYOUT.pack(*self)


def read_link_header(data: bytes) -> LinkHeader:
    """Read what `pack` wrote. Raises MalformedMessage."""
    if len(data) != _LAYOUT.size:
        raise MalformedMessage(f"a link header of {len(data)} bytes came, expected {_LAYOUT.size}")
    serial, sent_ns, due_ns, copy, corrupted = _LAYOUT.unpack(data)
    if serial < 0 or max(abs(sent_ns), abs(due_ns)) > MOST_NS:
        raise MalformedMessage(f"a link header says number {serial}, sent at {sent_ns} ns and due at {due_ns} ns")
    return LinkHeader(serial, sent_ns, due_ns, copy, bool(corrupted))


@runtime_checkable
class LinkHeaderSink(Sink, Protocol):
    """A sink that also takes messages with a link header, which may be due later."""

    def deliver_with_header(self, message: Message, link_header: bytes) -> Fate | None:
        """Take a message and say its fate, `in_flight` where that comes later; None: offer it again later."""
