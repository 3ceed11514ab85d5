"""Receipts: the answers of a receiver over a stream, and the fates that only the gRPC transport gives.

Relies on: `is_plausible`: another process wrote the text, which may be of another version.

Why: A receiver answers by a receipt (protobuf) or by a 64-bit word in shared memory; both become an `Answer` before
anybody acts on them. A full mailbox is a receipt and no error, because an error would end the stream.
"""

from __future__ import annotations

from netdfl.core.fates import FateReason
from netdfl.transport.base import Fate, is_plausible
from netdfl.transport.shared_memory.base import BROKEN_CALL, Answer
from netdfl.transport.v1.data_pb2 import Receipt

FULL = "full"
"""The fate in the receipt of a receiver whose mailbox is full: the sender must offer the message again."""
HELLO_FIRST = Fate.refused(FateReason("hello_first"))
LEFT = "this node has left its process"
"""The reason given for calls that a leaving node ends. Messages under way to this node get the fate `in_flight`."""


def as_receipt(answer: Answer) -> Receipt:
    """Return the protobuf receipt for a receiver's answer to a message: fate and arrival time, or a full mailbox."""
    return Receipt(fate=FULL if answer.fate is None else answer.fate.text, arrived_ns=answer.arrived_ns)


def of_receipt(receipt: Receipt) -> Answer:
    """Return the receiver's answer to a message (fate and arrival time) in a protobuf receipt, its values checked."""
    if receipt.fate == FULL:
        return Answer(None, receipt.arrived_ns)
    if not is_plausible(receipt.fate, receipt.arrived_ns):
        return Answer(BROKEN_CALL, None)
    return Answer(Fate.read(receipt.fate), receipt.arrived_ns)
