"""The interface of shared memory: how a sender lends the body of a message, and learns that the reader has finished.

A sender *lends* the body of a message to one reader, and sends a reference in place of the body. The reader *borrows*
the body where it lies, and may write its *answer* there. Transports lend and borrow by `SharedBuffers` (`buffers.py`),
follow a loan by its `ReaderLease` (`pool.py`), and know nothing of words, slots or processes.

    lend ──▶ lease ──reference sent──▶ lent ──poll──▶ answered ──release──▶ free once the reader has given it back
                                         └── the stream broke: the outcome is open until the reader accepts a *renewal*

A renewal is a number in a hello. A reader that accepts it will not begin to read any body that was lent before.

Relies on: messages, by which each side learns what the other has done: memory alone wakes nobody.

Why: Transports do not know words or slots. So the protocol in memory can be walked as a small model, with all
interleavings of both sides, and be changed without them.
"""

from __future__ import annotations

from typing import NamedTuple

from netdfl.core.fates import Fate, FateReason
from netdfl.transport.base import MOST_NS

BROKEN_CALL = Fate.failed(FateReason("broken_call"))
_FATES = (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE, Fate.IN_FLIGHT, None)
_NUMBERS: dict[Fate | None, int] = {fate: number for number, fate in enumerate(_FATES, 1)}
_FATE_BITS = 3


class Answer(NamedTuple):
    """A receiver's answer to a message: its fate and arrival time; without a fate, the mailbox is full.

    An answer lies in memory as one 64-bit word, so that one store writes all of it and a sender never reads half of
    one. The most frequent fates have a number. Any other answer, such as a refusal with its reason, has no word and
    goes over the stream.

        word  = (arrived_ns + 2^60) << 3 | number of the fate, from 1      (0: no answer)
    """

    fate: Fate | None
    arrived_ns: int | None

    @property
    def word(self) -> int:
        """The answer as a 64-bit word; 0 if it can't be written as one."""
        fate, arrived_ns = self
        number = _NUMBERS.get(fate)
        if number is None or arrived_ns is None or abs(arrived_ns) >= MOST_NS:
            return 0
        return (arrived_ns + MOST_NS) << _FATE_BITS | number

    @classmethod
    def of_word(cls, word: int) -> Answer:
        """Return the answer in a word, checked because another process wrote it."""
        number, arrived_ns = word & (1 << _FATE_BITS) - 1, (word >> _FATE_BITS) - MOST_NS
        if 1 <= number <= len(_FATES):
            return cls(_FATES[number - 1], arrived_ns)
        return cls(BROKEN_CALL, None)
