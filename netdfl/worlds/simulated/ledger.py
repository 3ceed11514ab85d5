"""A node's ledger in the simulated world: the fabric itself knows what is in flight, so this one only counts."""

from __future__ import annotations

from netdfl.core.types import Message
from netdfl.node.ledger import NodeLedger
from netdfl.transport.base import Fate


class SimulatedLedger(NodeLedger):
    """Counts and records; keeps by name only what was lost."""

    def sent(self, message: Message, nbytes: int, at_ns: int) -> None:
        """Count a message handed to the fabric."""
        self._edge(message).remember(message)
        self.bytes_sent += nbytes
        self.sent_count += 1

    def settled(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """Record a message's fate: one row."""
        if fate is Fate.DELIVERED:
            self._edge(message).delivered += 1
            self.arrived_count += 1
            self.recorder.message(message, nbytes, sent_ns, arrived_ns, fate)
        else:
            super().settled(message, nbytes, sent_ns, arrived_ns, fate)
