"""The lender's side: the buffers of one node, and which readers may still read each.

A buffer is free again when nothing here needs it and none of the readers it was lent to can read it any more. A lease
learns the latter from loads of its slot and from messages; never from a clock:

    UNTOUCHED ──the reader begins──▶ BEGUN ──it has done──▶ GIVEN_BACK        the state, which the reader alone writes

    over =  GIVEN_BACK
         or UNTOUCHED, and by a message of the reader it will not begin:
            its answer over the stream, or its acceptance of a renewal that is later than the lease
         or the reader's life is over: its presence word is another, or its process is dead

A reader that is stopped keeps its buffers; what has no room beside them goes inline. No rule here needs a store to be
seen before a load of another word: the lender loads what it waits for and acts on that alone, and what it writes for a
reader (body, slot) goes ahead of a message that the reader has to have read before it looks.
"""

from __future__ import annotations

import secrets
from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct

from netdfl.core.types import NodeId
from netdfl.transport.shared_memory.answer_word import of_word
from netdfl.transport.shared_memory.base import Answer
from netdfl.transport.shared_memory.memory import (
    ANSWER,
    GIVEN_BACK,
    PAGE,
    SLOT_WORDS,
    SLOTS,
    STATE,
    TOKEN,
    UNTOUCHED,
    SharedMemory,
    slot_at,
)

REFERENCE = Struct("<QQQQHB")
"""Offset and length of the body, token, mark of the reader's life, slot, and whether the answer may be quiet."""


@dataclass(slots=True, eq=False)
class Buffer:
    """Some pages at `offset`: one of lease slots, and a body of `nbytes`.

    `key` finds the buffer as long as any of its leases is needed, and `num_needed` counts these.
    """

    key: int
    offset: int
    nbytes: int
    num_needed: int = 0
    leases: list[ReaderLease] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Where the next buffer may begin."""
        return self.offset + PAGE + -(-self.nbytes // PAGE) * PAGE

    @property
    def is_free(self) -> bool:
        """Whether nothing needs the buffer, and nobody reads it."""
        return not self.num_needed and all(lease.is_over for lease in self.leases)


class ReaderLease:
    """One slot of a buffer: that the body is lent to `reader` for one message. A `Lease`."""

    __slots__ = ("_buffer", "_closed", "_mark", "_pool", "_seen", "_slot", "reader", "token")

    def __init__(self, pool: BufferPool, buffer: Buffer, reader: NodeId) -> None:
        """Take the next slot of `buffer`; `token` is 0 until the reader may be told."""
        self._pool, self._buffer, self.reader = pool, buffer, reader
        self._slot = slot_at(buffer.offset, len(buffer.leases))
        self._mark = self._seen = self.token = 0
        self._closed = False
        buffer.leases.append(self)
        buffer.num_needed += 1

    def reference(self, quiet: bool) -> bytes | None:
        """Return where the body lies, for the present life of the reader; None: there is none, send it inline."""
        words, buffer = self._pool.memory.words, self._buffer
        self._mark = self._pool.memory.mark(self.reader)
        if not self._mark:
            return None
        self.token = self._pool.next_token()
        words[self._slot + STATE] = words[self._slot + ANSWER] = 0
        words[self._slot + TOKEN] = self.token
        index = (self._slot - slot_at(buffer.offset, 0)) // SLOT_WORDS
        return REFERENCE.pack(buffer.offset, buffer.nbytes, self.token, self._mark, index, quiet)

    def poll(self) -> Answer | None:
        """Return an answer in memory that was not returned before. Without a fate the message waits for room."""
        word = self._pool.memory.words[self._slot + ANSWER] if self.token else 0
        if word == self._seen:
            return None
        self._seen = word
        return of_word(word)

    def answered(self) -> None:
        """Note that the answer came another way: the reader has begun by now, or never will."""
        self._closed = True

    def release(self) -> None:
        """End the sender's need of the body. The reader may still have it."""
        self._buffer.num_needed -= 1
        if not self._buffer.num_needed:
            del self._pool.needed[self._buffer.key]

    @property
    def is_over(self) -> bool:
        """Whether the reader does not read the body, and never will."""
        if not self.token:
            return True
        memory = self._pool.memory
        state = memory.words[self._slot + STATE]
        return state == GIVEN_BACK or (self._closed and state == UNTOUCHED) or memory.is_gone(self.reader, self._mark)


_offset = attrgetter("offset")


class BufferPool:
    """The buffers of one node, first fit: pages that were written before cost less than fresh ones."""

    def __init__(self, memory: SharedMemory, first: int, end: int) -> None:
        """Hand out buffers from `first` up to `end`, both at a page's border."""
        self.memory, self._first, self._end = memory, first, end
        self.buffers: list[Buffer] = []
        self.needed: dict[int, Buffer] = {}
        self._token = secrets.randbits(62)

    @property
    def token_to_come(self) -> int:
        """The token of the next lease that is told to a reader; all before it are smaller."""
        return self._token + 1

    def next_token(self) -> int:
        """Return a token greater than all before it in this life, and by all odds none of another life."""
        self._token += 1
        return self._token

    def take(self, key: int, nbytes: int) -> Buffer | None:
        """Return a buffer for a body of `nbytes`, to be found by `key` while it is needed; None: there is no room."""
        self.buffers = [buffer for buffer in self.buffers if not buffer.is_free]
        buffer = Buffer(key, self._first, nbytes)
        for other in self.buffers:
            if buffer.end <= other.offset:
                break
            buffer = Buffer(key, other.end, nbytes)
        if buffer.end > self._end:
            return None
        insort(self.buffers, buffer, key=_offset)
        self.needed[key] = buffer
        return buffer

    def lend(self, buffer: Buffer, reader: NodeId) -> ReaderLease | None:
        """Lend a buffer to one reader more; None: it has no slot left."""
        return ReaderLease(self, buffer, reader) if len(buffer.leases) < SLOTS else None

    def close_before(self, reader: NodeId, token: int) -> None:
        """Note that `reader` begins nothing that it was told before `token`."""
        for buffer in self.buffers:
            for lease in buffer.leases:
                if lease.reader == reader and 0 < lease.token < token:
                    lease.answered()
