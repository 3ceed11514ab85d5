"""The fabric: every message of a simulated fleet, in one heap of instants, moved by one caller.

Sans-I/O. Whoever owns the time asks `next_ns` and calls `run` at that instant; the fabric never waits
and knows no event loop but for the senders that it holds back. At one instant messages go in the order
of a keyed hash of (edge, kind, epoch, round, step, attempt, copy), those of one edge in the order in which
they were sent; so it does not matter which node sent first.

A message on a link without shared stages is computed through at once and costs one entry; on any other
it enters each stage when it gets there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from operator import itemgetter
from struct import Struct
from typing import Protocol

from xxhash import xxh3_64_intdigest

from netdfl.core.clock import Clock
from netdfl.core.types import Edge, Kind, Message, NodeId
from netdfl.links.base import DROPPED, Departure, Dropped, Held, Outcome, Stage, Transit
from netdfl.links.disorder import Duplicate
from netdfl.links.events import CompiledEvent
from netdfl.links.latency import Latency
from netdfl.links.path import Fused, Path
from netdfl.transport.base import Fate, Ledger, Sink
from netdfl.transport.damage import damaged
from netdfl.transport.wire import frame_size

QUEUE = 64
_KINDS = {kind: number for number, kind in enumerate(Kind)}
_pack = Struct("<4qB").pack
_MASK = (1 << 64) - 1
_COPY = 0x9E3779B97F4A7C15


class Links(Protocol):
    """The links of a fleet, as `netdfl.links.channel.Links`."""

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """The stages from `src` to `dst`."""
        ...

    def apply(self, event: CompiledEvent, now_ns: int) -> Sequence[tuple[Path, int, Outcome]]:
        """Make a scheduled change; what becomes of what the stages hold."""
        ...


class PerfectLinks:
    """Nothing is lost and nothing takes time."""

    def path(self, src: NodeId, dst: NodeId) -> Path:
        """No stages."""
        return Path((src, dst), ())

    def apply(self, event: CompiledEvent, now_ns: int) -> Sequence[tuple[Path, int, Outcome]]:
        """There is nothing to change."""
        return ()


class _End:
    """One node's end: its sink, its ledger, what its full mailbox left waiting, its lanes to others."""

    __slots__ = ("held", "lanes", "ledger", "sink")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.sink: Sink | None = None
        self.lanes: dict[NodeId, _Lane] = {}
        self.held: list[_Parcel] = []


class _Lane:
    """One directed edge. `waiting` counts messages that the receiver has not taken though nothing delays them.

    `at_once` are the stages that are computed through when a message enters, `unit` what stands for it
    there; `fixed_ns` is what they always come to, where that is so, else negative.
    """

    __slots__ = ("at_once", "edge", "fixed_ns", "ledger", "path", "target", "tie", "unit", "waiters", "waiting")

    def __init__(self, path: Path, at_once: tuple[Stage, ...] | None, ledger: Ledger, target: _End, tie: int) -> None:
        self.edge, self.path, self.at_once = path.edge, path, at_once
        self.ledger, self.target, self.tie = ledger, target, tie
        self.fixed_ns = -1 if at_once is None else _fixed_ns(at_once)
        self.unit = Transit(*path.edge, Kind.DATA, 0, 0, 0, 0)
        self.waiting = 0
        self.waiters: list[asyncio.Future[None]] = []

    def fewer(self) -> None:
        """One message waits no more: let held senders look again."""
        self.waiting -= 1
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


_Parcel = tuple[_Lane, Message, int, int]  # (lane, message, nbytes, sent_ns)
_Entry = tuple[
    int, _Lane, Message, int, int, Departure | None, int
]  # (tie, *parcel, departure from a stage, its place)


class Fabric:
    """All messages under way. Serve it: call `run(next_ns())` whenever time gets there."""

    def __init__(self, clock: Clock, seed: int, links: Links | None = None, *, changing: bool = False) -> None:
        """Carry messages over `links`; `seed` keys the order within an instant.

        `changing` says that the schedule changes links while the fleet runs, so that single stages
        must be able to take back what they let go.
        """
        self._clock, self._seed = clock, seed
        self._links: Links = links or PerfectLinks()
        self._changing = changing
        self._ends: dict[NodeId, _End] = {}
        self._times: list[int] = []
        self._due: dict[int, list[_Entry]] = {}
        self._in_stages: dict[Transit, _Lane] = {}
        self._running = False

    # nodes

    def join(self, node: NodeId, ledger: Ledger) -> None:
        """Give `node` an end; a node that restarts keeps its lanes and what is on them."""
        if node not in self._ends:
            self._ends[node] = _End(ledger)

    def attach(self, node: NodeId, sink: Sink) -> None:
        """Deliver to `node` from now on; what an earlier sink had no room for is offered to this one."""
        end = self._ends[node]
        end.sink = sink
        self._offer_again(end, sink)

    def detach(self, node: NodeId) -> None:
        """`node` has crashed: what comes for it fails, what it sent goes on."""
        end = self._ends[node]
        end.sink = None
        held, end.held = end.held, []
        for parcel in held:
            parcel[0].fewer()
            self._arrive(*parcel)

    def leave(self, *nodes: NodeId) -> None:
        """Settle as `in_flight` everything that `nodes` have sent and that has not ended."""
        for parcel in self._take_out(set(nodes)):
            lane, message, nbytes, sent_ns = parcel
            lane.ledger.settled(message, nbytes, sent_ns, None, Fate.IN_FLIGHT)
        for node in nodes:
            self._ends[node].sink = None

    def under_way(self) -> Iterator[tuple[Message, int]]:
        """Every message that was sent and has not ended, with the time when it was sent."""
        for entries in self._due.values():
            yield from ((entry[2], entry[4]) for entry in entries if not _void(entry))
        for unit in self._in_stages:
            yield _content(unit)[:2]
        for end in self._ends.values():
            yield from ((message, sent_ns) for _, message, _, sent_ns in end.held)

    def _take_out(self, nodes: set[NodeId]) -> Iterable[_Parcel]:
        for at_ns, entries in self._due.items():
            self._due[at_ns] = [entry for entry in entries if entry[1].edge[0] not in nodes]
            for entry in entries:
                if entry[1].edge[0] in nodes and not _void(entry):
                    yield entry[1:5]
        for unit, lane in [item for item in self._in_stages.items() if item[1].edge[0] in nodes]:
            del self._in_stages[unit]
            yield _parcel(lane, unit)
        for end in self._ends.values():
            yield from (parcel for parcel in end.held if parcel[0].edge[0] in nodes)
            end.held = [parcel for parcel in end.held if parcel[0].edge[0] not in nodes]

    # sending

    def send(self, messages: Sequence[Message]) -> int:
        """Take messages of one node until a destination is full; return how many were taken."""
        if not messages:
            return 0
        now = self._clock.now_ns()
        lanes, due = self._ends[messages[0].src].lanes, self._due
        round, step, kind, salt = -1, -1, None, 0
        for number, message in enumerate(messages):
            lane = lanes.get(message.dst) or self._open((message.src, message.dst))
            if lane.waiting >= QUEUE:
                return number
            if message.round != round or message.step != step or message.kind is not kind or message.attempt:
                round, step, kind, salt = message.round, message.step, message.kind, self._salt(message)
            nbytes = message.payload.size or frame_size(message)
            lane.ledger.sent(message, nbytes, now)
            tie, delay = lane.tie ^ salt, lane.fixed_ns
            at = now + delay if delay >= 0 else self._through(lane, message, nbytes, now, tie)
            if at == now:
                lane.waiting += 1
            elif at < now:
                continue
            entries = due.get(at)
            if entries is None:
                entries = self._new_instant(at)
            entries.append((tie, lane, message, nbytes, now, None, 0))
        return len(messages)

    def _through(self, lane: _Lane, message: Message, nbytes: int, now: int, tie: int) -> int:
        """When the message arrives, if that can be computed at once; else put it into its first stage."""
        stages = lane.at_once
        if stages is None:
            self._go(lane, 0, _unit(message, nbytes, now, tie), now)
            return DROPPED
        at, unit = now, lane.unit
        unit.kind, unit.round, unit.step, unit.attempt = message.kind, message.round, message.step, message.attempt
        unit.nbytes = nbytes
        for stage in stages:
            after = stage.advance(unit, at)
            if after < at:
                unit.content = (message, now, tie)
                if after == DROPPED:
                    self._drop(lane, unit, stage.reason)
                else:
                    self._in_stages[unit] = lane
                    lane.unit = _unit(message, nbytes, now, tie)
                return DROPPED
            at = after
        return at

    async def room(self, message: Message) -> None:
        """Wait until the edge of `message` takes messages again."""
        lane = self._ends[message.src].lanes[message.dst]
        while lane.waiting >= QUEUE:
            waiter = asyncio.get_running_loop().create_future()
            lane.waiters.append(waiter)
            await waiter

    def _salt(self, m: Message) -> int:
        return xxh3_64_intdigest(_pack(m.epoch, m.round, m.step, m.attempt, _KINDS[m.kind]), self._seed)

    def _open(self, edge: Edge) -> _Lane:
        path = self._links.path(*edge)
        tie = xxh3_64_intdigest(_pack(*edge, 0, 0, 255), self._seed)
        source = self._ends[edge[0]]
        lane = _Lane(path, _at_once(path, self._changing), source.ledger, self._ends[edge[1]], tie)
        source.lanes[edge[1]] = lane
        return lane

    # time

    def next_ns(self) -> int | None:
        """When something is due, or None."""
        times = self._times
        while times:
            entries = self._due[times[0]]
            if (entries and not _void(entries[0])) or not all(map(_void, entries)):
                return times[0]
            del self._due[heappop(times)]
        return None

    def run(self, now_ns: int) -> None:
        """Do what is due at `now_ns`, which `next_ns` gave."""
        heappop(self._times)
        entries = self._due.pop(now_ns)
        if len(entries) > 1:
            entries = _in_order(entries)
        self._running = True
        for _, lane, message, nbytes, sent_ns, departure, place in entries:
            if departure is None:
                if sent_ns == now_ns:
                    lane.fewer()
                self._arrive(lane, message, nbytes, sent_ns)
            elif departure.unit.pending is departure:
                departure.unit.pending = None
                self._go(lane, place + 1, departure.unit, now_ns)
        self._running = False

    def change(self, event: CompiledEvent) -> None:
        """Make a scheduled change of links or nodes' rates now."""
        now = self._clock.now_ns()
        for path, place, outcome in self._links.apply(event, now):
            self._take(self._ends[path.edge[0]].lanes[path.edge[1]], place, outcome, now)

    def _new_instant(self, at_ns: int) -> list[_Entry]:
        entries: list[_Entry] = []
        self._due[at_ns] = entries
        heappush(self._times, at_ns)
        return entries

    # stages

    def _go(self, lane: _Lane, place: int, unit: Transit, now: int) -> None:
        """Go on at stage `place`. What no instant ordered yet waits for its turn before a shared stage."""
        path = lane.path
        while place < len(path.stages):
            if place == path.own.stop and not self._running:
                self._depart(lane, place - 1, Departure(unit, now))
                return
            outcomes = path.stages[place].enter(unit, now)
            if len(outcomes) != 1 or not isinstance(outcomes[0], Departure) or outcomes[0].at_ns > now:
                if not outcomes:
                    self._in_stages[unit] = lane
                for outcome in outcomes:
                    self._take(lane, place, outcome, now)
                return
            place += 1
        if not self._running:
            self._depart(lane, place - 1, Departure(unit, now))
            return
        message, sent_ns, _ = _content(unit)
        if unit.copy:
            lane.ledger.sent(message, 0, sent_ns)
        if unit.corrupted:
            message = damaged(message, self._seed)
        self._arrive(lane, message, unit.nbytes, sent_ns)

    def _take(self, lane: _Lane, place: int, outcome: Outcome, now: int) -> None:
        unit = outcome.unit
        unit.pending = None
        self._in_stages.pop(unit, None)
        if isinstance(outcome, Dropped):
            self._drop(lane, unit, outcome.reason)
        elif isinstance(outcome, Held):
            self._in_stages[unit] = lane
        elif outcome.at_ns > now:
            self._depart(lane, place, outcome)
        else:
            self._go(lane, place + 1, unit, now)

    def _depart(self, lane: _Lane, place: int, departure: Departure) -> None:
        unit = departure.unit
        unit.pending = departure
        message, sent_ns, tie = _content(unit)
        tie = (tie ^ unit.copy * _COPY) & _MASK
        entries = self._due.get(departure.at_ns)
        if entries is None:
            entries = self._new_instant(departure.at_ns)
        entries.append((tie, lane, message, unit.nbytes, sent_ns, departure, place))

    # ends

    def _drop(self, lane: _Lane, unit: Transit, reason: str) -> None:
        message, sent_ns, _ = _content(unit)
        if unit.copy:
            lane.ledger.sent(message, 0, sent_ns)
        lane.ledger.settled(message, unit.nbytes, sent_ns, None, f"{Fate.DROPPED}:{reason}")

    def _arrive(self, lane: _Lane, message: Message, nbytes: int, sent_ns: int) -> None:
        sink = lane.target.sink
        fate = None if sink is None else sink.deliver(message)
        if fate is None:
            self._stay(lane, message, nbytes, sent_ns)
        else:
            lane.ledger.settled(message, nbytes, sent_ns, self._clock.now_ns(), fate)

    def _stay(self, lane: _Lane, message: Message, nbytes: int, sent_ns: int) -> None:
        """Keep what the target has no room for; a target that is gone fails it."""
        target = lane.target
        if target.sink is None:
            lane.ledger.settled(message, nbytes, sent_ns, None, f"{Fate.FAILED}:gone")
            return
        lane.waiting += 1
        target.held.append((lane, message, nbytes, sent_ns))
        if len(target.held) == 1:
            target.sink.when_room(partial(self._offer_again, target, target.sink))

    def _offer_again(self, target: _End, sink: Sink) -> None:
        if target.sink is not sink:
            return
        held, target.held = target.held, []
        for parcel in held:
            parcel[0].fewer()
            self._arrive(*parcel)


def _at_once(path: Path, changing: bool) -> tuple[Stage, ...] | None:
    """The stages of a path that can be computed through when a message enters; None: it can't."""
    if len(path.own) != len(path.stages):
        return None
    stages: list[Stage] = []
    for stage in path.stages:
        if isinstance(stage, Fused):
            stages += stage.stages
        elif isinstance(stage, Stage) and not changing:
            stages.append(stage)
        else:
            return None
    return None if any(isinstance(stage, Duplicate) for stage in stages) else tuple(stages)


def _in_order(entries: list[_Entry]) -> list[_Entry]:
    """Edges by their ties; the entries of one edge keep the order in which they came, as links promise."""
    ordered = sorted(entries, key=itemgetter(0))
    if len(set(map(itemgetter(1), entries))) == len(entries):
        return ordered
    of_lane: dict[_Lane, deque[_Entry]] = {}
    for entry in entries:
        of_lane.setdefault(entry[1], deque()).append(entry)
    return [of_lane[entry[1]].popleft() for entry in ordered]


def _fixed_ns(stages: Sequence[Stage]) -> int:
    """The delay that `stages` always come to, or -1."""
    if not stages:
        return 0
    stage = stages[0]
    if len(stages) > 1 or not isinstance(stage, Latency) or stage.rounds is not None:
        return -1
    return stage.delay.constant_ns if stage.delay.quantile is None and stage.scale == 1.0 else -1


def _void(entry: _Entry) -> bool:
    departure = entry[5]
    return departure is not None and departure.unit.pending is not departure


def _unit(m: Message, nbytes: int, now: int, tie: int) -> Transit:
    return Transit(m.src, m.dst, m.kind, m.round, m.step, m.attempt, nbytes, 0, False, (m, now, tie))


def _content(unit: Transit) -> tuple[Message, int, int]:
    """What `_enter` put into the unit: the message, when it was sent, its place among those of one instant."""
    return unit.content  # type: ignore[return-value]


def _parcel(lane: _Lane, unit: Transit) -> _Parcel:
    message, sent_ns, _ = _content(unit)
    return lane, message, unit.nbytes, sent_ns
