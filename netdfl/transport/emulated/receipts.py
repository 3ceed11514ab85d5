"""What became of the messages that a node sent over emulated links.

The carrier is the first to say: its receiver holds a message, or the message has ended. A message that is
held was taken: its call ends at once, and its fate comes back later in a small report. Reports are no
messages of the fleet: they have no row and cost no emulated bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netdfl.core.errors import MalformedMessage
from netdfl.core.fates import FateKind, FateReason
from netdfl.core.outcome import Outcome, outcome_of
from netdfl.core.types import Edge, Kind, Message, MessageId, Multicast, NodeId, Payload
from netdfl.transport.base import Fate, Ledger, may_be_told

REPORT = b""
"""The link header of a report."""


@dataclass(slots=True, eq=False)
class SentMessage:
    """A message of this node that has not ended. `there`: its receiver holds it."""

    message: Message
    nbytes: int
    sent_ns: int
    there: bool = False


class Receipts:
    """What the carrier took and what has not ended of it.

    The ledger of the carrier beneath: its news are news of the way, not rows.
    """

    def __init__(self, ledger: Ledger, epoch: int) -> None:
        """Settle in `ledger`; `epoch` keeps the serials of a node's lives apart."""
        self._ledger = ledger
        self._serial = epoch << 40
        self._open: dict[int, SentMessage] = {}
        self._serials: dict[tuple[NodeId, MessageId], list[int]] = {}

    def add(self, sent: SentMessage) -> int:
        """Expect news of a message that the carrier takes now; return the number that its report will name."""
        self._serial += 1
        self._open[self._serial] = sent
        self._serials.setdefault((sent.message.dst, sent.message.id), []).append(self._serial)
        return self._serial

    def settle(self, sent: SentMessage, arrived_ns: int | None, fate: Fate) -> None:
        """Write the row of a message that has ended."""
        outcome = outcome_of(sent.message, sent.nbytes, sent.sent_ns, arrived_ns, fate)
        self._ledger.settled(outcome, (sent.message.payload,))

    def settle_all(self) -> None:
        """Settle what has not ended as `in_flight`."""
        for serial in list(self._open):
            self._end(serial, None, Fate.IN_FLIGHT)

    def give_up(self, node: NodeId) -> None:
        """Settle what `node` holds as `failed:gone`."""
        for serial, sent in list(self._open.items()):
            if sent.there and sent.message.dst == node:
                self._end(serial, None, Fate.GONE)

    def take_report(self, message: Message) -> None:
        """Settle what a report names, as far as it was sent to the node that says it. Raises MalformedMessage."""
        match message.payload.meta.get("fates"):
            case list() as told:
                for entry in told:
                    match entry:
                        case [int() as serial, str() as fate, (int() | None) as at_ns] if may_be_told(fate, at_ns):
                            sent = self._open.get(serial)
                            if sent is not None and sent.message.dst == message.src:
                                self._end(serial, at_ns, Fate.read(fate))
                        case _:
                            raise MalformedMessage(f"a report of node {message.src} has the entry {str(entry)[:80]}")
            case _:
                raise MalformedMessage(f"a report of node {message.src} has no list of fates")

    def _end(self, serial: int, arrived_ns: int | None, fate: Fate) -> None:
        sent = self._open.pop(serial, None)
        if sent is not None:
            self._carried(sent.message.dst, sent.message.id, serial)
            self.settle(sent, arrived_ns, fate)

    def _carried(self, dst: NodeId, id: MessageId, serial: int) -> None:
        """Expect no more news of the way."""
        serials = self._serials.get((dst, id), [])
        if serial in serials:
            serials.remove(serial)
        if not serials:
            self._serials.pop((dst, id), None)

    # the ledger of the carrier

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """The fleet's ledger heard of it when it entered its link."""

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """The carrier is done with a message: its receiver holds it, or it has ended.

        A copy that a link made has the id of its original, and follows it: news are of the first that has none yet.
        """
        (((_, dst),), id, _, _, arrived_ns, fate) = outcome
        serials = self._serials.get((dst, id))
        if not serials:
            return
        serial = serials[0]
        if fate == Fate.IN_FLIGHT and arrived_ns is not None:
            self._open[serial].there = True
            self._carried(dst, id, serial)
        else:
            self._end(serial, None if fate.kind is FateKind.DROPPED else arrived_ns, fate)

    def refused(self, edge: Edge | None, reason: FateReason, what: str) -> None:
        """Something foreign or malformed came in."""
        self._ledger.refused(edge, reason, what)


def report(src: NodeId, dst: NodeId, epoch: int, told: list[list[Any]]) -> Message:
    """What `src` tells `dst` of messages that it held: of each its number, fate, and when it arrived."""
    return Message(src, dst, Kind.ACK, epoch, 0, 0, 0, Payload(meta={"fates": told}))
