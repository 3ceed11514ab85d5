"""A node's ledger in the simulated world: the fabric itself knows what is in flight, so this one only counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from netdfl.core.types import Kind, Message
from netdfl.node.ledger import NodeLedger
from netdfl.record.event_log import LoggingRecorder
from netdfl.transport.base import Fate, Ledger
from netdfl.transport.edge_queues import Due


class SimulatedLedger(NodeLedger):
    """Counts and records; keeps by name only what was lost."""

    def sent(self, message: Message, nbytes: int, at_ns: int) -> None:
        """Count a message handed to the fabric."""
        edge = self.edges.get(message[1]) if message[2] is Kind.DATA else None
        (edge or self._edge(message)).remember(message)
        self.bytes_sent += nbytes
        self.sent_count += 1

    def sent_together(self, messages: Sequence[Message], nbytes: int) -> None:
        """Count messages handed to the fabric at once, of `nbytes` together."""
        edges, data = self.edges, Kind.DATA
        _, _, kind, epoch, round, step, _, _ = messages[0]
        head, life, slot = (kind, epoch, round, step), (kind, epoch), (round, step)
        for message in messages:
            edge = edges.get(message[1]) if message[2:6] == head and kind is data else None
            if edge is not None and edge.slots and edge.slots[0].life == life:
                edge.sent += 1
                edge.slots[0].add(slot)
            else:
                (edge or self._edge(message)).remember(message)
        self.bytes_sent += nbytes
        self.sent_count += len(messages)

    def settled(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """Record a message's fate: one row."""
        if fate is Fate.DELIVERED:
            edge = self.edges.get(message[1]) if message[2] is Kind.DATA else None
            (edge or self._edge(message)).delivered += 1
            self.arrived_count += 1
            self.recorder.message(message, nbytes, sent_ns, arrived_ns, fate)
        else:
            super().settled(message, nbytes, sent_ns, arrived_ns, fate)


class FleetBook:
    """Counts and records what arrives at one instant for all ledgers of a fleet in one go. A `Book`."""

    def __init__(self, recorder: LoggingRecorder) -> None:
        """Record where all `SimulatedLedger`s of the fleet record."""
        self._recorder = recorder

    def sent(self, ledger: Ledger, messages: Sequence[Message], nbytes: int) -> None:
        """See `Book`."""
        cast(SimulatedLedger, ledger).sent_together(messages, nbytes)

    def delivered(self, arrivals: Sequence[Due], now_ns: int) -> None:
        """See `Book`."""
        data, delivered = Kind.DATA, Fate.DELIVERED
        for _, queue, message, _, _, _, _ in arrivals:
            ledger: SimulatedLedger = queue.ledger  # type: ignore[assignment]  # a `cast` is a call a message
            edge = ledger.edges.get(message[1]) if message[2] is data else None
            (edge or ledger._edge(message)).delivered += 1
            ledger.arrived_count += 1
        rows = [(message[:7], nbytes, sent_ns, now_ns, delivered) for _, _, message, nbytes, sent_ns, _, _ in arrivals]
        self._recorder.messages([arrival[2] for arrival in arrivals], rows)
