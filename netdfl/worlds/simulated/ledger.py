"""The ledgers of the simulated world: one for the fleet, and one for each node.

The fleet's ledger counts by sender, and records messages that end at one instant as one outcome.

Relies on: the fabric, which knows all messages in flight, and `before_look`, called before anybody reads a count.

Why: Nearly all messages are delivered, in every round over the same edges. So on a graph that stays, all rounds of a
node are one line here, and deliveries are counted many at a time, when somebody looks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from netdfl.core.clock import Clock
from netdfl.core.fates import FateReason, MessageCounts
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, Kind, MessageId, Multicast, NodeId, Payload, StepId
from netdfl.node.ledger import ASIDE, EdgeCount, EdgeCounts, NodeLedger, SentSteps
from netdfl.record.base import Recorder
from netdfl.transport.base import Fate

MOST_SENT, MOST_DELIVERED = 64, 1 << 16
"""The most series of multicasts in a node's ledger, and deliveries in the fleet's, that wait to be counted by edge."""


@dataclass(slots=True, eq=False)
class _MulticastRun:
    """A series of `times` multicasts of a node to the same receivers `dsts`, from step `first` to step `last`.

    `life` is the kind of their messages, and the number of restarts of the node.
    """

    dsts: tuple[NodeId, ...]
    life: tuple[str, int]
    first: StepId
    last: StepId
    times: int = 1


class SimulatedLedger(NodeLedger):
    """The ledger of one simulated node: counts its sent messages, and keeps details only of lost ones.

    Multicasts (one message to several receivers) are counted by edge only when `edges` is read or many have gathered;
    consecutive ones to the same receivers share one entry. `before_look` is called before each reading.
    """

    def __init__(
        self, node: NodeId, clock: Clock, recorder: Recorder, before_look: Callable[[], None] = lambda: None
    ) -> None:
        """Count the messages that `node` sends; `before_look` is called before any count is read."""
        self._before_look = before_look
        super().__init__(node, clock, recorder)

    @property
    def edges(self) -> EdgeCounts:
        """The counts of sent and delivered messages on each edge from this node, by receiver."""
        self._before_look()
        if self._sent:
            self._write_down()
        return self._by_dst

    @edges.setter
    def edges(self, by_dst: EdgeCounts) -> None:
        self._by_dst = by_dst
        self._sent: list[_MulticastRun] = []

    def close(self) -> None:
        """Drop the counts by edge now, because the garbage collector would take far longer."""
        self.edges = defaultdict(EdgeCount)

    @property
    def counts(self) -> MessageCounts:
        """The counts of all sent messages by class (delivered, lost and so on); those under way are `unfinished`."""
        self._before_look()
        return super().counts

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count a multicast that was handed to the simulated network; `nbytes` is the size of all its messages."""
        _, dsts, id, _ = multicast
        if id.kind is Kind.DATA and len(dsts) > 1:
            self._count_together(dsts, id)
        else:
            self._count_each(dsts, id)
        self.bytes_sent += nbytes
        self.sent_count += len(dsts)

    def _count_together(self, dsts: tuple[NodeId, ...], id: MessageId) -> None:
        kind, incarnation, slot, _, _ = id
        life, last = (kind, incarnation), self._sent[-1] if self._sent else None
        if last is not None and last.dsts == dsts and last.life == life and SentSteps.goes_on(last.last, slot):
            last.last, last.times = slot, last.times + 1
            return
        if last is not None:  # one tuple for all that are alike
            life = last.life if last.life == life else life
            dsts = last.dsts if last.dsts == dsts else dsts
        self._sent.append(_MulticastRun(dsts, life, slot, slot))
        if len(self._sent) > MOST_SENT:
            self._write_down()

    def _count_each(self, dsts: Sequence[NodeId], id: MessageId) -> None:
        kind, incarnation, slot, _, _ = id
        life = kind, incarnation
        if self._sent:
            self._write_down()
        edges = self.aside if kind in ASIDE else self._by_dst
        for dst in dsts:
            edge = edges[dst]
            if edge.sent_steps and edge.sent_steps[0].life == life:  # as `remember`, without a call
                edge.sent += 1
                edge.sent_steps[0].add(slot, slot)
            else:
                edge.remember(id)

    def _write_down(self) -> None:
        """Add the multicasts that were collected since the last time to the counts of each edge."""
        sent, self._sent = self._sent, []
        for each in sent:
            for dst in each.dsts:
                self._by_dst[dst].remember_run(each.life, each.first, each.last, each.times)

    def _edge(self, kind: Kind, dst: NodeId) -> EdgeCount:
        return (self.aside if kind in ASIDE else self._by_dst)[dst]

    def count(self, dst: NodeId, outcome: Outcome) -> None:
        """Count the fate (delivered, lost and so on) of this node's message to `dst`, which `outcome` describes."""
        if outcome.fate is not Fate.DELIVERED:
            super().count(dst, outcome)
        else:
            self.took(outcome.id.kind, dst, 1)

    def took(self, kind: Kind, dst: NodeId, times: int) -> None:
        """Count `times` messages of one kind that `dst` accepted."""
        self._edge(kind, dst).delivered += times
        self.arrived_count += times


class FleetLedger:
    """The ledger of a simulated fleet: the counts of its messages by fate (delivered, lost and so on).

    Fates are counted in the senders' ledgers; messages with the same fate at one instant are recorded as one outcome.
    """

    def __init__(self, clock: Clock, recorder: Recorder) -> None:
        """Record the outcomes of the fleet's messages in `recorder`."""
        self._clock, self._recorder = clock, recorder
        self._nodes: dict[NodeId, SimulatedLedger] = {}
        self._delivered: list[Sequence[Edge]] = []
        self._num_delivered = 0

    def of(self, node: NodeId) -> SimulatedLedger:
        """Return the ledger of `node`, which stays the same when the node restarts."""
        if node not in self._nodes:
            self._nodes[node] = SimulatedLedger(node, self._clock, self._recorder, self._write_down)
        return self._nodes[node]

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count a multicast that was handed to the simulated network; `nbytes` is the size of all its messages."""
        self._nodes[multicast.src].sent(multicast, nbytes, at_ns)

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Count and record the fate that the messages in `outcome` share; they may have several senders."""
        edges, id, _, _, _, fate = outcome
        if fate is Fate.DELIVERED and id.kind is Kind.DATA:
            self._delivered.append(edges)
            self._num_delivered += len(edges)
            if self._num_delivered > MOST_DELIVERED:
                self._write_down()
        else:
            for src, dst in edges:
                self._nodes[src].count(dst, outcome)
        self._recorder.outcome(outcome, payloads)

    def _write_down(self) -> None:
        """Add the collected deliveries to the counts of each edge.

        They are collected because most messages are delivered, many over the same edges.
        """
        if self._num_delivered:
            delivered, self._delivered, self._num_delivered = self._delivered, [], 0
            for (src, dst), times in Counter(chain.from_iterable(delivered)).items():
                self._nodes[src].took(Kind.DATA, dst, times)

    def refused(self, edge: Edge | None, reason: FateReason, what: str) -> None:
        """Raise AssertionError, because no message from outside the fleet can enter a simulated network."""
        raise AssertionError(what)
