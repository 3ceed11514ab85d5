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
from netdfl.core.fates import Fate, FateReason
from netdfl.core.outcome import as_outcome, outcome_of
from netdfl.core.types import Edge, Kind, Message, MessageId, Multicast, NodeId, Payload, unicast
from netdfl.links.rules.base import DROPPED, Departure, Dropped, Held, LinkRule, StageOutcome, Transit
from netdfl.links.rules.disorder import with_bit_flipped
from netdfl.links.schedule.events import CompiledEvent
from netdfl.transport.base import Ledger, Sink
from netdfl.transport.simulated.edge_queues import (
    Computed,
    Due,
    EdgeQueue,
    End,
    FabricLinks,
    PerfectLinks,
    computed,
    departure_of,
    in_order,
    in_turn,
    tie_of,
)
from netdfl.transport.simulated.instants import Instants, ScheduledMulticast, apart, are_alike
from netdfl.transport.simulated.under_way import Flight, UnderWay, content_of, unit_for
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
        ledger: Ledger,
        links: FabricLinks | None = None,
        *,
        changing: bool = False,
        size: Callable[[Payload], int] = frame_size,
    ) -> None:
        """Carry messages over `links`, and tell `ledger` of all; `seed` keys the order within an instant.

        `changing` says that the schedule changes links while the fleet runs, so that single stages
        must be able to take back what they let go.
        `size` gives a message's bytes, once for each payload.
        """
        self._clock, self._seed, self._ledger, self._size = clock, seed, ledger, size
        self._links: FabricLinks = links or PerfectLinks()
        self._changing = changing
        self._ends: dict[NodeId, End] = {}
        self._instants = Instants()
        self._in_stages: dict[Transit, EdgeQueue] = {}
        self.under_way = UnderWay(self._ends, self._instants, self._in_stages)
        self._running = False
        self._alike: tuple[tuple[LinkRule, ...] | None, Computed] = (None, (None, -1))

    # nodes

    def join(self, node: NodeId) -> None:
        """Give `node` an end; a node that restarts keeps its queues and what is on them."""
        if node not in self._ends:
            self._ends[node] = End(node)

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
        for parcel in self.under_way.take_out(set(nodes)):
            self._settle(*parcel[1:], None, Fate.IN_FLIGHT)
        for node in nodes:
            self._ends[node].close()

    def lose(self, flight: Flight, reason: FateReason) -> None:
        """Drop a message that is under way, now."""
        self._settle(*self.under_way.withdraw(flight)[1:], None, Fate.dropped(reason))

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
        queues, delay = self._to(source, dsts)
        sizes, salt = [payload.size or self._size(payload) for payload in payloads], self._salt(id)
        self._ledger.sent(multicast, sum(sizes), now)
        nbytes = sizes[0]
        if delay >= 0 and sizes.count(nbytes) == len(sizes):
            if not delay:
                for queue in queues:
                    queue.more()
            self._instants.schedule(ScheduledMulticast(multicast, queues, nbytes, salt, now), now + delay)
            return
        instant, entries = -1, list[Due]()
        for queue, message, nbytes in zip(queues, multicast.messages, sizes, strict=True):
            tie, delay = queue.tie ^ salt, queue.fixed_ns
            at = now + delay if delay >= 0 else self._through(queue, message, nbytes, now, tie)
            if at == now:
                queue.more()
            elif at < now:
                continue
            if at != instant:
                instant, entries = at, due.get(at) or self._instants.entries(at)
            entries.append((tie, queue, message, nbytes, now, None, 0))

    def _to(self, source: End, dsts: tuple[NodeId, ...]) -> tuple[Sequence[EdgeQueue], int]:
        """The queues to `dsts`, and the delay that all always have or -1; most nodes send to the same again."""
        if dsts != source.last[0]:
            queues = [source.queues.get(dst) or self._queue(source, dst) for dst in dsts]
            first = queues[0].fixed_ns
            source.last = dsts, queues, first if all([queue.fixed_ns == first for queue in queues]) else -1
        return source.last[1:]

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
                    self._drop(unit, stage.reason)
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
        multicasts, entries = self._instants.pop(now_ns)
        self._running = True
        if multicasts and are_alike(multicasts):
            self._multicasts_arrive(multicasts, now_ns)
        else:
            entries = entries or apart(multicasts)
            if len(entries) == 1:
                self._come(entries[0], now_ns)
            elif any(map(departure_of, entries)):
                for entry in in_order(entries):
                    self._come(entry, now_ns)
            else:
                self._arrive_together(entries, now_ns)
        self._running = False

    def _come(self, entry: Due, now_ns: int) -> None:
        _, queue, message, nbytes, sent_ns, departure, place = entry
        if departure is None:
            if sent_ns == now_ns:
                queue.fewer()
            self._arrive(queue, message, nbytes, sent_ns)
        elif departure.unit.pending is departure:
            departure.unit.pending = None
            self._go(queue, place + 1, departure.unit, now_ns)

    def _multicasts_arrive(self, multicasts: Sequence[ScheduledMulticast], now_ns: int) -> None:
        """Hand each node what comes for it now, of multicasts that differ in their senders and contents alone."""
        (_, _, id, _), _, nbytes, _, sent_ns = multicasts[0]
        come: dict[End, list[tuple[int, EdgeQueue, Message]]] = {}
        for multicast, queues, _, salt, _ in multicasts:
            for queue, message in zip(queues, multicast.messages, strict=True):
                if sent_ns == now_ns:
                    queue.fewer()
                arrival, target = (queue.tie ^ salt, queue, message), queue.target
                if target in come:
                    come[target].append(arrival)
                else:
                    come[target] = [arrival]
        ended: dict[Fate, tuple[list[Edge], list[Payload]]] = {Fate.DELIVERED: ([], [])}
        for arrivals in come.values():
            arrivals.sort(key=tie_of)
        for target, arrivals in in_turn(come):
            messages = [message for _, _, message in arrivals]
            fates = target.deliver(messages)
            if fates.count(Fate.DELIVERED) == len(fates):
                edges, payloads = ended[Fate.DELIVERED]
                edges += [(message.src, message.dst) for message in messages]
                payloads += [message.payload for message in messages]
                continue
            for (_, queue, message), fate in zip(arrivals, fates, strict=True):
                if fate is None:
                    self._stay(queue, message, nbytes, sent_ns)
                else:
                    edges, payloads = ended.setdefault(fate, ([], []))
                    edges.append((message.src, message.dst))
                    payloads.append(message.payload)
        for fate, (edges, payloads) in ended.items():
            if edges:
                self._ledger.settled(as_outcome((edges, id, nbytes, sent_ns, now_ns, fate)), payloads)

    def _arrive_together(self, entries: Sequence[Due], now_ns: int) -> None:
        """Hand each node what comes for it now; order counts between the messages of one node alone."""
        come: dict[End, list[Due]] = {}
        for entry in entries:
            come.setdefault(entry[1].target, []).append(entry)
        ended: dict[tuple[MessageId, int, int, Fate], tuple[list[Edge], list[Payload]]] = {}
        for target, arrivals in in_turn({target: in_order(group) for target, group in come.items()}):
            fates = target.deliver([message for _, _, message, _, _, _, _ in arrivals])
            for (_, queue, message, nbytes, sent_ns, _, _), fate in zip(arrivals, fates, strict=True):
                if sent_ns == now_ns:
                    queue.fewer()
                if fate is None:
                    self._stay(queue, message, nbytes, sent_ns)
                else:
                    edges, payloads = ended.setdefault((message.id, nbytes, sent_ns, fate), ([], []))
                    edges.append((message.src, message.dst))
                    payloads.append(message.payload)
        for (id, nbytes, sent_ns, fate), (edges, payloads) in ended.items():
            self._ledger.settled(as_outcome((edges, id, nbytes, sent_ns, now_ns, fate)), payloads)

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
            self._copied(message, sent_ns)
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
            self._drop(unit, outcome.reason)
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

    def _drop(self, unit: Transit, reason: FateReason) -> None:
        message, sent_ns, _ = content_of(unit)
        if unit.copy:
            self._copied(message, sent_ns)
        self._settle(message, unit.nbytes, sent_ns, None, Fate.dropped(reason))

    def _copied(self, message: Message, sent_ns: int) -> None:
        """A link made a copy of `message`: it costs its sender no bytes."""
        self._ledger.sent(unicast(message), 0, sent_ns)

    def _settle(self, message: Message, nbytes: int, sent_ns: int, arrived_ns: int | None, fate: Fate) -> None:
        self._ledger.settled(outcome_of(message, nbytes, sent_ns, arrived_ns, fate), (message.payload,))

    def _arrive(self, queue: EdgeQueue, message: Message, nbytes: int, sent_ns: int) -> None:
        sink = queue.target.sink
        (fate,) = (None,) if sink is None else sink.deliver((message,))
        if fate is None:
            self._stay(queue, message, nbytes, sent_ns)
        else:
            self._settle(message, nbytes, sent_ns, self._clock.now_ns(), fate)

    def _stay(self, queue: EdgeQueue, message: Message, nbytes: int, sent_ns: int) -> None:
        """Keep what the target has no room for; a target that is gone fails it."""
        target = queue.target
        if target.sink is None:
            self._settle(message, nbytes, sent_ns, None, Fate.GONE)
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
