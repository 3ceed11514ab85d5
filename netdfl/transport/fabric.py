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
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct

from xxhash import xxh3_64_intdigest

from netdfl.core.clock import Clock
from netdfl.core.fates import FateReason
from netdfl.core.types import Edge, Kind, Message, MessageId, Multicast, NodeId, Payload
from netdfl.links.rules.base import DROPPED, Departure, Dropped, Held, LinkRule, StageOutcome, Transit
from netdfl.links.rules.disorder import with_bit_flipped
from netdfl.links.schedule.events import CompiledEvent
from netdfl.transport.base import Fate, Ledger, Sink
from netdfl.transport.edge_queues import (
    NO_LANES,
    Book,
    Computed,
    Due,
    EdgeQueue,
    End,
    FabricLinks,
    Lanes,
    PerfectLinks,
    Volley,
    computed,
    departure_of,
    first_tie,
    in_order,
    lanes_to,
)
from netdfl.transport.instants import Instants
from netdfl.transport.under_way import Flight, UnderWay, content_of, unit_for
from netdfl.transport.volleys import TakenApart, are_alike, by_target
from netdfl.transport.wire import frame_size

QUEUE = 64
_KINDS = {kind: number for number, kind in enumerate(Kind)}
_pack = Struct("<4qB").pack
_MASK = (1 << 64) - 1
_COPY = 0x9E3779B97F4A7C15


class Fabric:
    """All messages under way. Serve it: call `run(next_ns())` whenever time gets there."""

    def __init__(
        self,
        clock: Clock,
        seed: int,
        links: FabricLinks | None = None,
        *,
        changing: bool = False,
        book: Book | None = None,
        size: Callable[[Payload], int] = frame_size,
    ) -> None:
        """Carry messages over `links`; `seed` keys the order within an instant.

        `changing` says that the schedule changes links while the fleet runs, so that single stages
        must be able to take back what they let go. `book` keeps all ledgers of the fleet, where it is there.
        `size` gives a message's bytes, once for each payload.
        """
        self._clock, self._seed, self._book, self._size = clock, seed, book, size
        self._links: FabricLinks = links or PerfectLinks()
        self._changing = changing
        self._ends: dict[NodeId, End] = {}
        self._instants = Instants()
        self._in_stages: dict[Transit, EdgeQueue] = {}
        self.under_way = UnderWay(self._ends, self._instants, self._in_stages)
        self._running = False
        self._alike: tuple[tuple[LinkRule, ...] | None, Computed] = (None, (None, -1))

    # nodes

    def join(self, node: NodeId, ledger: Ledger) -> None:
        """Give `node` an end; a node that restarts keeps its queues and what is on them."""
        if node not in self._ends:
            self._ends[node] = End(node, ledger)

    def attach(self, node: NodeId, sink: Sink) -> None:
        """Deliver to `node` from now on; what an earlier sink had no room for is offered to this one."""
        end = self._ends[node]
        end.attach(sink)
        self._offer_again(end, sink)

    def detach(self, node: NodeId) -> None:
        """`node` has crashed: what comes for it fails, what it sent goes on."""
        end = self._ends[node]
        end.attach(None)
        held, end.held = end.held, []
        for parcel in held:
            parcel[0].fewer()
            self._arrive(*parcel)

    def leave(self, *nodes: NodeId) -> None:
        """Settle as `in_flight` everything that `nodes` have sent and that has not ended."""
        for parcel in self.under_way.take_out(set(nodes)):
            queue, message, nbytes, sent_ns = parcel
            queue.ledger.settled(message, nbytes, sent_ns, None, Fate.IN_FLIGHT)
        for node in nodes:
            self._ends[node].close()

    def lose(self, flight: Flight, reason: FateReason) -> None:
        """Drop a message that is under way, now."""
        queue, message, nbytes, sent_ns = self.under_way.withdraw(flight)
        queue.ledger.settled(message, nbytes, sent_ns, None, Fate.dropped(reason))

    def hasten(self, flight: Flight) -> None:
        """Let a message that is under way arrive now."""
        self._arrive(*self.under_way.withdraw(flight))

    # sending

    def send(self, multicast: Multicast) -> int:
        """Hand a message to its receivers in turn, until one is full; return to how many it was handed."""
        source, count = self._ends[multicast.src], len(multicast.dsts)
        if source.waiting + count < QUEUE:  # so no destination can be full
            self._enter(source, multicast)
            return count
        for number, (dst, payload) in enumerate(zip(multicast.dsts, multicast.payloads, strict=True)):
            if self._queue(source, dst).waiting >= QUEUE:
                return number
            self._enter(source, multicast._replace(dsts=(dst,), payloads=(payload,)))
        return count

    def _enter(self, source: End, multicast: Multicast) -> None:
        now, due = self._clock.now_ns(), self._instants.due
        _, dsts, id, payloads = multicast
        if len(source.queues) > source.most_queues and not self._changing:
            for dst in source.forget(len(dsts), now):
                self._links.forget(source.node, dst)
        lanes = self._lanes(source, dsts) if len(dsts) > 1 else NO_LANES
        sizes, salt = [payload.size or self._size(payload) for payload in payloads], self._salt(id)
        if self._book is not None:
            self._book.sent(source.ledger, multicast, sum(sizes), lanes)
            if lanes.fixed_ns > 0 and multicast.shared is not None:
                self._instants.fire(Volley(lanes, multicast, sizes[0], salt, now), now + lanes.fixed_ns)
                return
        messages = multicast.messages
        if self._book is None:
            for message, nbytes in zip(messages, sizes, strict=True):
                source.ledger.sent(message, nbytes, now)
        queues, instant, entries = source.queues, -1, list[Due]()
        for dst, message, nbytes in zip(dsts, messages, sizes, strict=True):
            queue = queues.get(dst) or self._queue(source, dst)
            tie, delay = queue.tie ^ salt, queue.fixed_ns
            at = now + delay if delay >= 0 else self._through(queue, message, nbytes, now, tie)
            if at == now:
                queue.more()
            elif at < now:
                continue
            if at != instant:
                instant, entries = at, due.get(at) or self._instants.entries(at)
            entries.append((tie, queue, message, nbytes, now, None, 0))

    def _lanes(self, source: End, dsts: tuple[NodeId, ...]) -> Lanes:
        """Those of what goes to `dsts`."""
        if dsts is not source.lanes.dsts and dsts != source.lanes.dsts:
            queues = source.queues
            source.lanes = lanes_to(dsts, [queues.get(dst) or self._queue(source, dst) for dst in dsts])
        return source.lanes

    def _through(self, queue: EdgeQueue, message: Message, nbytes: int, now: int, tie: int) -> int:
        """When the message arrives, if that can be computed at once; else put it into its first stage."""
        stages = queue.at_once
        if stages is None:
            self._go(queue, 0, unit_for(message, nbytes, now, tie), now)
            return DROPPED
        at, unit = now, queue.unit_made or queue.unit
        _, _, unit.kind, _, unit.round, unit.step, unit.attempt, _ = message
        unit.nbytes = nbytes
        for stage in stages:
            after = stage.advance(unit, at)
            if after < at:
                unit.content = (message, now, tie)
                if after == DROPPED:
                    self._drop(queue, unit, stage.reason)
                else:
                    self._in_stages[unit] = queue
                    queue.unit_made = unit_for(message, nbytes, now, tie)
                return DROPPED
            at = after
        return at

    async def room(self, edge: Edge) -> None:
        """Wait until `edge` takes messages again."""
        queue = self._ends[edge[0]].queues[edge[1]]
        while queue.waiting >= QUEUE:
            waiter = asyncio.get_running_loop().create_future()
            queue.waiters = [*(queue.waiters or ()), waiter]
            await waiter

    def _salt(self, id: MessageId) -> int:
        kind, incarnation, (round, step), _, attempt = id
        return xxh3_64_intdigest(_pack(incarnation, round, step, attempt, _KINDS[kind]), self._seed)

    def _queue(self, source: End, dst: NodeId) -> EdgeQueue:
        src, queue = source.node, source.queues.get(dst)
        if queue is None:
            path = self._links.common or self._links.path(src, dst)
            if path.stages is not self._alike[0]:  # of links that share their stages it is found out once
                self._alike = path.stages, computed(path, self._changing)
            tie = xxh3_64_intdigest(_pack(src, dst, 0, 0, 255), self._seed)
            queue = EdgeQueue(src, dst, path, self._alike[1], source, self._ends[dst], tie)
            source.queues[dst] = queue
        return queue

    # time

    def next_ns(self) -> int | None:
        """When something is due, or None."""
        return self._instants.next_ns()

    def run(self, now_ns: int) -> None:
        """Do what is due at `now_ns`, which `next_ns` gave."""
        volleys, entries = self._instants.pop(now_ns)
        self._running = True
        if volleys:
            self._volleys_arrive(volleys, now_ns)
        elif len(entries) == 1:
            self._come(entries[0], now_ns)
        elif not any(map(departure_of, entries)):
            self._arrive_together(entries, now_ns)
        else:
            for entry in in_order(entries):
                self._come(entry, now_ns)
        self._running = False

    def _come(self, entry: Due, now_ns: int) -> None:
        _, queue, message, nbytes, sent_ns, departure, place = entry
        if departure is None:
            if sent_ns == now_ns:
                queue.fewer()
            sink = queue.target.sink
            fate = None if sink is None else sink.deliver(message)
            if fate is not None:
                queue.ledger.settled(message, nbytes, sent_ns, now_ns, fate)
            else:
                self._stay(queue, message, nbytes, sent_ns)
        elif departure.unit.pending is departure:
            departure.unit.pending = None
            self._go(queue, place + 1, departure.unit, now_ns)

    def _arrive_together(self, entries: Sequence[Due], now_ns: int) -> None:
        """Hand each node what comes for it now; order counts between the messages of one node alone."""
        of_target: dict[End, list[Due]] = {}
        for entry in entries:
            target = entry[1].target
            if target in of_target:
                of_target[target].append(entry)
            else:
                of_target[target] = [entry]
        taken: list[Due] = []
        for target, group in sorted(of_target.items(), key=first_tie):
            sink = target.all_at_once
            if self._book is not None and sink is not None and sink.take_together([entry[2] for entry in group]):
                taken += group
                continue
            for entry in in_order(group):
                self._come(entry, now_ns)
        if taken and self._book is not None:
            for entry in taken:
                if entry[4] == now_ns:
                    entry[1].fewer()
            self._book.delivered(taken, now_ns)

    def _volleys_arrive(self, volleys: Sequence[Volley], now_ns: int) -> None:
        """As `_arrive_together`."""
        assert self._book is not None
        refused, singles, arrivals, alike = set[End](), TakenApart(volleys), by_target(volleys), are_alike(volleys)
        for target, messages in arrivals:
            sink = target.all_at_once
            if alike and sink is not None and sink.take_together(messages, target.node):
                continue
            entries = singles.of(target)
            if alike or sink is None or not sink.take_together([entry[2] for entry in entries]):
                refused.add(target)
                for entry in in_order(entries):
                    self._come(entry, now_ns)
        if alike and not refused:
            self._book.came(volleys, arrivals, now_ns)
        elif taken := [entry for target, _ in arrivals if target not in refused for entry in singles.of(target)]:
            self._book.delivered(taken, now_ns)

    def change(self, event: CompiledEvent) -> None:
        """Make a scheduled change of links or nodes' rates now."""
        now = self._clock.now_ns()
        for path, place, outcome in self._links.apply(event, now):
            self._take(self._ends[path.edge[0]].queues[path.edge[1]], place, outcome, now)

    # stages

    def _go(self, queue: EdgeQueue, place: int, unit: Transit, now: int) -> None:
        """Go on at stage `place`. What no instant ordered yet waits for its turn before a shared stage."""
        path = queue.path
        while place < len(path.stages):
            if place == path.own.stop and not self._running:
                self._depart(queue, place - 1, Departure(unit, now))
                return
            outcomes = path.stages[place].enter(unit, now)
            if len(outcomes) != 1 or not isinstance(outcomes[0], Departure) or outcomes[0].at_ns > now:
                if not outcomes:
                    self._in_stages[unit] = queue
                for outcome in outcomes:
                    self._take(queue, place, outcome, now)
                return
            place += 1
        if not self._running:
            self._depart(queue, place - 1, Departure(unit, now))
            return
        message, sent_ns, _ = content_of(unit)
        if unit.copy:
            queue.ledger.sent(message, 0, sent_ns)
        if unit.corrupted:
            message = with_bit_flipped(message, self._seed)
        self._arrive(queue, message, unit.nbytes, sent_ns)

    def _take(self, queue: EdgeQueue, place: int, outcome: StageOutcome, now: int) -> None:
        unit = outcome.unit
        unit.pending = None
        if unit.content is None:  # it was taken off its way
            return
        self._in_stages.pop(unit, None)
        if isinstance(outcome, Dropped):
            self._drop(queue, unit, outcome.reason)
        elif isinstance(outcome, Held):
            self._in_stages[unit] = queue
        elif outcome.at_ns > now:
            self._depart(queue, place, outcome)
        else:
            self._go(queue, place + 1, unit, now)

    def _depart(self, queue: EdgeQueue, place: int, departure: Departure) -> None:
        unit = departure.unit
        unit.pending = departure
        message, sent_ns, tie = content_of(unit)
        tie = (tie ^ unit.copy * _COPY) & _MASK
        due: Due = (tie, queue, message, unit.nbytes, sent_ns, departure, place)
        self._instants.entries(departure.at_ns).append(due)

    # ends

    def _drop(self, queue: EdgeQueue, unit: Transit, reason: FateReason) -> None:
        message, sent_ns, _ = content_of(unit)
        if unit.copy:
            queue.ledger.sent(message, 0, sent_ns)
        queue.ledger.settled(message, unit.nbytes, sent_ns, None, Fate.dropped(reason))

    def _arrive(self, queue: EdgeQueue, message: Message, nbytes: int, sent_ns: int) -> None:
        sink = queue.target.sink
        fate = None if sink is None else sink.deliver(message)
        if fate is None:
            self._stay(queue, message, nbytes, sent_ns)
        else:
            queue.ledger.settled(message, nbytes, sent_ns, self._clock.now_ns(), fate)

    def _stay(self, queue: EdgeQueue, message: Message, nbytes: int, sent_ns: int) -> None:
        """Keep what the target has no room for; a target that is gone fails it."""
        target = queue.target
        if target.sink is None:
            queue.ledger.settled(message, nbytes, sent_ns, None, Fate.GONE)
            return
        queue.more()
        target.held.append((queue, message, nbytes, sent_ns))
        if len(target.held) == 1:
            target.sink.when_room(partial(self._offer_again, target, target.sink))

    def _offer_again(self, target: End, sink: Sink) -> None:
        if target.sink is not sink:
            return
        held, target.held = target.held, []
        for parcel in held:
            parcel[0].fewer()
            self._arrive(*parcel)
