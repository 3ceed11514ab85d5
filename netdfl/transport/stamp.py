"""What emulated links write on a message beside its frame: when it is due, and in what condition it is."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, Protocol, runtime_checkable

from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Message
from netdfl.transport.base import Sink

STAMP = "netdfl-stamp-bin"
"""The gRPC metadata key of a stamp."""

_LAYOUT = Struct("<qqqBB")


class Stamp(NamedTuple):
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


def read_stamp(data: bytes) -> Stamp:
    """Read what `pack` wrote. Raises MalformedMessage."""
    if len(data) != _LAYOUT.size:
        raise MalformedMessage(f"a stamp of {len(data)} bytes came, expected {_LAYOUT.size}")
    serial, sent_ns, due_ns, copy, corrupted = _LAYOUT.unpack(data)
    return Stamp(serial, sent_ns, due_ns, copy, bool(corrupted))


@runtime_checkable
class StampedSink(Sink, Protocol):
    """A sink that also takes messages with a stamp, which may be due later."""

    def deliver_stamped(self, message: Message, stamp: bytes) -> str | None:
        """Take a message and say its fate, `in_flight` where that comes later; None: offer it again later."""
        ...
