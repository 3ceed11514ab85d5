"""What a receiver answers: receipts, and the word that stands for one in shared memory.

    word  = (arrived_ns + 2^60) << 3 | number of the fate, from 1      (one store: it is there whole or not at all)

What has no word, such as a refusal, is answered over the stream.
"""

from __future__ import annotations

from netdfl.transport.base import MOST_NS, Fate

FULL = "full"
"""No fate: the mailbox is full. Offer the message again, or, where this is said in memory, go on waiting."""
HELLO_FIRST = "refused:hello_first"
BROKEN_CALL = "failed:broken_call"
LEFT = "this node has left its process"
"""Why a node that leaves in good order ends its calls; what is under way to it then stays in flight."""

_FATES = (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE, Fate.IN_FLIGHT, FULL)
_NUMBERS: dict[str, int] = {fate: number for number, fate in enumerate(_FATES, 1)}
_FATE_BITS = 3


def as_word(fate: str, arrived_ns: int) -> int:
    """The word for a receipt; 0: there is none."""
    number = _NUMBERS.get(fate)
    if number is None or abs(arrived_ns) >= MOST_NS:
        return 0
    return (arrived_ns + MOST_NS) << _FATE_BITS | number


def of_word(word: int) -> tuple[str, int | None]:
    """The fate, or `FULL`, and the time that a word says, whoever wrote it."""
    number, arrived_ns = word & (1 << _FATE_BITS) - 1, (word >> _FATE_BITS) - MOST_NS
    if 1 <= number <= len(_FATES):
        return str(_FATES[number - 1]), arrived_ns
    return BROKEN_CALL, None
