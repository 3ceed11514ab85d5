"""A node's ledger in the simulated world: the fabric itself knows what is in flight, so this one only counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from netdfl.core.types import Kind, Message, NodeId
from netdfl.node.ledger import EdgeCount, NodeLedger, Slot, Slots
from netdfl.record.event_log import LoggingRecorder
from netdfl.transport.base import Fate, Ledger
from netdfl.transport.edge_queues import NO_LANES, Due, Lanes


class SimulatedLedger(NodeLedger):
    """Counts and records; keeps by name only what was lost.

    What a node sends to the same receivers round after round is counted once for all of them, and written down by
    edge when somebody asks for `edges`.
    """

    @property
    def edges(self) -> dict[NodeId, EdgeCount]:  # type: ignore[override]
        """What was counted of each edge."""
        if self._unwritten:
            self._write_down()
        return self._by_dst

    @edges.setter
    def edges(self, by_dst: dict[NodeId, EdgeCount]) -> None:
        self._by_dst = by_dst
        self._lanes: Lanes = NO_LANES
        self._life: tuple[str, int] = "", 0
        self._counts: list[tuple[EdgeCount, Slots]] = []
        self._unwritten = 0
        self._first: Slot = (-1, 0)
        self._last: Slot = (-1, 0)

    def sent(self, message: Message, nbytes: int, at_ns: int) -> None:
        """Count a message handed to the fabric."""
        edge = self.edges.get(message[1]) if message[2] is Kind.DATA else None
        (edge or self._edge(message)).remember(message)
        self.bytes_sent += nbytes
        self.sent_count += 1

    def sent_together(self, messages: Sequence[Message], nbytes: int, lanes: Lanes) -> None:
        """Count messages handed to the fabric at once, of `nbytes` together; see `Book`."""
        _, _, kind, epoch, round, step, _, _ = messages[0]
        life, slot = (kind, epoch), (round, step)
        if lanes is self._lanes and life == self._life and self._goes_on(slot):
            if not self._unwritten:
                self._first = slot
            self._last, self._unwritten = slot, self._unwritten + 1
        else:
            self._count_each(messages)
            if lanes.queues and kind is Kind.DATA:
                counts = [self._by_dst[dst] for dst in lanes.dsts]
                self._counts = [(count, slots) for count in counts for slots in count.slots if slots.life == life]
                self._lanes, self._life, self._last = lanes, life, slot
        self.bytes_sent += nbytes
        self.sent_count += len(messages)

    def _goes_on(self, slot: Slot) -> bool:
        """Whether `slot` makes one run with what was counted last; see `Slots`."""
        rounds, step = slot[0] - self._last[0], slot[1]
        return (rounds == 1 and step == 0) or (rounds == 0 and step == self._last[1] + 1)

    def _count_each(self, messages: Sequence[Message]) -> None:
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

    def _write_down(self) -> None:
        """Count by edge what was counted for all of the lanes."""
        for count, slots in self._counts:
            count.sent += self._unwritten
            slots.add_run(self._first, self._last)
        self._unwritten = 0

    def settled(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: str) -> None:
        """Record a message's fate: one row."""
        if fate is Fate.DELIVERED:
            self.count_delivered(message)
            self.recorder.message(message, nbytes, sent_ns, arrived_ns, fate)
        else:
            super().settled(message, nbytes, sent_ns, arrived_ns, fate)

    def count_delivered(self, message: Message) -> None:
        """Count a message that its receiver took; when it was sent, its edge was made."""
        edge = self._by_dst.get(message[1]) if message[2] is Kind.DATA else None
        (edge or self._edge(message)).delivered += 1
        self.arrived_count += 1


class FleetBook:
    """Counts and records what arrives at one instant for all ledgers of a fleet in one go. A `Book`."""

    def __init__(self, recorder: LoggingRecorder) -> None:
        """Record where all `SimulatedLedger`s of the fleet record."""
        self._recorder = recorder

    def sent(self, ledger: Ledger, messages: Sequence[Message], nbytes: int, lanes: Lanes) -> None:
        """See `Book`."""
        cast(SimulatedLedger, ledger).sent_together(messages, nbytes, lanes)

    def delivered(self, arrivals: Sequence[Due], now_ns: int) -> None:
        """See `Book`."""
        data, delivered = Kind.DATA, Fate.DELIVERED
        for _, queue, message, _, _, _, _ in arrivals:
            ledger: SimulatedLedger = queue.ledger  # type: ignore[assignment]  # a `cast` is a call a message
            edge = ledger._by_dst.get(message[1]) if message[2] is data else None
            (edge or ledger._edge(message)).delivered += 1
            ledger.arrived_count += 1
        rows = [(message[:7], nbytes, sent_ns, now_ns, delivered) for _, _, message, nbytes, sent_ns, _, _ in arrivals]
        self._recorder.messages([arrival[2] for arrival in arrivals], rows)
