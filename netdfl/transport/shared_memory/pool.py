"""The lender's side of shared memory: the buffers of one node, and which readers may still read each of them.

A buffer is free when this node needs it no more and no reader to which it was lent can read it. A lease decides the
latter by loads of its slot and by messages, never by a clock:

    UNTOUCHED ──the reader begins──▶ BEGUN ──it has finished──▶ GIVEN_BACK    the state, which only the reader writes

    over =  GIVEN_BACK
         or UNTOUCHED, and a message of the reader says that it will not begin:
            its answer over the stream, or its acceptance of a renewal that is later than the lease
         or the reader's life is over: its presence word is another, or its process is dead

A reader that is stopped keeps its buffers; a body that has no room beside them goes inline. No rule here relies on the
order of a store and a later load of another word. The lender loads the word for which it waits and acts only on that
word. Whatever it writes for a reader (body, slot) it writes before it sends the message that makes the reader look.

Relies on: the reader's single stores in the order of the picture, and messages that come after what was stored before
them.

Why: A lender that could take a loan back would have to see whether the reader has begun, a store followed by a load of
another word, which neither x86 nor ARM orders without a memory barrier. So nothing is taken back, and no period of
grace is needed.
"""

from __future__ import annotations

import secrets
from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct

from typing_extensions import override

from netdfl.core.types import NodeId
from netdfl.transport.shared_memory.base import Answer, Lease
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
)

REFERENCE = Struct("<QQQQHB")
"""The encoding of a reference to a lent body.

Its fields: offset and length of the body, token of the loan, mark of the reader (restarts and process id), slot, and
whether the reader should answer in shared memory."""


@dataclass(slots=True, eq=False)
class Buffer:
    """A buffer in shared memory: at `offset` a page with a slot for each reader, then a body of `nbytes`.

    The pool finds a buffer by `key`, which stands for its payload, while the sender needs any of its `leases` (loans);
    `num_needed` counts these.
    """

    key: int
    offset: int
    nbytes: int
    num_needed: int = 0
    leases: list[ReaderLease] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset just after this buffer, where the next one may begin."""
        return self.offset + PAGE + -(-self.nbytes // PAGE) * PAGE

    @property
    def is_free(self) -> bool:
        """Whether the sender does not need the buffer and no reader can read it."""
        return not self.num_needed and all(lease.is_over for lease in self.leases)


class ReaderLease(Lease):
    """The loan of the body in a buffer to `reader`, for one message; it occupies a slot (three words) of the buffer."""

    __slots__ = ("_buffer", "_closed", "_mark", "_pool", "_seen", "_slot", "reader", "token")

    def __init__(self, pool: BufferPool, buffer: Buffer, reader: NodeId) -> None:
        """Occupy the next free slot of `buffer` for `reader`; the loan has no token (0) until `reference` is called."""
        self._pool, self._buffer, self.reader = pool, buffer, reader
        self._slot = SharedMemory.slot(buffer.offset, len(buffer.leases))
        self._mark = self._seen = self.token = 0
        self._closed = False
        buffer.leases.append(self)
        buffer.num_needed += 1

    @override
    def reference(self, quiet: bool) -> bytes | None:
        """Return the reference to the body for the reader; None if the reader does not run: send the body in the frame.

        With `quiet`, the reader should answer in shared memory.
        """
        words, buffer = self._pool.memory.words, self._buffer
        self._mark = self._pool.memory.mark(self.reader)
        if not self._mark:
            return None
        self.token = self._pool.next_token()
        words[self._slot + STATE] = words[self._slot + ANSWER] = 0
        words[self._slot + TOKEN] = self.token
        index = (self._slot - SharedMemory.slot(buffer.offset, 0)) // SLOT_WORDS
        return REFERENCE.pack(buffer.offset, buffer.nbytes, self.token, self._mark, index, quiet)

    @override
    def poll(self) -> Answer | None:
        word = self._pool.memory.words[self._slot + ANSWER] if self.token else 0
        if word == self._seen:
            return None
        self._seen = word
        return Answer.of_word(word)

    @override
    def answered(self) -> None:
        self._closed = True

    @override
    def release(self) -> None:
        self._buffer.num_needed -= 1
        if not self._buffer.num_needed:
            del self._pool.needed[self._buffer.key]

    @property
    def is_over(self) -> bool:
        """Whether the loan is over: the reader does not read the body now and never will."""
        if not self.token:
            return True
        memory = self._pool.memory
        state = memory.words[self._slot + STATE]
        return state == GIVEN_BACK or (self._closed and state == UNTOUCHED) or memory.is_gone(self.reader, self._mark)


_offset = attrgetter("offset")


class BufferPool:
    """The shared-memory buffers of one node.

    A new buffer lies in the first free stretch that is long enough, because pages used before cost less than new ones.
    """

    def __init__(self, memory: SharedMemory, first: int, end: int) -> None:
        """Place buffers between the byte offsets `first` and `end` of `memory`, both multiples of the page size."""
        self.memory, self._first, self._end = memory, first, end
        self.buffers: list[Buffer] = []
        self.needed: dict[int, Buffer] = {}
        self._token = secrets.randbits(62)

    @property
    def token_to_come(self) -> int:
        """The number (token) that will identify the next loan of a body; earlier loans have smaller numbers."""
        return self._token + 1

    def next_token(self) -> int:
        """Return a token (number) for a new loan of a body, larger than all earlier tokens of this pool.

        The first token is random, so that another start of the node practically never gives the same ones.
        """
        self._token += 1
        return self._token

    def take(self, key: int, nbytes: int) -> Buffer | None:
        """Return a new buffer for a body of `nbytes`; None if the node's part of the memory has no free space for it.

        `needed` has it by `key`, until no loan of the body is needed.
        """
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
        """Lend the body in a buffer to one more reader; None if the buffer has as many readers as it can."""
        return ReaderLease(self, buffer, reader) if len(buffer.leases) < SLOTS else None

    def close_before(self, reader: NodeId, token: int) -> None:
        """Note that `reader` will not begin to read any body that was lent to it with a token smaller than `token`."""
        for buffer in self.buffers:
            for lease in buffer.leases:
                if lease.reader == reader and 0 < lease.token < token:
                    lease.answered()
