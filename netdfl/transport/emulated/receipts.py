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
A receiver has at most one unanswered report to each sender, and fates that it has not reported yet count as held: else
reports to a sender that reads none would queue up without an end. A sender keeps no contents of a message that its
receiver holds: else a receiver that never reports would have it keep all that it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netdfl.core.errors import MalformedMessage
from netdfl.core.fates import FateKind, FateReason
from netdfl.core.outcome import Outcome, outcome_of
from netdfl.core.types import Edge, Kind, Message, MessageId, Multicast, NodeId, Payload
from netdfl.transport.base import Fate, Ledger, is_plausible

REPORT = b""
"""The link header that marks a message as a report of fates, or a notice about shared rates: it is empty."""

NO_ATTEMPT = (1 << 16) - 1
"""The attempt number of reports and notices. No other message has it, so an answer to one is for no other message."""


@dataclass(slots=True, eq=False)
class SentMessage:
    """A message that this node sent and whose fate is not known yet.

    `there`: the message is at its receiver, which holds it until it is due.
    """

    message: Message
    nbytes: int
    sent_ns: int
    there: bool = False


class Receipts:
    """The sent messages whose fates are not known yet; the carrier (the real transport) reports to it as its `Ledger`.

    The carrier reports the result of each of its calls. The result becomes a row of the run's record only if it is the
    message's final fate.
    """

    def __init__(
        self, ledger: Ledger, epoch: int, answered: Callable[[Kind, NodeId], None] = lambda kind, node: None
    ) -> None:
        """Record final fates in `ledger`; `epoch` (the node's restarts) makes serial numbers differ after a restart.

        `answered` is called with the kind and the receiver of each report and of each notice about shared rates
        (`shares.py`), once its call has an answer or can't have one.
        """
        self._ledger, self._answered = ledger, answered
        self._serial = epoch << 40
        self._open: dict[int, SentMessage] = {}
        self._serials: dict[tuple[NodeId, MessageId], list[int]] = {}

    def add(self, sent: SentMessage) -> int:
        """Add a message that is handed to the carrier (the real transport) now; return its serial number.

        A receiver that reports the message's fate later names this number.
        """
        self._serial += 1
        self._open[self._serial] = sent
        self._serials.setdefault((sent.message.dst, sent.message.id), []).append(self._serial)
        return self._serial

    def settle(self, sent: SentMessage, arrived_ns: int | None, fate: Fate) -> None:
        """Record the final fate of a message, and its arrival time if it arrived."""
        outcome = outcome_of(sent.message, sent.nbytes, sent.sent_ns, arrived_ns, fate)
        self._ledger.settled(outcome, (sent.message.payload,))

    def settle_all(self) -> None:
        """Record the fate `in_flight` for all sent messages whose fate is not known yet."""
        for serial in list(self._open):
            self._end(serial, None, Fate.IN_FLIGHT)

    def give_up(self, node: NodeId) -> None:
        """Record the fate `failed:gone` for the messages at the receiver `node`, which it held until they were due."""
        for serial, sent in list(self._open.items()):
            if sent.there and sent.message.dst == node:
                self._end(serial, None, Fate.GONE)

    @staticmethod
    def report(src: NodeId, dst: NodeId, epoch: int, told: list[list[Any]]) -> Message:
        """Return a message from `src` that reports to `dst` what became of messages that `dst` had sent.

        `told` has a serial number, a fate and an arrival time for each of them; `epoch` counts the restarts of `src`.
        """
        return Message(src, dst, Kind.ACK, epoch, 0, 0, NO_ATTEMPT, Payload(meta={"fates": told}))

    def take_report(self, message: Message) -> None:
        """Record the fates in a report, which are of messages that this node sent to the report's author.

        Raises MalformedMessage.
        """
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
        """Stop waiting for the answer of the carrier (the real transport) to the message with this `serial` number."""
        serials = self._serials.get((dst, id), [])
        if serial in serials:
            serials.remove(serial)
        if not serials:
            self._serials.pop((dst, id), None)

    # the ledger of the carrier

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Do nothing: the fleet's ledger counted the message when it entered its link."""

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Record what the carrier (the real transport) reports on a message: its receiver holds it, or it has ended.

        A copy that a link made has the id of the original and follows it. So an answer belongs to the first message of
        this id that has none yet.
        """
        (((_, dst),), id, _, _, arrived_ns, fate) = outcome
        if id.attempt == NO_ATTEMPT:
            self._answered(id.kind, dst)
            return
        serials = self._serials.get((dst, id))
        if not serials:
            return
        serial = serials[0]
        if fate == Fate.IN_FLIGHT and arrived_ns is not None:
            sent = self._open[serial]
            sent.there, sent.message = True, sent.message._replace(payload=Payload())
            self._carried(dst, id, serial)
        else:
            self._end(serial, None if fate.kind is FateKind.DROPPED else arrived_ns, fate)

    def refused(self, edge: Edge | None, reason: FateReason, what: str) -> None:
        """Count an invalid message that came in and was discarded."""
        self._ledger.refused(edge, reason, what)
