"""The fates of messages that a node sent over emulated links.

The carrier is the real transport beneath the links. It answers first: either the message has ended, or its receiver
holds it until it is due. The call of a held message ends at once, so that the connection is free; its fate comes back
later in a small report. Reports are no messages of the fleet: they have no row and no emulated bytes.

    add ──▶ open ──it has ended, says the carrier──────────────────────▶ settled
             └──its receiver holds it──▶ there ──a report, or the receiver is gone──▶ settled

Relies on: answers of the carrier in the order of the messages with one id, and reports that come as messages, by the
same carrier.

Why: The call of a held message can't stay open until the message is due, which may be much later: the messages behind
it would wait. A serial names a message in its report, because a copy that a link made has the id of its original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netdfl.core.errors import MalformedMessage
from netdfl.core.fates import FateKind, FateReason
from netdfl.core.outcome import Outcome, outcome_of
from netdfl.core.types import Edge, Kind, Message, MessageId, Multicast, NodeId, Payload
from netdfl.transport.base import Fate, Ledger, is_plausible

REPORT = b""
"""The link header of a report."""


@dataclass(slots=True, eq=False)
class SentMessage:
    """A message of this node whose fate is open. `there`: its receiver holds it."""

    message: Message
    nbytes: int
    sent_ns: int
    there: bool = False


class Receipts:
    """The messages that the carrier took and whose fates are open. The `Ledger` of the carrier.

    The carrier's fates are those of its calls. They become rows only if the message has ended with the call.
    """

    def __init__(self, ledger: Ledger, epoch: int) -> None:
        """Settle in `ledger`; `epoch`, the number of the node's life, keeps the serials of its lives apart."""
        self._ledger = ledger
        self._serial = epoch << 40
        self._open: dict[int, SentMessage] = {}
        self._serials: dict[tuple[NodeId, MessageId], list[int]] = {}

    def add(self, sent: SentMessage) -> int:
        """Add a message that the carrier takes now; return the serial that its report will name."""
        self._serial += 1
        self._open[self._serial] = sent
        self._serials.setdefault((sent.message.dst, sent.message.id), []).append(self._serial)
        return self._serial

    def settle(self, sent: SentMessage, arrived_ns: int | None, fate: Fate) -> None:
        """Write the row of a message that has ended."""
        outcome = outcome_of(sent.message, sent.nbytes, sent.sent_ns, arrived_ns, fate)
        self._ledger.settled(outcome, (sent.message.payload,))

    def settle_all(self) -> None:
        """Settle all open messages as `in_flight`."""
        for serial in list(self._open):
            self._end(serial, None, Fate.IN_FLIGHT)

    def give_up(self, node: NodeId) -> None:
        """Settle the messages that `node` holds as `failed:gone`."""
        for serial, sent in list(self._open.items()):
            if sent.there and sent.message.dst == node:
                self._end(serial, None, Fate.GONE)

    @staticmethod
    def report(src: NodeId, dst: NodeId, epoch: int, told: list[list[Any]]) -> Message:
        """Return a report of `src` to `dst` about messages that it held: the serial, fate and arrival of each."""
        return Message(src, dst, Kind.ACK, epoch, 0, 0, 0, Payload(meta={"fates": told}))

    def take_report(self, message: Message) -> None:
        """Settle the messages that a report names, if they were sent to its author. Raises MalformedMessage."""
        match message.payload.meta.get("fates"):
            case list() as told:
                for entry in told:
                    match entry:
                        case [int() as serial, str() as fate, (int() | None) as at_ns] if is_plausible(fate, at_ns):
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
        """Expect no more answer of the carrier."""
        serials = self._serials.get((dst, id), [])
        if serial in serials:
            serials.remove(serial)
        if not serials:
            self._serials.pop((dst, id), None)

    # the ledger of the carrier

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count nothing: the fleet's ledger counted the message when it entered its link."""

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Take the carrier's answer for a message: its receiver holds it, or it has ended.

        A copy that a link made has the id of its original and follows it, so an answer is for the first without one.
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
        """Count something foreign or malformed that came in."""
        self._ledger.refused(edge, reason, what)
