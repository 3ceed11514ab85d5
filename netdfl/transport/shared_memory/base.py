"""The interface of shared memory: how a sender lends the body of a message, and learns that the reader has finished.

A sender *lends* the body of a message to one reader, and sends a reference in place of the body. The reader *borrows*
the body where it lies, and may write its *answer* there. Transports know these two protocols and nothing of words,
slots or processes; `buffers.py` implements them.

    lend ──▶ lease ──reference sent──▶ lent ──poll──▶ answered ──release──▶ free once the reader has given it back
                                         └── the stream broke: the outcome is open until the reader accepts a *renewal*

A renewal is a number in a hello. A reader that accepts it will not begin to read any body that was lent before.

Relies on: messages, by which each side learns what the other has done: a write to memory wakes no process.

Why: Transports do not know words or slots. So the protocol in memory can be walked as a small model, with all
interleavings of both sides, and be changed without them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from netdfl.core.fates import Fate, FateReason
from netdfl.core.types import NodeId, Payload
from netdfl.transport.base import MOST_NS
from netdfl.transport.wire import Limits

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


class Lease(Protocol):
    """The sender's loan of a message body in shared memory to one reader, for one message."""

    __slots__ = ()

    def reference(self, quiet: bool) -> bytes | None:
        """Return the reference to send in place of the lent body; None: send the body in the frame. Call this once.

        With `quiet`, the reader writes its answer to shared memory, which wakes no process, if the answer fits into a
        word.
        """

    def poll(self) -> Answer | None:
        """Return the reader's answer to the message if shared memory has a new one, else None.

        An answer tells what became of the message; without a fate, it still waits for room in the reader's mailbox.
        """

    def answered(self) -> None:
        """Note that the reader will not begin to read the lent body any more.

        It has answered by gRPC, or it has accepted a renewal, which ends earlier loans.
        """

    def release(self) -> None:
        """Note that the sender no longer needs the lent body; the reader may still read it."""


class BufferStore(Protocol):
    """One node's access to the shared memory of a machine, to lend and to read, until the node crashes or ends."""

    def lend(self, payload: Payload, nbytes: int, reader: NodeId) -> Lease | None:
        """Lend the body of `payload` to `reader`; None: send it in the frame.

        It is `nbytes` long, and written to shared memory once for all readers.
        """

    def renewal(self) -> int:
        """Return a number for the next hello message, which asks the peer to end this node's earlier loans of bodies.

        A reader that accepts it will not begin to read any body that was lent before.
        """

    def renewed(self, reader: NodeId, number: int) -> None:
        """Note that `reader` accepted a renewal of this node, and so will not begin to read any body lent to it before.

        `number` is the number that `renewal` gave.
        """

    def borrow(self, src: NodeId, reference: bytes, limits: Limits) -> memoryview:
        """Return the body to which a reference from `src` points; it stays borrowed while any view of it is in use.

        Raises MessageErrors if the reference is not valid within `limits`.
        """

    def answer(self, reference: bytes, answer: Answer) -> bool:
        """Write the answer to a message with a borrowed body into shared memory; return whether the sender polls it.

        The sender always looks there for answers that it asked for quietly, and for all answers after a stream has
        ended.
        """

    def renew(self, src: NodeId, number: int) -> bool:
        """Accept renewal `number` of sender `src`, which ends its earlier loans; return whether the number is new."""

    def close(self) -> None:
        """Give all borrowed bodies back, because this node's process ends or the node restarts."""
