"""The ledger of a node: the fate of each message that the node sent, counted by edge and recorded.

A diagnosis reads these counts when a fleet stalls: for each edge the messages in flight, the last ones settled, and
which steps were ever sent. The memory of an edge is bounded, for a fleet may have millions of edges.

Relies on: a transport that reports the fate of each message that it took exactly once, and names it by its id.

Why: When a fleet stalls, counts by edge tell a lost message from one that was never sent. A list of all messages would
grow with the run; runs of steps (`SentSteps`) and the last few fates answer the same questions in bounded memory.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
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
"""A message with a known fate: its id, when it was sent, when it arrived (None: never), the fate."""

StepRun: TypeAlias = tuple[StepId, StepId]
"""The first and the last step of a range without gaps: messages were sent for every step between them."""

MOST_RUNS = 256


class SentSteps:
    """The steps for which messages were sent over one edge, as ranges without gaps; the last 256 ranges are kept.

    On a static graph there is one range, however long the node runs. Where neighbors change, each message may be a
    range of its own.
    """

    __slots__ = ("_earlier", "_first", "_last", "life")

    def __init__(self, life: tuple[str, int], step_id: StepId) -> None:
        """Start with the single step `step_id`; `life` is the messages' kind and how often the sender restarted."""
        self.life = life
        self._first = self._last = step_id
        self._earlier: tuple[StepRun, ...] = ()

    @staticmethod
    def goes_on(last: StepId, step_id: StepId) -> bool:
        """Return whether `step_id` directly follows `last`: the next step of its round, or step 0 of the next round."""
        rounds, step = step_id[0] - last[0], step_id[1]
        return (rounds == 1 and step == 0) or (rounds == 0 and step == last[1] + 1)

    def add(self, first: StepId, last: StepId) -> None:
        """Add the range of steps from `first` to `last`; steps that were added before change nothing."""
        end = self._last
        if first > end:
            if not self.goes_on(end, first):
                self._earlier = (*self._earlier, (self._first, end))[1 - MOST_RUNS :]
                self._first = first
        self._last = max(end, last)

    @property
    def runs(self) -> tuple[StepRun, ...]:
        """The kept ranges of steps, in order."""
        return (*self._earlier, (self._first, self._last))


RoundRun: TypeAlias = tuple[int, int]
"""The first and the last round of a range without gaps."""


def with_round(runs: tuple[RoundRun, ...], round: int) -> tuple[RoundRun, ...]:
    """Return `runs`, ranges of rounds, with `round` added: inside the last range, extending it, or as a new range."""
    if runs and runs[-1][0] <= round <= runs[-1][1] + 1:
        return (*runs[:-1], (runs[-1][0], max(round, runs[-1][1])))
    return (*runs, (round, round))[-MOST_RUNS:]


EACH_RECORDED = 100
"""How many refusals for one reason and caller get a row each; each later row stands for as many refusals."""
MOST_ORIGINS = 16
"""The most addresses of strangers that are counted separately; all others are counted together."""
_CAME_FROM = re.compile(r"(?:\(from (?:ipv[46]:)?|^a connection from )(.+?)(?::\d+)?(, user \d+)?(?:, .*)?$")
"""The pattern of a caller's network address and user in the text of a refusal."""


def origin_of(what: str) -> str:
    """Return the address of a refused stranger, without its port, and the user, from the text of the refusal.

    The result is empty if the text does not have them. A text may quote a stranger before the address, so the last
    address counts.
    """
    place = what[max(0, what.rfind("(from ")) :].removesuffix(")")
    found = _CAME_FROM.match(place)
    return "" if found is None else found[1] + (found[2] or "")


class RefusalLimiter:
    """A limit on recorded refusals: after 100 for the same caller and reason, each row of the record stands for 100.

    Nothing else limits how often a stranger or a faulty member calls. Members are counted separately, and so are
    strangers by their address, so that no flood of one hides another.
    """

    def __init__(self) -> None:
        """Start without any refused message or call."""
        self._seen: Counter[tuple[NodeId | None, str, FateReason]] = Counter()
        self._origins: set[str] = set()

    def count(self, reason: FateReason, src: NodeId | None = None, what: str = "") -> int:
        """Count one refusal; return the number of refusals that a row must record now, 0 for no row.

        A `src` of None is a stranger, whose address is in the text `what`.
        """
        key = src, "" if src is not None else self._counted_as(origin_of(what)), reason
        self._seen[key] += 1
        seen = self._seen[key]
        if seen <= EACH_RECORDED:
            return 1
        return 0 if seen % EACH_RECORDED else EACH_RECORDED

    def _counted_as(self, origin: str) -> str:
        """Return `origin` if it is one of the first `MOST_ORIGINS` addresses, else an empty text for all others."""
        if len(self._origins) < MOST_ORIGINS:
            self._origins.add(origin)
        return origin if origin in self._origins else ""


_NONE: deque[Settled] = deque(maxlen=0)
"""The empty list of settled messages, shared by all edges that have none, as a deque of their own takes 600 bytes."""
_NO_DROPS: Mapping[Fate, int] = MappingProxyType({})
_NONE_FLYING: dict[MessageId, int] = {}


class EdgeCount:
    """The counts of messages over one directed edge, kept by the edge's sender.

    A fleet may have millions of edges, most of which carry one message. So empty containers are shared by all edges
    until one has something to keep.

    Attributes:
        sent: number of messages handed to the transport.
        delivered: number of messages that arrived.
        lost: number of messages that did not arrive.
        dropped: the lost messages, counted by fate.
        flying: the messages whose fate is not known yet, with the time when each was sent.
        last: the latest messages with a known fate, at most `LAST`.
        last_lost: the latest lost messages, at most `LAST_LOST`.
        sent_steps: the steps for which messages were ever sent, by kind of message and restarts of the sender, the
            latest first. They are kept for longer than the fates.
    """

    __slots__ = ("delivered", "dropped", "flying", "last", "last_lost", "lost", "sent", "sent_steps")

    def __init__(self) -> None:
        """Start without messages."""
        self.sent = self.delivered = self.lost = 0
        self.dropped: Mapping[Fate, int] = _NO_DROPS
        self.flying: dict[MessageId, int] = _NONE_FLYING
        self.last = self.last_lost = _NONE
        self.sent_steps: tuple[SentSteps, ...] = ()

    def remember(self, id: MessageId) -> None:
        """Count a message that was handed to the transport."""
        kind, incarnation, at, _, _ = id
        if kind in _OF_ROUNDS:
            self.remember_run((kind, incarnation), at, at, 1)
        else:
            self.sent += 1

    def remember_run(self, life: tuple[str, int], first: StepId, last: StepId, times: int) -> None:
        """Count `times` messages for the steps `first` to `last`; `life` is their kind and their sender's restarts."""
        self.sent += times
        for steps in self.sent_steps:
            if steps.life == life:
                break
        else:
            steps = SentSteps(life, first)
            self.sent_steps = (steps, *self.sent_steps)
        steps.add(first, last)

    def settle(self, id: MessageId, sent_ns: int, arrived_ns: int | None, fate: Fate) -> None:
        """Count the fate (delivered, lost and so on) of a message, which is no longer in flight."""
        self.flying.pop(id, None)
        settled = (id, sent_ns, arrived_ns, fate)
        if self.last is _NONE:
            self.last = deque(maxlen=LAST)
        self.last.append(settled)
        if fate in Fate.ARRIVED:
            self.delivered += 1
        elif fate != Fate.IN_FLIGHT:
            self.lost += 1
            self.dropped = {**self.dropped, fate: self.dropped.get(fate, 0) + 1}
            if self.last_lost is _NONE:
                self.last_lost = deque(maxlen=LAST_LOST)
            self.last_lost.append(settled)

    @property
    def in_flight(self) -> int:
        """Number of messages that were sent and have no fate yet."""
        return self.sent - self.delivered - self.lost


EdgeCounts: TypeAlias = defaultdict[NodeId, EdgeCount]
"""The counts of messages over the edges of one sender, by receiver."""


@dataclass
class NodeLedger:
    """The counts of one node's sent messages, and their entry into the record.

    Attributes:
        node: the node that sends.
        clock: the time of recorded events.
        recorder: takes the outcome of each message.
        edges: the counts by receiver.
        aside: the separate counts of heartbeats, probes and status queries, which continue while a fleet stalls.
        left_out: by receiver, the rounds in which the receiver was sent nothing because it was considered gone.
        bytes_sent: bytes of all messages handed to the transport.
        sent_count: number of messages handed to the transport.
        arrived_count: number of messages that arrived.
        classes: the messages with any other fate than delivered, counted by class.
        refused_count: the arriving messages and calls that were refused, counted by reason.
    """

    node: NodeId
    clock: Clock
    recorder: Recorder
    edges: EdgeCounts = field(default_factory=lambda: defaultdict(EdgeCount))
    aside: EdgeCounts = field(default_factory=lambda: defaultdict(EdgeCount))
    left_out: dict[NodeId, tuple[RoundRun, ...]] = field(default_factory=dict)
    bytes_sent: int = 0
    sent_count: int = 0
    arrived_count: int = 0
    classes: Counter[FateClass] = field(default_factory=Counter)
    refused_count: Counter[FateReason] = field(default_factory=Counter)
    _refusal_limiter: RefusalLimiter = field(default_factory=RefusalLimiter)

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Count a multicast that was handed to the transport; its messages have `nbytes` bytes together."""
        for dst in multicast.dsts:
            edge = self._edge(multicast.id.kind, dst)
            edge.remember(multicast.id)
            if edge.flying is _NONE_FLYING:
                edge.flying = {}
            edge.flying[multicast.id] = at_ns
        self.bytes_sent += nbytes
        self.sent_count += len(multicast.dsts)

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Count and record the fate of the messages in `outcome`, which ended alike, with one row for each message."""
        for _, dst in outcome.edges:
            self.count(dst, outcome)
        self.recorder.outcome(outcome, payloads)

    def count(self, dst: NodeId, outcome: Outcome) -> None:
        """Count this node's message to `dst` by its fate in `outcome` (delivered, lost and so on)."""
        _, id, _, sent_ns, arrived_ns, fate = outcome
        self._edge(id.kind, dst).settle(id, sent_ns, arrived_ns, fate)
        if fate in Fate.ARRIVED:
            self.arrived_count += 1
        if fate not in (Fate.DELIVERED, Fate.IN_FLIGHT):
            self.classes[fate.counts_as] += 1

    def leaves_out(self, nodes: Iterable[NodeId], round: int) -> None:
        """Record that `nodes` get no message in `round`, because they are considered gone."""
        for node in nodes:
            self.left_out[node] = with_round(self.left_out.get(node, ()), round)

    @property
    def counts(self) -> MessageCounts:
        """The number of this node's messages in each class of fates; messages still in flight count as unfinished."""
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
        return (self.aside if kind in ASIDE else self.edges)[dst]

    def refused(self, edge: Edge | None, reason: FateReason, what: str, round: int = -1) -> None:
        """Count and record a refused message or caller, with the `reason` and the details in `what`.

        `round` is the message's, -1 if unknown; `edge` is None for a caller that is no peer. A `RefusalLimiter` keeps
        callers from filling the disk.
        """
        self.refused_count[reason] += 1
        src = edge[0] if edge else None
        if not (messages := self._refusal_limiter.count(reason, src, what)):
            return
        details: dict[str, Scalar] = {"reason": reason, "what": what[:MOST_SAID], "src": src}
        if messages == EACH_RECORDED:
            details["messages"] = messages
        self.recorder.event(self.clock.now_ns(), self.node, round, "refused", **details)

    def outlier(self, message: Message, of: str, size: float, usual: float) -> None:
        """Record that the model or the push-sum weight in a message (`of` says which) is far larger than usual."""
        details: dict[str, Scalar] = {"src": message.src, "of": of, "size": size, "usual": usual}
        self.recorder.event(self.clock.now_ns(), self.node, message.round, "outlier", **details)

    def mixed_not_finite(self, message: Message) -> None:
        """Record that `message` is mixed although it holds NaN or infinity."""
        self.recorder.event(self.clock.now_ns(), self.node, message.round, "mixed_not_finite", src=message.src)
