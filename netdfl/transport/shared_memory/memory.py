"""The memory that the processes of a machine share, and its words.

It is mapped before the processes of a run are forked and has no name: nobody else can open it, and it ends with the
last of them, however they end. Each node writes buffers to a part of its own; behind the parts stands a word for each
node that says which process its present life is in.

    memory   = a part a node | a presence word a node
    part     = buffers, each a page of lease slots and then the body
    slot     = token | state | answer          three words, a slot for each reader that the body is lent to
    presence = life of the node << 32 | process id          (0: no life is here)
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
"""How many readers a body can be lent to."""
TOKEN, STATE, ANSWER = range(SLOT_WORDS)
"""The words of a slot: the lender writes the first, the reader of that token the others."""
UNTOUCHED, BEGUN, GIVEN_BACK = range(3)
"""The states of a slot. `UNTOUCHED` and `GIVEN_BACK`: the reader does not read now."""
_PROCESS_BITS = 32


class SharedMemory:
    """The memory of a run's processes on one machine; make it before they are forked."""

    def __init__(self, nodes: Sequence[NodeId], nbytes: int, least_bytes: int) -> None:
        """Map `nbytes` for each of `nodes`, for bodies from `least_bytes` on. Raises OSError where it can't be.

        Only what is written to takes memory. A small body goes inline at less cost than a buffer has.
        """
        self.part = -(-nbytes // PAGE) * PAGE
        self.least_bytes = least_bytes
        self.starts = {node: self.part * number for number, node in enumerate(nodes)}
        presence = self.part * len(nodes)
        self._presence = {node: presence // WORD + number for number, node in enumerate(nodes)}
        self._map = mmap.mmap(-1, presence + -(-WORD * len(nodes) // PAGE) * PAGE)
        self.bytes = memoryview(self._map)
        self.words = self.bytes.cast("Q")

    def enter(self, node: NodeId, incarnation: int) -> int:
        """Begin a life of `node` in this process; return its mark. Nothing may be lent to it before."""
        mark = (incarnation + 1) << _PROCESS_BITS | os.getpid()
        self.words[self._presence[node]] = mark
        return mark

    def leave(self, node: NodeId, mark: int) -> None:
        """End the life that has `mark`, if it is still the present one: whatever it held is free."""
        fence()
        if self.words[self._presence[node]] == mark:
            self.words[self._presence[node]] = 0

    def mark(self, node: NodeId) -> int:
        """Return the mark of the present life of `node`; 0: there is none."""
        return self.words[self._presence[node]] if node in self._presence else 0

    def is_gone(self, node: NodeId, mark: int) -> bool:
        """Whether the life of `node` that has `mark` reads no more: another one is here, or its process is dead."""
        return self.words[self._presence[node]] != mark or not _lives(mark & (1 << _PROCESS_BITS) - 1)


def slot_at(offset: int, index: int) -> int:
    """Return the word at which a slot of the buffer at `offset` begins."""
    return offset // WORD + SLOT_WORDS * index


def fence() -> None:
    """Have whatever this thread did before be seen before whatever it does next.

    A lock is released and taken again: on x86 two locked instructions (sem_post, sem_wait), on ARM a store-release and
    then a load-acquire, which no other access passes. The lock is this call's own: bodies are given back in any thread.
    """
    turn = threading.Lock()
    turn.acquire()
    turn.release()
    turn.acquire()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
