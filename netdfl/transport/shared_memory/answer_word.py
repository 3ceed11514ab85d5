"""The answer word: a receiver's answer as one 64-bit word of shared memory.

    word  = (arrived_ns + 2^60) << 3 | number of the fate, from 1      (0: no answer)

One store writes the whole answer, so a sender never reads half of one. The most frequent fates have a number. Any other
answer, such as a refusal with its reason, goes over the stream.
"""

from __future__ import annotations

from netdfl.transport.base import MOST_NS, Fate
from netdfl.transport.shared_memory.base import BROKEN_CALL, Answer

_FATES = (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE, Fate.IN_FLIGHT, None)
_NUMBERS: dict[Fate | None, int] = {fate: number for number, fate in enumerate(_FATES, 1)}
_FATE_BITS = 3


def as_word(answer: Answer) -> int:
    """Return the word of an answer; 0 if it has none."""
    fate, arrived_ns = answer
    number = _NUMBERS.get(fate)
    if number is None or arrived_ns is None or abs(arrived_ns) >= MOST_NS:
        return 0
    return (arrived_ns + MOST_NS) << _FATE_BITS | number


def of_word(word: int) -> Answer:
    """Return the answer in a word. The word is not trusted: another process wrote it."""
    number, arrived_ns = word & (1 << _FATE_BITS) - 1, (word >> _FATE_BITS) - MOST_NS
    if 1 <= number <= len(_FATES):
        return Answer(_FATES[number - 1], arrived_ns)
    return Answer(BROKEN_CALL, None)
