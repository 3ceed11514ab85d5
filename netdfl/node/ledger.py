"""A node's ledger: what became of each message it sent, counted per edge and recorded."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from netdfl.core.clock import Clock
from netdfl.core.fates import Fate, FateClass, FateReason, MessageCounts
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, Kind, Message, MessageId, Multicast, NodeId, Payload, Scalar, StepId
from netdfl.record.base import Recorder

LAST = 8
LAST_LOST = 32
MOST_SAID = 500
ASIDE = (Kind.HEARTBEAT, Kind.PROBE, Kind.QUERY, Kind.STATUS)
_OF_ROUNDS = (Kind.DATA, Kind.NOTICE, Kind.REQUEST)

Settled: TypeAlias = tuple[MessageId, int, int | None, Fate]
"""A message whose fate is known: its id, when it was sent and arrived (None: never), its fate."""

SlotRun: TypeAlias = tuple[StepId, StepId]
"""The first and the last slot of a run; between them every step of every round was sent that there was."""

MOST_RUNS = 256


def goes_on(last: StepId, slot: StepId) -> bool:
    """Whether `slot` makes one run with the `last`: it is the next step of its round, or step 0 of the next round."""
    rounds, step = slot[0] - last[0], slot[1]
    return (rounds == 1 and step == 0) or (rounds == 0 and step == last[1] + 1)


class Slots:
    """The slots that were sent, of which the last 256 runs are remembered.

    On a static graph there is one run however long it lasts; where neighbors change, each message may be a run of
    its own.
    """

    __slots__ = ("_earlier", "_first", "_last", "life")

    def __init__(self, life: tuple[str, int], slot: StepId) -> None:
        """`slot` was sent, the first in this `life`: a kind of messages and an epoch of their sender."""
        self.life = life
        self._first = self._last = slot
        self._earlier: tuple[SlotRun, ...] = ()

    def add(self, first: StepId, last: StepId) -> None:
        """All from `first` to `last` are sent, one after the other; what is sent again is in already."""
        end = self._last
        if first > end:
            if not goes_on(end, first):
                self._earlier = (*self._earlier, (self._first, end))[1 - MOST_RUNS :]
                self._first = first
        self._last = max(end, last)

    @property
    def runs(self) -> tuple[SlotRun, ...]:
        """All that is remembered, in order."""
        return (*self._earlier, (self._first, self._last))


RoundRun: TypeAlias = tuple[int, int]
"""The first and the last of rounds that follow each other."""


def with_round(runs: tuple[RoundRun, ...], round: int) -> tuple[RoundRun, ...]:
    """The runs with `round`, which is in the last of them, follows it, or begins one."""
    if runs and runs[-1][0] <= round <= runs[-1][1] + 1:
        return (*runs[:-1], (runs[-1][0], max(round, runs[-1][1])))
    return (*runs, (round, round))[-MOST_RUNS:]


EACH_TOLD = 100


class Strangers:
    """Says how many strangers the next row stands for: from the 101st of a reason on, one row stands for 100."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: Counter[FateReason] = Counter()

    def count(self, reason: FateReason) -> int:
        """Count one; returns how many a row is now due for, 0: none is."""
        self._seen[reason] += 1
        if self._seen[reason] <= EACH_TOLD:
            return 1
        return 0 if self._seen[reason] % EACH_TOLD else EACH_TOLD


_NONE: deque[Settled] = deque(maxlen=0)
"""Stands in until there is something to keep: a deque takes 600 bytes."""
_NO_DROPS: Mapping[Fate, int] = MappingProxyType({})
_NONE_FLYING: dict[MessageId, int] = {}


class EdgeCount:
    """Messages of one directed edge, from the sender's side.

    `dropped` counts by fate what did not arrive. `flying` is what is not settled, with the time when it
    was sent; `last` and `last_lost` are the latest that were settled. `slots` is what of the rounds was ever sent,
    by kind and epoch, the latest life first: it outlives the short memory of what became of each.

    A fleet may have millions of edges, most of which carry one message: what most don't have is shared until there
    is something in it.
    """

    __slots__ = ("delivered", "dropped", "flying", "last", "last_lost", "lost", "sent", "slots")

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self.sent = self.delivered = self.lost = 0
        self.dropped: Mapping[Fate, int] = _NO_DROPS
        self.flying: dict[MessageId, int] = _NONE_FLYING
        self.last = self.last_lost = _NONE
        self.slots: tuple[Slots, ...] = ()

    def remember(self, id: MessageId) -> None:
        """Count a message that was handed to the transport."""
        kind, incarnation, at, _, _ = id
        if kind in _OF_ROUNDS:
            self.remember_run((kind, incarnation), at, at, 1)
        else:
            self.sent += 1

    def remember_run(self, life: tuple[str, int], first: StepId, last: StepId, times: int) -> None:
        """As many messages were, of a kind and an epoch of the sender, for the slots from `first` to `last`."""
        self.sent += times
        for slots in self.slots:
            if slots.life == life:
                break
        else:
            slots = Slots(life, first)
            self.slots = (slots, *self.slots)
        slots.add(first, last)

    @property
    def in_flight(self) -> int:
        """Sent, and not yet settled."""
        return self.sent - self.delivered - self.lost


def _kept(last: deque[Settled], most: int) -> deque[Settled]:
    return deque(maxlen=most) if last is _NONE else last


@dataclass
class NodeLedger:
    """Counts and records the messages of one node. A `Ledger`.

    Heartbeats, probes and questions about waits are counted `aside`: they go on where nothing else moves. `classes`
    counts what was settled otherwise than delivered. `left_out` are the rounds in which somebody was sent nothing, as
    it was taken for gone.
    """

    node: NodeId
    clock: Clock
    recorder: Recorder
    edges: dict[NodeId, EdgeCount] = field(default_factory=dict)
    aside: dict[NodeId, EdgeCount] = field(default_factory=dict)
    left_out: dict[NodeId, tuple[RoundRun, ...]] = field(default_factory=dict)
    bytes_sent: int = 0
    sent_count: int = 0
    arrived_count: int = 0
    classes: Counter[FateClass] = field(default_factory=Counter)
    refused_count: Counter[FateReason] = field(default_factory=Counter)
    _strangers: Strangers = field(default_factory=Strangers)

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count messages of `nbytes` together that were handed to the transport."""
        for dst in multicast.dsts:
            edge = self._edge(multicast.id.kind, dst)
            edge.remember(multicast.id)
            if edge.flying is _NONE_FLYING:
                edge.flying = {}
            edge.flying[multicast.id] = at_ns
        self.bytes_sent += nbytes
        self.sent_count += len(multicast.dsts)

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Count and record the fate of messages of this node: a row for each."""
        for _, dst in outcome.edges:
            self.count(dst, outcome)
        self.recorder.outcome(outcome, payloads)

    def count(self, dst: NodeId, outcome: Outcome) -> None:
        """Count the fate of the message to `dst`."""
        _, id, _, sent_ns, arrived_ns, fate = outcome
        edge = self._edge(id.kind, dst)
        edge.flying.pop(id, None)
        settled = (id, sent_ns, arrived_ns, fate)
        edge.last = _kept(edge.last, LAST)
        edge.last.append(settled)
        if fate in Fate.ARRIVED:
            edge.delivered += 1
            self.arrived_count += 1
        elif fate != Fate.IN_FLIGHT:
            edge.lost += 1
            edge.dropped = {**edge.dropped, fate: edge.dropped.get(fate, 0) + 1}
            edge.last_lost = _kept(edge.last_lost, LAST_LOST)
            edge.last_lost.append(settled)
        if fate not in (Fate.DELIVERED, Fate.IN_FLIGHT):
            self.classes[fate.counts_as] += 1

    def leaves_out(self, nodes: Iterable[NodeId], round: int) -> None:
        """`nodes` are taken for gone, and sent nothing in `round`."""
        for node in nodes:
            self.left_out[node] = with_round(self.left_out.get(node, ()), round)

    @property
    def counts(self) -> MessageCounts:
        """What became of all that was sent; what is on its way counts as unfinished."""
        if not self.classes:
            sent, came = self.sent_count, self.arrived_count
            return MessageCounts(sent, came, unfinished=sent - came)
        settled = {
            FateClass.DELIVERED: self.arrived_count - self.classes[FateClass.LATE] - self.classes[FateClass.DUPLICATE],
            **self.classes,
        }
        unfinished = self.sent_count - sum(settled.values())
        return MessageCounts(self.sent_count, **settled, unfinished=unfinished)

    def _edge(self, kind: Kind, dst: NodeId) -> EdgeCount:
        edges = self.aside if kind in ASIDE else self.edges
        edge = edges.get(dst)
        if edge is None:
            edge = edges[dst] = EdgeCount()
        return edge

    def refused(self, edge: Edge | None, reason: FateReason, what: str, round: int = -1) -> None:
        """Count and record something that was refused at the boundary; `round` is the message's, -1: not known.

        Who is no peer (`edge` is None) must not fill the disk: see `Strangers`.
        """
        self.refused_count[reason] += 1
        details: dict[str, Scalar] = {"reason": reason, "what": what[:MOST_SAID], "src": edge[0] if edge else None}
        if edge is None:
            messages = self._strangers.count(reason)
            if not messages:
                return
            if messages == EACH_TOLD:
                details["messages"] = messages
        self.recorder.event(self.clock.now_ns(), self.node, round, "refused", **details)

    def mixed_not_finite(self, message: Message) -> None:
        """Record a message with NaN or infinity in it that is mixed all the same."""
        self.recorder.event(self.clock.now_ns(), self.node, message.round, "mixed_not_finite", src=message.src)
