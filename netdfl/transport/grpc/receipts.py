"""Receipts: a receiver's answers over the stream, and the fates that only this transport gives."""

from __future__ import annotations

from netdfl.core.fates import FateReason
from netdfl.transport.base import Fate, may_be_told
from netdfl.transport.shared_memory.base import BROKEN_CALL, Answer
from netdfl.transport.v1.data_pb2 import Receipt

FULL = "full"
"""The fate in a receipt whose receiver's mailbox is full: offer the message again."""
HELLO_FIRST = Fate.refused(FateReason("hello_first"))
LEFT = "this node has left its process"
"""Why a node that leaves in good order ends its calls; what is under way to it then stays in flight."""


def as_receipt(answer: Answer) -> Receipt:
    """Return the receipt that carries an answer."""
    return Receipt(fate=FULL if answer.fate is None else answer.fate.text, arrived_ns=answer.arrived_ns)


def of_receipt(receipt: Receipt) -> Answer:
    """Return the answer of a receipt, which anybody may have written."""
    if receipt.fate == FULL:
        return Answer(None, receipt.arrived_ns)
    if not may_be_told(receipt.fate, receipt.arrived_ns):
        return Answer(BROKEN_CALL, None)
    return Answer(Fate.read(receipt.fate), receipt.arrived_ns)
