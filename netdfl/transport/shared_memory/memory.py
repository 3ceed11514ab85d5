"""The layout of the memory that the processes of a machine share.

The memory is mapped before the processes of a run are forked, and has no name. So no other process can open it, and it
ends with the last process of the run, however the processes end. Each node writes its buffers to a part of its own.
Behind the parts, each node has a word that names its present life (by its number of restarts) and the process of that
life.

    memory   = a part a node | a presence word a node
    part     = buffers, each a page of lease slots and then the body
    slot     = token | state | answer          three words, a slot for each reader that the body is lent to
    presence = life of the node << 32 | process id          (0: no life is here)

Relies on: an anonymous map that forked processes inherit, and process ids that are not given again within a run.

Why: Named memory outlives a killed run and must be cleared away; this can't. A presence word names a life and its
process, so that a lender gets its buffers back from a reader that died at any step, without asking a clock.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Sequence

from netdfl.core.types import NodeId

PAGE = 4096
WORD = 8
SLOT_WORDS = 3
SLOTS = PAGE // (WORD * SLOT_WORDS)
"""The most readers to which a message body can be lent at a time: each needs a slot, three words of memory."""
TOKEN, STATE, ANSWER = range(SLOT_WORDS)
"""The three words of a slot, through which a lender and one reader of its body agree.

The lender writes the token, and the reader to which this token was sent writes the state and the answer."""
UNTOUCHED, BEGUN, GIVEN_BACK = range(3)
"""The states of a loan of a body to one reader. Only in `BEGUN` may the reader be reading the body."""
_PROCESS_BITS = 32


class SharedMemory:
    """The memory that a run's processes on one machine share, made before they are forked."""

    def __init__(self, nodes: Sequence[NodeId], nbytes: int, least_bytes: int) -> None:
        """Map `nbytes` of memory for each of `nodes`, for message bodies of `least_bytes` or more. Raises OSError.

        Pages take no memory until they are written to. A body below `least_bytes` is cheaper inline than in a buffer.
        """
        self.part = -(-nbytes // PAGE) * PAGE
        self.least_bytes = least_bytes
        self.starts = {node: self.part * number for number, node in enumerate(nodes)}
        presence = self.part * len(nodes)
        self._presence = {node: presence // WORD + number for number, node in enumerate(nodes)}
        self._map = mmap.mmap(-1, presence + -(-WORD * len(nodes) // PAGE) * PAGE)
        self.bytes = memoryview(self._map)
        self.words = self.bytes.cast("Q")

    @staticmethod
    def slot(offset: int, index: int) -> int:
        """Return where slot `index` of the buffer at byte `offset` begins, as an index of 64-bit words.

        A slot is the three words for one reader to which the buffer is lent.
        """
        return offset // WORD + SLOT_WORDS * index

    def enter(self, node: NodeId, incarnation: int) -> int:
        """Register `node`, restarted `incarnation` times, as running in this process; return a mark for it.

        The mark identifies this start of the node. Processes from its earlier starts can borrow no bodies any more.
        """
        mark = (incarnation + 1) << _PROCESS_BITS | os.getpid()
        self.words[self._presence[node]] = mark
        return mark

    def leave(self, node: NodeId, mark: int) -> None:
        """Register that the start of `node` with this `mark` has ended, and so reads no borrowed body any more.

        Do nothing if `node` has restarted since.
        """
        self.fence()
        if self.words[self._presence[node]] == mark:
            self.words[self._presence[node]] = 0

    def mark(self, node: NodeId) -> int:
        """Return the mark (restarts and process id) of `node` as it runs now; 0 if it does not run."""
        return self.words[self._presence[node]] if node in self._presence else 0

    def is_gone(self, node: NodeId, mark: int) -> bool:
        """Return whether the start of `node` with `mark` no longer reads: it ended, or a later start replaced it."""
        return self.words[self._presence[node]] != mark or not self._lives(mark & (1 << _PROCESS_BITS) - 1)

    @staticmethod
    def _lives(process: int) -> bool:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True

    @staticmethod
    def fence() -> None:
        """Act as a memory barrier: make all earlier memory accesses of this thread visible before all later ones.

        Python has no memory barrier, so a lock is released and taken again. On x86 these are two locked instructions
        (sem_post, sem_wait); on ARM a store-release and then a load-acquire, which no other access passes. Each call
        makes a lock of its own, because bodies are given back in any thread.
        """
        turn = threading.Lock()
        turn.acquire()
        turn.release()
        turn.acquire()
