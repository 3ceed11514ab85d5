"""The shared memory as a node uses it from a start to its end: the bodies that it lends, and those it has borrowed.

A message's header goes through gRPC as always; its frame refers to the body in shared memory. The body is written once,
whatever the number of neighbors that it goes to. A reader reads it where it lies, as long as any view of it is in use.

The reader's steps on a slot are a straight line. Each step is a load of a word that a message announced, or a store of
a word that only this reader writes:

    reference comes ─▶ load TOKEN ─▶ store BEGUN ─▶ read ─▶ store ANSWER ─▶ ... ─▶ nothing is in use ─▶ store GIVEN_BACK
                          └ not this token, before a renewal, or of another life: refuse, and touch nothing

The reader never stores a word and then loads another one to see whether the lender noticed: a lender can't take back a
body that it has lent. It learns from messages that the reader will not begin (`pool.py`). So processors that let a load
pass an earlier store (x86, ARM) do no harm. ARM may also let a store pass earlier loads: so a memory barrier (`fence`)
comes before the store of `GIVEN_BACK`. A reference is not trusted, as nothing that comes over a wire: its bounds, its
token and the checksum of the body are checked.

Relies on: aligned 64-bit words that are stored and loaded whole, messages that arrive after what was written before
them, and Python freeing what nobody refers to.

Why: 45 MB to four neighbors take 9 ms so, and 60 ms inline (`docs/performance_log.md`). A weak reference to the body
tells when its last view is gone, however long a mixing keeps one.
"""

from __future__ import annotations

import weakref
from functools import partial
from struct import error as StructError
from typing import Any

import numpy as np
from typing_extensions import override

from netdfl.core.errors import MalformedMessage, OversizedMessage
from netdfl.core.types import NodeId, Payload
from netdfl.transport import wire
from netdfl.transport.shared_memory.base import Answer, BufferStore, Lease
from netdfl.transport.shared_memory.memory import (
    ANSWER,
    BEGUN,
    GIVEN_BACK,
    PAGE,
    SLOTS,
    STATE,
    TOKEN,
    UNTOUCHED,
    SharedMemory,
)
from netdfl.transport.shared_memory.pool import REFERENCE, BufferPool

_OVER = -1
"""The mark of a node that has ended: no reference has this mark, so the node can borrow nothing."""


class SharedBuffers(BufferStore):
    """One node's use of a machine's shared memory, from one start of the node to its end."""

    def __init__(self, memory: SharedMemory, node: NodeId, epoch: int) -> None:
        """Register `node` as a reader, and prepare to lend from its part of the memory.

        A node that has restarted (`epoch` counts this) lends nothing, as readers may still read bodies lent before.
        """
        self._memory, self._words, self._node = memory, memory.words, node
        start = memory.starts[node]
        self.pool = BufferPool(memory, start, start if epoch else start + memory.part)
        self._held: dict[int, weakref.ref[np.ndarray[Any, Any]]] = {}  # borrowed bodies, by their slots
        self._renewals: dict[NodeId, int] = {}
        self._mark = memory.enter(node, epoch)

    # lending

    @override
    def lend(self, payload: Payload, nbytes: int, reader: NodeId) -> Lease | None:
        if nbytes < self._memory.least_bytes or reader not in self._memory.starts:
            return None
        buffer = self.pool.needed.get(id(payload))  # a needed payload is kept alive, so that its id is unique
        if buffer is None:
            buffer = self.pool.take(id(payload), nbytes)
            if buffer is None:
                return None
            wire.FrameWriter.write_body(payload, self._body(buffer.offset, nbytes))
        return self.pool.lend(buffer, reader)

    @override
    def renewal(self) -> int:
        return self.pool.token_to_come

    @override
    def renewed(self, reader: NodeId, number: int) -> None:
        self.pool.close_before(reader, number)

    # borrowing

    @override
    def borrow(self, src: NodeId, reference: bytes, limits: wire.Limits) -> memoryview:
        offset, nbytes, token, mark, index, _ = self._checked(src, reference, limits)
        slot = SharedMemory.slot(offset, index)
        lent = mark == self._mark and token >= self._renewals.get(src, 0)
        if not lent or self._words[slot + TOKEN] != token or self._words[slot + STATE] != UNTOUCHED:
            raise MalformedMessage(
                f"node {src} refers to a body at {offset} of shared memory that it does not lend here"
            )
        self._words[slot + STATE] = BEGUN
        body = np.frombuffer(self._body(offset, nbytes), np.uint8)
        self._held[slot] = weakref.ref(body, partial(self._give_back, slot))
        return body.data.toreadonly()

    @override
    def answer(self, reference: bytes, answer: Answer) -> bool:
        offset, _, _, _, index, quiet = REFERENCE.unpack(reference)
        slot, word = SharedMemory.slot(offset, index), answer.word
        if not word or slot not in self._held:
            return False
        self._words[slot + ANSWER] = word
        return bool(quiet)

    @override
    def renew(self, src: NodeId, number: int) -> bool:
        newer = number > self._renewals.get(src, 0)
        if newer:
            self._renewals[src] = number
        return newer

    def _checked(self, src: NodeId, reference: bytes, limits: wire.Limits) -> tuple[int, int, int, int, int, int]:
        try:
            offset, nbytes, token, mark, index, quiet = REFERENCE.unpack(reference)
        except StructError as error:
            raise MalformedMessage(f"node {src} refers to a body by {len(reference)} bytes: {error}") from error
        if nbytes > limits.max_bytes:
            raise OversizedMessage(f"a body of {nbytes} bytes is referred to, the limit is {limits.max_bytes}")
        first = self._memory.starts.get(src, 0)
        end = first + self._memory.part if src in self._memory.starts else first
        inside = first <= offset and offset + PAGE + nbytes <= end
        if not inside or offset % PAGE or index >= SLOTS or quiet > 1 or not token:
            raise MalformedMessage(
                f"node {src} refers to {nbytes} bytes at {offset} of the shared memory, slot {index}; "
                f"its part goes from {first} to {end}"
            )
        return offset, nbytes, token, mark, index, quiet

    def _give_back(self, slot: int, body: object = None) -> None:
        """Give the body that is borrowed by `slot` back to its lender, because no view of it is in use.

        Python calls this as the callback of a weak reference to the body; `close` calls it for bodies still borrowed.
        """
        if self._held.pop(slot, None) is not None:
            SharedMemory.fence()
            self._words[slot + STATE] = GIVEN_BACK

    @override
    def close(self) -> None:
        for slot in list(self._held):
            self._give_back(slot)
        self._memory.leave(self._node, self._mark)
        self._mark = _OVER

    def _body(self, offset: int, nbytes: int) -> memoryview:
        return self._memory.bytes[offset + PAGE : offset + PAGE + nbytes]
