"""The interface of shared memory: what a transport lends to a reader, and how it learns that the reader is through.

A sender *lends* the body of a message to one reader and sends a reference in its place; the reader *borrows* the body
where it lies, and may *answer* there. Transports know these two protocols and nothing of words, slots or processes;
`buffers.py` implements them.

    lend ──▶ lease ──reference──▶ told ──poll──▶ answered ──release──▶ free once the reader has given it back
                                    └── the stream broke: the outcome is open until the reader accepts a *renewal*
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from netdfl.core.fates import Fate, FateReason
from netdfl.core.types import NodeId, Payload
from netdfl.transport.wire import Limits

BROKEN_CALL = Fate.failed(FateReason("broken_call"))


class Answer(NamedTuple):
    """The fate of a message and when it arrived. No fate: the receiver's mailbox is full."""

    fate: Fate | None
    arrived_ns: int | None


class Lease(Protocol):
    """The sender's side of one body that is lent for one message to one reader."""

    def reference(self, quiet: bool) -> bytes | None:
        """Return where the body lies, to be sent in place of the body; None: send it inline. Call it once.

        `quiet`: the reader answers in memory, which wakes nobody, as far as its answer has a word.
        """

    def poll(self) -> Answer | None:
        """Return an answer in memory that was not returned before. Without a fate the message waits for room."""

    def answered(self) -> None:
        """Note that the answer came another way: the reader has begun by now, or never will."""

    def release(self) -> None:
        """End the sender's need of the body. The reader may still have it."""


class BufferStore(Protocol):
    """One life of a node at the memory of its machine."""

    def lend(self, payload: Payload, nbytes: int, reader: NodeId) -> Lease | None:
        """Lend a payload's body of `nbytes`, which is written once for all readers; None: send it inline."""

    def renewal(self) -> int:
        """Return the number of a renewal: a reader that accepts it begins nothing that was lent before."""

    def renewed(self, reader: NodeId, number: int) -> None:
        """Note that `reader` has accepted a renewal."""

    def borrow(self, src: NodeId, reference: bytes, limits: Limits) -> memoryview:
        """Return the body that `src` refers to, and hold it until nothing of it is in use. Raises MessageErrors."""

    def answer(self, reference: bytes, answer: Answer) -> bool:
        """Answer in memory while the body is held; return whether the sender looks there.

        It looks at every answer when a stream has ended, at quiet ones always.
        """

    def renew(self, src: NodeId, number: int) -> bool:
        """Accept a renewal of `src`; return whether it is newer than the last one."""

    def close(self) -> None:
        """Give everything back: this life is over and reads no more."""
