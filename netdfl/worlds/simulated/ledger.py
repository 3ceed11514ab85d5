"""A node's ledger in the simulated world: the fabric itself knows what is in flight, so this one only counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netdfl.core.types import Edge, Kind, Message, Multicast, NodeId, Payload, StepId
from netdfl.node.ledger import EdgeCount, NodeLedger, goes_on
from netdfl.record.base import as_outcome
from netdfl.record.event_log import LoggingRecorder
from netdfl.transport.base import Fate, Ledger
from netdfl.transport.edge_queues import NO_LANES, Arrivals, Due, Lanes, Volley

MOST_SENT, MOST_DELIVERED = 64, 512
"""So many lines of either kind a ledger keeps before it writes them down by edge."""


@dataclass(slots=True, eq=False)
class _Sent:
    """`times` a message to each of `dsts` in one life of the sender, for the slots from `first` to `last`."""

    dsts: tuple[NodeId, ...]
    life: tuple[str, int]
    first: StepId
    last: StepId
    times: int = 1


class SimulatedLedger(NodeLedger):
    """Counts and records; keeps by name only what was lost.

    What is sent to several receivers at once, and what is delivered, is written down by edge when somebody asks for
    `edges`, or there is much of it: a node whose receivers stay has one line for all rounds.
    """

    @property
    def edges(self) -> dict[NodeId, EdgeCount]:
        """What was counted of each edge."""
        if self._sent or self._delivered:
            self._write_down()
        return self._by_dst

    @edges.setter
    def edges(self, by_dst: dict[NodeId, EdgeCount]) -> None:
        self._by_dst = by_dst
        self._sent: list[_Sent] = []
        self._delivered: list[NodeId] = []

    def sent(self, message: Message, nbytes: int, at_ns: int) -> None:
        """Count a message handed to the fabric."""
        edge = self.edges.get(message[1]) if message[2] is Kind.DATA else None
        (edge or self._edge(message)).remember(message)
        self.bytes_sent += nbytes
        self.sent_count += 1

    def sent_together(self, multicast: Multicast, nbytes: int, lanes: Lanes) -> None:
        """Count messages handed to the fabric at once, of `nbytes` together; see `Book`."""
        kind, incarnation, slot, _, _ = multicast.id
        if lanes is NO_LANES or kind is not Kind.DATA:
            self._count_each(multicast)
        else:
            life = kind, incarnation
            last = self._sent[-1] if self._sent else None
            if last is not None and last.dsts is lanes.dsts and last.life == life and goes_on(last.last, slot):
                last.last, last.times = slot, last.times + 1
            else:
                if last is not None and last.life == life:
                    life = last.life  # one for all
                self._sent.append(_Sent(lanes.dsts, life, slot, slot))
                if len(self._sent) > MOST_SENT:
                    self._write_down()
        self.bytes_sent += nbytes
        self.sent_count += len(multicast.dsts)

    def _count_each(self, multicast: Multicast) -> None:
        edges, (kind, incarnation, slot, _, _) = self.edges, multicast.id
        life = kind, incarnation
        for message in multicast.messages:
            edge = edges.get(message.dst) if kind is Kind.DATA else None
            if edge is not None and edge.slots and edge.slots[0].life == life:
                edge.sent += 1
                edge.slots[0].add(slot, slot)
            else:
                (edge or self._edge(message)).remember(message)

    def _write_down(self) -> None:
        """Count by edge what was counted for several."""
        sent, delivered, self._sent, self._delivered = self._sent, self._delivered, [], []
        for each in sent:
            for dst in each.dsts:
                self._to(dst).remember_run(each.life, each.first, each.last, each.times)
        for dst in delivered:
            self._to(dst).delivered += 1

    def _to(self, dst: NodeId) -> EdgeCount:
        edge = self._by_dst.get(dst)
        if edge is None:
            edge = self._by_dst[dst] = EdgeCount()
        return edge

    def settled(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: Fate) -> None:
        """Record a message's fate: one row."""
        if fate is Fate.DELIVERED:
            if message[2] is Kind.DATA and len(self._delivered) < MOST_DELIVERED:
                self._delivered.append(message[1])
                self.arrived_count += 1
            else:
                self.count_delivered(message)
            outcome = as_outcome((((message.src, message.dst),), message.id, nbytes, sent_ns, arrived_ns, fate))
            self.recorder.outcome(outcome, (message.payload,))
        else:
            super().settled(message, nbytes, sent_ns, arrived_ns, fate)

    def came(self, multicast: Multicast) -> None:
        """Count messages that all receivers took."""
        if multicast.id.kind is Kind.DATA:
            self._delivered += multicast.dsts
            self.arrived_count += len(multicast.dsts)
            if len(self._delivered) > MOST_DELIVERED:
                self._write_down()
        else:
            for message in multicast.messages:
                self.count_delivered(message)

    def count_delivered(self, message: Message) -> None:
        """Count a message that its receiver took."""
        if message[2] is Kind.DATA:
            self._delivered.append(message[1])
            if len(self._delivered) > MOST_DELIVERED:
                self._write_down()
        else:
            self._edge(message).delivered += 1
        self.arrived_count += 1


class FleetBook:
    """Counts and records what arrives at one instant for all ledgers of a fleet in one go. A `Book`."""

    def __init__(self, recorder: LoggingRecorder) -> None:
        """Record where all `SimulatedLedger`s of the fleet record."""
        self._recorder = recorder

    def sent(self, ledger: Ledger, multicast: Multicast, nbytes: int, lanes: Lanes) -> None:
        """See `Book`."""
        assert isinstance(ledger, SimulatedLedger)
        ledger.sent_together(multicast, nbytes, lanes)

    def delivered(self, arrivals: Sequence[Due], now_ns: int) -> None:
        """See `Book`."""
        data, edges, payloads = Kind.DATA, list[Edge](), list[Payload]()
        _, _, first, nbytes, sent_ns, _, _ = arrivals[0]
        of = first[2:7]
        for _, queue, message, size, at_ns, _, _ in arrivals:
            ledger: SimulatedLedger = queue.ledger  # type: ignore[assignment]  # a `cast` is a call a message
            if message[2] is data and len(ledger._delivered) < MOST_DELIVERED:
                ledger._delivered.append(message[1])
                ledger.arrived_count += 1
            else:
                ledger.count_delivered(message)
            if at_ns != sent_ns or size != nbytes or message[2:7] != of:
                self._record(edges, first, nbytes, sent_ns, now_ns, payloads)
                edges, payloads, first, of, nbytes, sent_ns = [], [], message, message[2:7], size, at_ns
            edges.append(message[:2])
            payloads.append(message[7])
        self._record(edges, first, nbytes, sent_ns, now_ns, payloads)

    def came(self, volleys: Sequence[Volley], arrivals: Arrivals, now_ns: int) -> None:
        """See `Book`."""
        for lanes, multicast, *_ in volleys:
            ledger: SimulatedLedger = lanes.queues[0].ledger  # type: ignore[assignment]
            ledger.came(multicast)
        edges, messages = list[Edge](), list[Message]()
        for target, come in arrivals:
            dst = target.node
            edges += [(message[0], dst) for message in come]
            messages += come
        first, payloads = volleys[0], [message[7] for message in messages]
        self._record(edges, messages[0], first.nbytes, first.sent_ns, now_ns, payloads)

    def _record(
        self, edges: Sequence[Edge], first: Message, nbytes: int, sent_ns: int, now_ns: int, payloads: Sequence[Payload]
    ) -> None:
        """Messages on `edges` that were delivered now, and differ from the first in their edges and contents alone."""
        outcome = as_outcome((edges, first.id, nbytes, sent_ns, now_ns, Fate.DELIVERED))
        self._recorder.outcome(outcome, payloads)
