"""The fabric: the network of a simulated fleet, which carries all messages between the ends of its nodes.

    send ──▶ link engine ──▶ arrived ──▶ offered to the sink ──▶ settled in the ledger
                  └─ dropped by a link      └─ no room: held, and offered again

The fabric does no I/O. The owner of the virtual time asks `next_ns` and calls `run` at that instant. The fabric needs
an event loop only for senders that wait for room. The link engine (`links/engine.py`) moves messages over their links;
the fabric counts them, delivers them, and holds those for which a mailbox has no room.

The messages of a fleet arrive in crowds. So all messages that arrive at a node at one instant are delivered in one
call, and recorded together if they have one fate. Within an instant, receivers are served in the order of the least
order key among their messages, and the messages of one receiver in the order of their keys. The keys are hashes of edge
and message id, so the order does not depend on which node sent first.

Relies on: an owner of the time who calls `run` at each instant of `next_ns` and at no other.

Why: With a timer and a queue for each message, one core carries a quarter of the messages that it carries with one
calendar. Order keys make a run depend only on its messages; the order of sending would change with any `await` in a
node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import ClassVar, TypeAlias

from netdfl.core.clock import Clock
from netdfl.core.fates import Fate, FateReason
from netdfl.core.outcome import as_outcome
from netdfl.core.types import Edge, Multicast, NodeId, Payload
from netdfl.links.channel import Links
from netdfl.links.edge_state import PathPlan
from netdfl.links.engine import Arrival, Flight, InFlight, LinkEngine, by_order_key, order_key_of
from netdfl.links.rules.base import LinkRule
from netdfl.links.rules.disorder import with_bit_flipped
from netdfl.links.rules.keyed_random import edge_order_key, message_order_key
from netdfl.links.schedule.events import CompiledEvent
from netdfl.transport.base import Ledger, Sink
from netdfl.transport.simulated.ends import MOST_WAITING, NOTHING_SENT, Content, FabricEdge, FabricEnd, SendRecord
from netdfl.transport.wire import frame_size

FabricArrival: TypeAlias = Arrival[FabricEdge, Content]
FabricFlight: TypeAlias = Flight[FabricEdge, Content]


class Fabric:
    """The network of a simulated fleet. The caller advances virtual time and then calls `run(next_ns())`."""

    engine_type: ClassVar[type[LinkEngine[FabricEdge, Content]]] = LinkEngine

    def __init__(
        self,
        clock: Clock,
        seed: int,
        ledger: Ledger,
        links: Links,
        *,
        changing: bool = False,
        size: Callable[[Payload], int] = frame_size,
    ) -> None:
        """Start without nodes.

        Args:
            clock: the virtual time.
            seed: keys the order of messages within an instant.
            ledger: counts and records all messages.
            links: the links of the fleet.
            changing: whether the schedule changes links during the run. If so, no arrival is computed in advance where
                a change may move it.
            size: returns the bytes of a payload's frame.
        """
        self._clock, self._seed, self._ledger, self._size = clock, seed, ledger, size
        self._links, self._changing = links, changing
        self._ends: dict[NodeId, FabricEnd] = {}
        self._engine: LinkEngine[FabricEdge, Content] = self.engine_type(self._arrived, self._dropped)
        self._record = NOTHING_SENT
        self._alike: tuple[Sequence[LinkRule] | None, PathPlan] = (None, PathPlan(0))

    # nodes

    def join(self, node: NodeId) -> None:
        """Add `node` to the simulated network; a node that restarts keeps its edges and the messages on them."""
        if node not in self._ends:
            self._ends[node] = FabricEnd(node)

    def attach(self, node: NodeId, sink: Sink | None) -> None:
        """Deliver messages for `node` to `sink`, first the messages that wait for it; None: they fail."""
        end = self._ends[node]
        end.attach(sink)
        self._release(end)

    def detach(self, node: NodeId) -> None:
        """Disconnect a crashed `node`: messages to it fail; those that it has sent continue."""
        self.attach(node, None)

    def leave(self, *nodes: NodeId) -> None:
        """Remove `nodes`; their messages under way get the fate `in_flight`."""
        for flight in self._engine.withdraw(lambda flight: flight.edge.edge[0] in nodes, self._clock.now_ns()):
            self._settle(flight.edge, flight.content, None, Fate.IN_FLIGHT)
        for end in self._ends.values():
            for edge, content in end.take_held(lambda held: held[0].edge[0] in nodes):
                self._settle(edge, content, None, Fate.IN_FLIGHT)
        for node in nodes:
            self._ends[node].close()

    # what is under way

    def flights(self) -> list[FabricFlight]:
        """Return all messages under way in the fleet, with their positions on their links.

        A message that waits for a full mailbox has left its link: it has no due time and no entry (`unit`) in the
        link engine.
        """
        held = [Flight(edge, content, None, None) for end in self._ends.values() for edge, content in end.held]
        return [*self._engine.flights(), *held]

    def lose(self, flight: FabricFlight, reason: FateReason) -> None:
        """Drop the message `flight`, which is under way, with the fate `dropped` for this `reason`."""
        self._withdraw(flight)
        self._settle(flight.edge, flight.content, None, Fate.dropped(reason))

    def hasten(self, flight: FabricFlight) -> None:
        """Deliver the message `flight`, which is under way, at once, without the rest of its delay."""
        self._withdraw(flight)
        self._arrive(flight.edge, flight.content, self._clock.now_ns())

    def _withdraw(self, flight: FabricFlight) -> None:
        held = flight.edge.target.take_held(lambda each: each[1] is flight.content)
        if not held:
            now = self._clock.now_ns()
            self._engine.withdraw(lambda each: each.content is flight.content and each.unit is flight.unit, now)
        if held or (flight.unit is None and flight.at_ns == flight.content[1].sent_ns):
            flight.edge.take_off_backlog()

    # sending

    def send(self, multicast: Multicast) -> int:
        """Send a multicast to its receivers in turn, up to the first edge with a full backlog.

        Return the number of receivers to which it was sent.
        """
        source, count = self._ends[multicast.src], len(multicast.dsts)
        if source.backlog + count < MOST_WAITING:  # so no receiver can be full
            self._submit(source, multicast)
            return count
        for number, (dst, payload) in enumerate(zip(multicast.dsts, multicast.payloads, strict=True)):
            if (edge := source.edges.get(dst)) is not None and edge.backlog >= MOST_WAITING:
                return number
            self._submit(source, multicast._replace(dsts=(dst,), payloads=(payload,)))
        return count

    def _submit(self, source: FabricEnd, multicast: Multicast) -> None:
        now = self._clock.now_ns()
        _, dsts, id, payloads = multicast
        if len(source.edges) > source.most_edges and not self._changing:
            for dst in source.forget(len(dsts), now):
                self._links.forget(source.node, dst)
        sizes = [payload.size or self._size(payload) for payload in payloads]
        self._ledger.sent(multicast, sum(sizes), now)
        if sizes.count(sizes[0]) == len(sizes):
            if (id, sizes[0], now) != self._record:
                self._record = SendRecord(id, sizes[0], now)  # what arrives with the same object gets a row together
            records: Iterable[SendRecord] = repeat(self._record)
        else:
            records = [SendRecord(id, nbytes, now) for nbytes in sizes]
        contents = zip(multicast.messages, records)  # noqa: B905 (one record may be that of all)
        order_key = message_order_key(self._seed, id)
        for edge in self._engine.submit(source.route(dsts, self._new_edge), contents, id, sizes, order_key, now):
            edge.add_to_backlog()

    def _new_edge(self, source: FabricEnd, dst: NodeId) -> FabricEdge:
        path = self._links.common or self._links.path(source.node, dst)
        if path.stages is not self._alike[0]:  # computed once for all links that share their stages
            self._alike = path.stages, PathPlan.computed(path, changing=self._changing)
        order_key = edge_order_key(self._seed, source.node, dst)
        edge = source.edges[dst] = FabricEdge(source, self._ends[dst], path, self._alike[1], order_key)
        return edge

    async def room(self, edge: Edge) -> None:
        """Wait until the backlog of `edge` (messages that its receiver has not accepted) is below its limit."""
        await self._ends[edge[0]].edges[edge[1]].room()

    # time

    def next_ns(self) -> int | None:
        """Return the virtual time of the next event on the links (such as an arrival) in nanoseconds, or None."""
        return self._engine.next_ns()

    def run(self, now_ns: int) -> None:
        """Process the link events (such as arrivals) that are due at `now_ns`, the time that `next_ns` returned."""
        self._engine.step(now_ns)

    def change(self, event: CompiledEvent) -> None:
        """Make a scheduled change of links or of nodes' rates now."""
        now = self._clock.now_ns()
        self._engine.change(self._links.apply(event, now), now)

    # arriving

    def _arrived(self, arrivals: Sequence[FabricArrival], now_ns: int) -> None:
        if len(arrivals) > 1:
            self._arrived_together(arrivals, now_ns)
            return
        ((_, edge, content, unit),) = arrivals
        if unit is None:
            if content[1].sent_ns == now_ns:
                edge.take_off_backlog()
        else:
            if unit.copy:
                self._count_copy(content)
            if unit.corrupted:
                content = with_bit_flipped(content[0], self._seed), content[1]
        self._arrive(edge, content, now_ns)

    def _arrived_together(self, arrivals: Sequence[FabricArrival], now_ns: int) -> None:
        """Deliver messages that arrive at the same instant, in one call for each receiver."""
        come: defaultdict[FabricEnd, list[FabricArrival]] = defaultdict(list)
        for arrival in arrivals:
            come[arrival[1].target].append(arrival)
        first = arrivals[0][2][1]
        alike = all([content[1] is first for _, _, content, _ in arrivals])
        in_order = partial(sorted, key=order_key_of) if alike else by_order_key
        ended: dict[tuple[int, Fate], tuple[SendRecord, list[Edge], list[Payload]]] = {}
        taken: list[FabricArrival] = []
        for group in sorted(map(in_order, come.values()), key=lambda group: group[0][0]):
            messages = [content[0] for _, _, content, _ in group]
            fates = group[0][1].target.deliver(messages)
            if alike and fates.count(Fate.DELIVERED) == len(fates):  # nearly always
                if first.sent_ns == now_ns:
                    for _, edge, _, _ in group:
                        edge.take_off_backlog()
                taken += group
                continue
            for (_, edge, content, _), fate in zip(group, fates, strict=True):
                message, record = content
                if record.sent_ns == now_ns:
                    edge.take_off_backlog()
                if fate is None:
                    self._hold(edge, content)
                    continue
                _, edges, payloads = ended.setdefault((id(record), fate), (record, [], []))
                edges.append(edge.edge)
                payloads.append(message.payload)
        if taken:
            edges, payloads = [each[1].edge for each in taken], [each[2][0].payload for each in taken]
            self._ledger.settled(as_outcome((edges, *first, now_ns, Fate.DELIVERED)), payloads)
        for (_, fate), (record, edges, payloads) in ended.items():
            self._ledger.settled(as_outcome((edges, *record, now_ns, fate)), payloads)

    def _arrive(self, edge: FabricEdge, content: Content, now_ns: int) -> None:
        sink = edge.target.sink
        (fate,) = (None,) if sink is None else sink.deliver((content[0],))
        if fate is None:
            self._hold(edge, content)
        else:
            self._settle(edge, content, now_ns, fate)

    def _hold(self, edge: FabricEdge, content: Content) -> None:
        """Hold a message for which the receiver's mailbox has no room; fail it if the receiver has crashed."""
        target = edge.target
        if target.sink is None:
            self._settle(edge, content, None, Fate.GONE)
            return
        edge.add_to_backlog()
        target.held.append((edge, content))
        if len(target.held) == 1:
            target.sink.when_room(partial(self._offer_again, target, target.sink))

    def _offer_again(self, target: FabricEnd, sink: Sink) -> None:
        if target.sink is sink:
            self._release(target)

    def _release(self, target: FabricEnd) -> None:
        """Offer the messages that wait for the mailbox of `target` to it again."""
        for edge, content in target.take_held():
            edge.take_off_backlog()
            self._arrive(edge, content, self._clock.now_ns())

    # ending

    def _dropped(self, unit: InFlight[FabricEdge, Content], reason: FateReason, at_ns: int) -> None:
        if unit.copy:
            self._count_copy(unit.content)
        self._settle(unit.edge, unit.content, None, Fate.dropped(reason))

    def _count_copy(self, content: Content) -> None:
        """Count as sent a copy that a link made of a message; the copy adds no bytes to the sender's total."""
        message, record = content
        self._ledger.sent(Multicast.of(message), 0, record.sent_ns)

    def _settle(self, edge: FabricEdge, content: Content, arrived_ns: int | None, fate: Fate) -> None:
        message, (id, nbytes, sent_ns) = content
        outcome = as_outcome(((edge.edge,), id, nbytes, sent_ns, arrived_ns, fate))
        self._ledger.settled(outcome, (message.payload,))
