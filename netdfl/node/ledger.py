"""A node's ledger: what became of each message it sent, counted per edge and recorded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from netdfl.core.clock import Clock
from netdfl.core.types import Edge, Message, NodeId
from netdfl.record.base import Recorder
from netdfl.transport.base import Fate


@dataclass(slots=True)
class EdgeCount:
    """Messages of one directed edge, from the sender's side."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0

    @property
    def in_flight(self) -> int:
        """Sent, and not yet settled."""
        return self.sent - self.delivered - self.lost


@dataclass
class NodeLedger:
    """Counts and records the messages of one node. A `Ledger`."""

    node: NodeId
    clock: Clock
    recorder: Recorder
    edges: dict[NodeId, EdgeCount] = field(default_factory=dict)
    bytes_sent: int = 0
    sent_count: int = 0
    lost_count: int = 0
    refused_count: Counter[str] = field(default_factory=Counter)

    def sent(self, message: Message, nbytes: int, at_ns: int) -> None:
        """Count a message handed to the transport."""
        self.edges.setdefault(message.dst, EdgeCount()).sent += 1
        self.bytes_sent += nbytes
        self.sent_count += 1

    def settled(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """Record a message's fate: one row."""
        edge = self.edges.setdefault(message.dst, EdgeCount())
        if fate in (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE):
            edge.delivered += 1
        elif fate != Fate.IN_FLIGHT:
            edge.lost += 1
            self.lost_count += 1
        self.recorder.message(message, nbytes, sent_ns, arrived_ns, fate)

    def refused(self, edge: Edge | None, reason: str, what: str) -> None:
        """Count and record something that was refused at the boundary."""
        self.refused_count[reason] += 1
        self.recorder.event(
            self.clock.now_ns(), self.node, -1, "refused", reason=reason, what=what, src=edge[0] if edge else None
        )
