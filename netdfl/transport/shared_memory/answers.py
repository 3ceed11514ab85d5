"""What a receiver answers: receipts, and the word that stands for one in shared memory.

    word  = (arrived_ns + 2^60) << 3 | number of the fate, from 1      (one store: it is there whole or not at all)

What has no word, such as a refusal, is answered over the stream.
"""

from __future__ import annotations

from typing import TypeAlias

from netdfl.core.fates import FateReason
from netdfl.transport.base import MOST_NS, Fate, may_be_told
from netdfl.transport.v1.data_pb2 import Receipt

FULL = "full"
"""How a receipt says that its receiver's mailbox is full."""
HELLO_FIRST = Fate.refused(FateReason("hello_first"))
BROKEN_CALL = Fate.failed(FateReason("broken_call"))
LEFT = "this node has left its process"
"""Why a node that leaves in good order ends its calls; what is under way to it then stays in flight."""

Answer: TypeAlias = tuple[Fate | None, int | None]
"""A fate and when the message arrived. No fate: the mailbox is full. Offer the message again, or, where this is said in
memory, go on waiting."""

_FATES = (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE, Fate.IN_FLIGHT, None)
_NUMBERS: dict[Fate | None, int] = {fate: number for number, fate in enumerate(_FATES, 1)}
_FATE_BITS = 3


def as_receipt(fate: Fate | None, arrived_ns: int) -> Receipt:
    """The receipt that says it."""
    return Receipt(fate=FULL if fate is None else fate.text, arrived_ns=arrived_ns)


def of_receipt(receipt: Receipt) -> Answer:
    """The answer of a receipt, whoever wrote it."""
    if receipt.fate == FULL:
        return None, receipt.arrived_ns
    if not may_be_told(receipt.fate, receipt.arrived_ns):
        return BROKEN_CALL, None
    return Fate.read(receipt.fate), receipt.arrived_ns


def as_word(fate: Fate | None, arrived_ns: int) -> int:
    """The word for a receipt; 0: there is none."""
    number = _NUMBERS.get(fate)
    if number is None or abs(arrived_ns) >= MOST_NS:
        return 0
    return (arrived_ns + MOST_NS) << _FATE_BITS | number


def of_word(word: int) -> Answer:
    """The answer of a word, whoever wrote it."""
    number, arrived_ns = word & (1 << _FATE_BITS) - 1, (word >> _FATE_BITS) - MOST_NS
    if 1 <= number <= len(_FATES):
        return _FATES[number - 1], arrived_ns
    return BROKEN_CALL, None
