"""Chunks: a large message as a stream of `Chunk`s of data.proto, split and assembled without I/O.

Relies on: a checksum that can be fed in pieces, and a size that is announced before any data.

Why: Neither side holds a second copy of the body. The sender cuts the pieces from the arrays themselves. The receiver
writes each piece into its place in one buffer, which it allocates when the size is announced and has been checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from xxhash import xxh3_64

from netdfl.core.errors import MalformedMessage, OversizedMessage
from netdfl.core.types import Payload
from netdfl.transport.wire import FrameReader, Header, Limits, varint

_CHECKSUM_BYTES = 8


def split(header: bytes, parts: Sequence[bytes | memoryview], chunk_bytes: int) -> Iterator[bytes]:
    """Cut a message's body, the buffers `parts`, into encoded chunks of about `chunk_bytes` bytes.

    The first chunk also has the message's `header` and announces the size of the body.
    """
    lead = b"".join((b"\x0a", varint(len(header)), header, b"\x10", varint(sum(len(part) for part in parts))))
    pieces: list[bytes | memoryview] = []
    filled = 0
    for part in parts:
        view = memoryview(part)
        while view:
            pieces.append(view[: chunk_bytes - filled])
            filled += len(pieces[-1])
            view = view[len(pieces[-1]) :]
            if filled == chunk_bytes:
                yield b"".join((lead, b"\x1a", varint(filled), *pieces))
                lead, pieces, filled = b"", [], 0
    if filled:
        yield b"".join((lead, b"\x1a", varint(filled), *pieces))


class Assembly:
    """The assembly of a large message from its chunks. Each method raises only `MessageError`s."""

    __slots__ = ("_at", "_body", "_digest", "_first", "_limits", "_total", "header")

    def __init__(self, first: bytes, limits: Limits) -> None:
        """Read the header and the announced size in the chunk `first`; `begin` then checks the size and allocates."""
        header, total, data = _read_chunk(first)
        if header is None or total is None:
            raise MalformedMessage("the first chunk of a message has no header or no size")
        self.header: Header = FrameReader.header(header)
        self._limits = limits
        self._total = total
        self._first = data
        self._body = memoryview(b"")
        self._at = 0
        self._digest = xxh3_64()

    def begin(self) -> None:
        """Allocate the body, if its size is within the limit, and store the data of the first chunk."""
        if self._total > self._limits.max_bytes:
            raise OversizedMessage(f"a message announces {self._total} bytes, the limit is {self._limits.max_bytes}")
        self._body = np.empty(self._total, np.uint8).data
        self._store(self._first)

    def add(self, chunk: bytes) -> None:
        """Store the data of the next chunk."""
        header, total, data = _read_chunk(chunk)
        if header is not None or total is not None:
            raise MalformedMessage(f"a second announcement came after {self._at} bytes of a message")
        self._store(data)

    def finish(self) -> Payload:
        """Return the payload after the last chunk. Its arrays are views of one buffer."""
        if self._at != len(self._body):
            raise MalformedMessage(f"a message of {len(self._body)} bytes ended after {self._at}")
        return FrameReader(self._limits).hashed_body(self._body, self._digest.intdigest())

    def _store(self, data: memoryview) -> None:
        end = self._at + len(data)
        if end > len(self._body) or not data:
            raise MalformedMessage(f"{len(data)} bytes follow byte {self._at} of a message of {len(self._body)}")
        self._body[self._at : end] = data
        hashed = len(self._body) - _CHECKSUM_BYTES - self._at
        self._digest.update(data[: max(hashed, 0)])
        self._at = end


def _read_chunk(chunk: bytes) -> tuple[memoryview | None, int | None, memoryview]:
    """Return a chunk's message header and announced size (None except in the first chunk), and its data.

    These fields must follow each other in this order, with nothing between.
    """
    view = memoryview(chunk)
    header: memoryview | None = None
    total: int | None = None
    at = 0
    if chunk.startswith(b"\x0a", at):
        length, at = FrameReader.varint(view, 1)
        header, at = view[at : at + length], at + length
    if chunk.startswith(b"\x10", at):
        total, at = FrameReader.varint(view, at + 1)
    if not chunk.startswith(b"\x1a", at):
        raise MalformedMessage(f"a chunk of {len(view)} bytes has no data where it should stand, at byte {at}")
    length, at = FrameReader.varint(view, at + 1)
    if length != len(view) - at:
        raise MalformedMessage(f"a chunk announces {length} bytes of data and has {len(view) - at}")
    return header, total, view[at:]
