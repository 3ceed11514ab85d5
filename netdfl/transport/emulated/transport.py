"""Emulated links around a real transport, the carrier: per message, by the same rules as in the simulated world.

    send ──▶ uplink, link ──a little early──▶ carrier ──▶ held until due ──▶ downlink ──▶ sink
             the sender's half                            the receiver's half

A path has two halves, each driven by the node that owns it. The sender drives a message through its uplink and the
link's own stages, by the same keyed random streams as in the simulated world. It hands the message to the carrier a
little before the message is due to leave these stages, with the due time in the link header. The receiver holds the
message until that time, drives it through the downlink, and delivers it. So the time that the carrier takes is hidden
in the emulated delay, as long as the emulated delay is longer.

The fate of a message comes back in a receipt of the carrier, or in a report (`receipts.py`).

Relies on: clocks of sender and receiver that agree, and a carrier that is faster than the links that it carries for;
how often it was not is measured (`diagnosis/fidelity.py`).

Why: The halves belong to different nodes, because an uplink is shared by all that its sender sends, and a downlink by
all that come to its receiver. The due time travels instead of the delay, so that what gRPC takes is part of the delay
and not added to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from netdfl.core.clock import Clock, Timer, TimerName
from netdfl.core.control import CoreFlows, CoreRates
from netdfl.core.fates import FateKind, FateReason
from netdfl.core.types import Edge, Kind, Message, Multicast, NodeId
from netdfl.links.channel import Links
from netdfl.links.edge_state import EdgeState, PathPlan
from netdfl.links.engine import Arrival, InFlight, LinkEngine
from netdfl.links.rules.base import StageOutcome
from netdfl.links.rules.disorder import with_bit_flipped
from netdfl.links.rules.keyed_random import edge_order_key, message_order_key
from netdfl.links.schedule.events import CompiledEvent
from netdfl.transport.base import CheckingSink, Fate, Ledger, Sink
from netdfl.transport.emulated.receipts import REPORT, Receipts, SentMessage
from netdfl.transport.emulated.shares import ShareNotices
from netdfl.transport.link_header import LinkHeader
from netdfl.transport.wire import frame_size

if TYPE_CHECKING:
    from netdfl.transport.grpc.transport import GrpcTransport

LEAD_NS = 5_000_000
LEAD_NS_PER_BYTE = 10
HELD_BYTES = 1024
"""Bytes that a node needs to hold a message, in addition to its frame, and its fate until the sender has taken it."""
_FOREVER = 1 << 62
_NEW = (Fate.DELIVERED, Fate.LATE)
"""The fates of messages that the node had not got before."""

Measure = Callable[[NodeId, int, int, int, int], None]
"""A function that gets each arrival: source, bytes, and when it was sent, was due and arrived, in nanoseconds."""


@dataclass(slots=True, eq=False)
class ReceivedMessage:
    """A message that has come over the real network and is held until it is due on its emulated link.

    `memory` are the bytes that it counts while held. `direct`: the gRPC call that brought it is still open, and its
    answer carries the fate; later a report does. `times`: what `Measure` gets besides the sender; None: it gets
    nothing.
    """

    message: Message
    link_header: LinkHeader
    memory: int
    direct: bool = True
    fate: Fate | None = None
    times: tuple[int, int, int, int] | None = None


class EmulatedTransport:
    """One node's end of an emulated network: link rules around a real transport, the carrier."""

    def __init__(
        self,
        node: NodeId,
        carrier: Callable[[Ledger], GrpcTransport],
        links: Links,
        events: Sequence[CompiledEvent],
        *,
        clock: Clock,
        ledger: Ledger,
        seed: int,
        epoch: int = 0,
        peer_bytes: int = 0,
        measure: Measure = lambda *_: None,
        report: Callable[[CoreFlows], None] = lambda _: None,
    ) -> None:
        """Emulate `links` around the transport that `carrier` makes, which reports to the ledger that it is given.

        Args:
            node: this node.
            carrier: makes the real transport.
            links: this node's own copy of the fleet's links, in their first state.
            events: the compiled schedule; clocked changes of links are made when their time comes.
            clock: the fleet's time.
            ledger: gets every message that is sent, and its fate.
            seed: decides the order of messages that are due at one instant, and damage, as in the simulated world.
            epoch: the number of restarts of this node.
            peer_bytes: how many bytes of one sender's messages are held until they have crossed their links; 0: any
                number. Its further ones are not taken yet; a single one always is.
            measure: gets the due and the actual arrival of each message that is new to this node, except if it waited
                for room here.
            report: tells the supervisor of messages over core links.
        """
        self.node, self._clock, self._ledger, self._links, self._seed = node, clock, ledger, links, seed
        self._changes = deque((e.at_ns, e) for e in events if e.at_ns is not None and e.acts_on_links)
        self._measure, self._epoch, self._peer_bytes = measure, epoch, peer_bytes
        self.receipts = Receipts(ledger, epoch, self._answered)
        self._up: LinkEngine[EdgeState, SentMessage] = LinkEngine(self._left, self._lost)
        self._down: LinkEngine[EdgeState, ReceivedMessage] = LinkEngine(self._arrived, self._dropped)
        self._halves: dict[Edge, EdgeState] = {}
        self._waiting: list[ReceivedMessage] = []
        self._blocked: list[Callable[[], None]] = []
        self._told: dict[NodeId, list[list[object]]] = {}  # what the next report to each sender says
        self._reported: dict[NodeId, int] = {}  # how many fates the unanswered report to each sender has
        self._held_bytes: dict[NodeId, int] = {}  # of the messages of each sender
        self._beyond: set[NodeId] = set()  # the senders that wait until fewer bytes of theirs are held
        self._room_ns: dict[NodeId, int] = {}  # by sender: what was due before had to wait for room
        self._lead_ns = LEAD_NS
        self._timer: tuple[int, Timer] | None = None
        self._sink: Sink | None = None
        self._checks: CheckingSink | None = None
        self._begun = self._closed = False
        self._began_ns = 0
        self._shares: ShareNotices | None = None
        if links.told is not None or links.told_ways is not None:
            self._shares = ShareNotices(node, epoch, links, self._notify, report)
        self.carrier = carrier(self.receipts)
        self.carrier.attach(self)

    async def start(self) -> str:
        """Start to listen, and return the address. Raises MachineError."""
        return await self.carrier.start()

    def begin(self) -> None:
        """Start to deliver messages and to make scheduled changes: the fleet's time has begun."""
        self._begun, self._began_ns = True, self._clock.now_ns()
        self._advance()
        self._offer_again()

    # the transport

    def attach(self, sink: Sink) -> None:
        """Deliver arriving messages into `sink`, first the messages that came before there was a sink."""
        self._sink, self._checks = sink, sink if isinstance(sink, CheckingSink) else None
        self._offer_again()

    def set_peer(self, node: NodeId, address: str, epoch: int = 0) -> None:
        """Reach `node` at `address` from now on, after `epoch` restarts; messages that it held before are lost."""
        self.carrier.set_peer(node, address, epoch)  # which may have more to tell of what was held
        self.receipts.give_up(node)
        if self._shares is not None:
            self._shares.forget(node)

    def set_gone(self, node: NodeId) -> None:
        """Mark `node` as gone until `set_peer`: messages that it holds, and messages to it, fail as `failed:gone`."""
        self.carrier.set_gone(node)
        self.receipts.give_up(node)
        if self._shares is not None:
            self._shares.forget(node)

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        """Put messages on their emulated links; wait only while the real transport's queue to a receiver is full."""
        held = [each for multicast in multicasts for each in multicast.messages if not self._enter_if_room(each)]
        for message in held:
            while not self._enter_if_room(message):
                await self.carrier.room(message)
        self._advance()

    async def hand_over(self) -> None:
        """Pass all messages under way to the real transport, each with its due time; record them as `in_flight`.

        A node calls this before it crashes, so that what it has sent still arrives.
        """
        now = self._clock.now_ns()
        if self._shares is not None:
            self._up.change(self._links.go_by_known_shares(now), now)
        self._up.run(_FOREVER)
        self._close()
        await self.carrier.hand_over()
        self.settle()

    async def aclose(self) -> None:
        """Close the links and the real transport; record `in_flight` for sent messages whose fate is not known."""
        self._close()
        await self.carrier.aclose()
        self.settle()

    def _close(self) -> None:
        if self._shares is not None:
            self._shares.end()
        for src in list(self._told):
            self._report(src)
        self._closed = True
        self._disarm()

    def settle(self) -> None:
        """Record the fate `in_flight` for sent messages whose fate is not known yet."""
        flights = self._up.withdraw(lambda flight: True, self._clock.now_ns())
        for unit in (flight.unit for flight in flights if flight.unit is not None):
            self.receipts.settle(self._open(unit), None, Fate.IN_FLIGHT)
        self.receipts.settle_all()

    # time

    def _advance(self) -> None:
        """Process the messages due on the link stages that this node emulates, and make the scheduled link changes.

        A sender emulates its uplink and the link, a receiver its downlink. Messages leave the sender's stages a little
        early, as the real transport takes time, but never before an earlier link change is made.
        """
        now = self._clock.now_ns()
        while self._changes and self._changes[0][0] <= now:
            at_ns, event = self._changes.popleft()
            self._up.run(at_ns - 1)
            self._down.run(at_ns - 1)
            self._apply(event, at_ns)
        change = self._changes[0][0] if self._changes else _FOREVER
        self._up.run_ahead(min(now + self._lead_ns, change - 1), min(now, change - 1))
        self._down.run(now)
        if self._shares is not None:
            self._shares.tell(now)
        self._arm()

    def _apply(self, event: CompiledEvent, at_ns: int) -> None:
        up: list[StageOutcome] = []
        down: list[StageOutcome] = []
        for outcome in self._links.apply(event, at_ns):
            unit = cast(InFlight[EdgeState, object], outcome.unit)
            (up if unit.edge.edge[0] == self.node else down).append(outcome)
        self._up.change(up, at_ns)
        self._down.change(down, at_ns)

    def _arm(self) -> None:
        change = self._changes[0][0] if self._changes else _FOREVER
        up, ends = self._up.departs_ns, None if self._shares is None else self._shares.next_ns
        ahead = change if up is None or up >= change else up - self._lead_ns
        due = min(change, ahead, *(at for at in (self._up.retime_ns, self._down.next_ns(), ends) if at is not None))
        if due == _FOREVER or self._closed or (self._timer is not None and self._timer[0] <= due):
            return
        self._disarm()
        name: TimerName = ("emulated", self.node)
        self._timer = (due, self._clock.call_at(due, name, self._on_timer))

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None

    def _half(self, edge: Edge) -> EdgeState:
        """Return the half of a link that this node emulates: the sender's stages or, if it receives, the receiver's.

        No arrival is computed in advance, because real timers are late.
        """
        half = self._halves.get(edge)
        if half is None:
            path, order_key = self._links.path(*edge), edge_order_key(self._seed, *edge)
            stop, sends = path.own.stop, edge[0] == self.node
            plan = PathPlan.stage_by_stage(path, stop) if sends else PathPlan.stage_by_stage(path, first=stop)
            half = self._halves[edge] = EdgeState(edge, path, plan, order_key)
        return half

    # sending

    def _enter_if_room(self, message: Message) -> bool:
        if not self.carrier.has_room(message):
            return False
        self._advance()
        nbytes, now = frame_size(message.payload), self._clock.now_ns()
        self._lead_ns = max(self._lead_ns, LEAD_NS + LEAD_NS_PER_BYTE * nbytes)
        self._ledger.sent(Multicast.of(message), nbytes, now)
        sent = SentMessage(message, nbytes, now)
        edge = self._half((message.src, message.dst))
        self._up.enter(edge, sent, message.id, nbytes, self._order_key(edge, message), now)
        return True

    def _order_key(self, edge: EdgeState, message: Message) -> int:
        return edge.order_key ^ message_order_key(self._seed, message.id)

    def _open(self, unit: InFlight[EdgeState, SentMessage]) -> SentMessage:
        """Return the message of `unit`, an entry of the link engine; a copy that a link made gets a new message."""
        sent = unit.content
        if unit.copy:
            sent = SentMessage(sent.message._replace(), sent.nbytes, sent.sent_ns)
            self._ledger.sent(Multicast.of(sent.message), 0, sent.sent_ns)
        return sent

    def _left(self, arrivals: Sequence[Arrival[EdgeState, SentMessage]], at_ns: int) -> None:
        for _, _, _, unit in arrivals:
            assert unit is not None
            sent = self._open(unit)
            link_header = LinkHeader(self.receipts.add(sent), sent.sent_ns, at_ns, unit.copy, unit.corrupted)
            self.carrier.carry(sent.message, link_header.pack())

    def _lost(self, unit: InFlight[EdgeState, SentMessage], reason: FateReason, at_ns: int) -> None:
        self.receipts.settle(self._open(unit), None, Fate.dropped(reason))

    # receiving

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Deliver messages without a link header at once: they crossed no emulated link."""
        return [None] * len(messages) if self._sink is None else self._sink.deliver(messages)

    def deliver_with_header(self, message: Message, link_header: bytes) -> Fate | None:
        """Hold a message until the due time in its link header, or read a report on the fates of sent messages.

        Return the message's fate, `in_flight` if it comes later, None if it must be offered again. Raises
        MalformedMessage.
        """
        if link_header == REPORT:
            if message.kind is not Kind.PROBE:
                self.receipts.take_report(message)
            elif self._shares is not None:
                self._learn(partial(self._shares.take, message))
            return Fate.DELIVERED
        if not self._begun or any(held.message.src == message.src for held in self._waiting):
            return None
        read, nbytes = LinkHeader.read(link_header), frame_size(message.payload)
        if self._checks is not None and (refusal := self._checks.refusal(message)) is not None:
            return refusal
        memory = message.payload.memory(nbytes)
        if not self._hold(message.src, memory):
            return None
        held = ReceivedMessage(message, read, memory)
        edge = self._half((message.src, message.dst))
        order_key = self._order_key(edge, message)
        unit = InFlight.of(edge, held, message.id, nbytes, order_key, read.copy, corrupted=read.corrupted)
        self._down.resume(unit, edge.path.own.stop, read.due_ns)
        self._advance()
        held.direct = False
        return held.fate or Fate.IN_FLIGHT

    def _hold(self, src: NodeId, memory: int) -> bool:
        """Count a message of `src` as held, and return True; return False if `src` has too many bytes here already."""
        before = self._held_bytes.get(src, 0)
        after = before + memory + HELD_BYTES
        if self._peer_bytes and before and (src in self._beyond or after > self._peer_bytes):
            self._beyond.add(src)
            return False
        self._held_bytes[src] = after
        return True

    def _let_go(self, src: NodeId, nbytes: int) -> None:
        """Count `nbytes` less as held of `src`, and ask for more if it has waited."""
        if left := self._held_bytes[src] - nbytes:
            self._held_bytes[src] = left
        else:
            del self._held_bytes[src]
        if src in self._beyond:
            self._beyond.remove(src)
            self._room_ns[src] = self._clock.now_ns()
            self._call_blocked()

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when this node's full mailbox has room or may have, to offer a message again."""
        if self._waiting or self._beyond or not self._begun:
            self._blocked.append(callback)
        elif self._sink is not None:
            self._sink.when_room(callback)

    def _arrived(self, arrivals: Sequence[Arrival[EdgeState, ReceivedMessage]], at_ns: int) -> None:
        for _, edge, held, unit in arrivals:
            assert unit is not None
            src = edge.edge[0]
            if at_ns >= self._room_ns.get(src, self._began_ns):
                held.times = unit.nbytes, held.link_header.sent_ns, at_ns, self._clock.now_ns()
            if unit.corrupted:
                held.message = with_bit_flipped(held.message, self._seed)
            self._give(held)

    def _give(self, held: ReceivedMessage) -> None:
        (fate,) = (None,) if self._sink is None else self._sink.deliver((held.message,))
        if fate is not None:
            if held.times is not None and fate in _NEW:
                self._measure(held.message.src, *held.times)
            self._tell(held, fate)
            return
        self._waiting.append(held)
        if len(self._waiting) == 1 and self._sink is not None:
            self._sink.when_room(self._offer_again)

    def _offer_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._room_ns |= dict.fromkeys((held.message.src for held in waiting), self._clock.now_ns())
        for held in waiting:
            self._give(held)
        self._call_blocked()

    def _call_blocked(self) -> None:
        blocked, self._blocked = self._blocked, []
        for callback in blocked:
            callback()

    def _dropped(self, unit: InFlight[EdgeState, ReceivedMessage], reason: FateReason, at_ns: int) -> None:
        self._tell(unit.content, Fate.dropped(reason))

    # notices and reports

    def _notify(self, message: Message) -> None:
        if not self._closed:
            self.carrier.carry(message, REPORT)

    def _answered(self, kind: Kind, node: NodeId) -> None:
        """Go on after the answer of `node` to a report or a notice, of which each node has one at a time."""
        if kind is Kind.ACK:
            if reported := self._reported.pop(node, 0):
                self._let_go(node, HELD_BYTES * reported)
            self._report(node)
        elif self._shares is not None and not self._closed:
            self._shares.answered(node)
            self._shares.tell(self._clock.now_ns())

    def take_rates(self, told: CoreRates) -> None:
        """Use the rates over core links that the supervisor sent, `told`, from now on."""
        self._learn(partial(self._links.take_rates, self.node, told.rates, answers=told.answers))

    def _learn(self, take: Callable[[int], Sequence[StageOutcome]]) -> None:
        """Use what others say of shared links from now on: `take` gets the time, and returns how messages change."""
        self._advance()
        now = self._clock.now_ns()
        self._up.change(take(now), now)
        self._advance()

    def _tell(self, held: ReceivedMessage, fate: Fate) -> None:
        src = held.message.src
        if held.direct:
            self._let_go(src, held.memory + HELD_BYTES)
            held.fate = fate
            return
        self._let_go(src, held.memory)
        arrived_ns = None if fate.kind is FateKind.DROPPED else self._clock.now_ns()
        if src not in self._told:
            self._told[src] = []
            self._clock.call_at(self._clock.now_ns(), ("report", self.node, src), partial(self._report_next, src))
        self._told[src].append([held.link_header.serial, fate.text, arrived_ns])

    def _report_next(self, src: NodeId) -> None:
        """Report fates to `src`, unless a report to it is still unanswered: then they go into the next one."""
        if src not in self._reported:
            self._report(src)

    def _report(self, src: NodeId) -> None:
        fates = self._told.pop(src, None)
        if fates is not None and not self._closed:
            self._reported[src] = self._reported.get(src, 0) + len(fates)
            self.carrier.carry(Receipts.report(self.node, src, self._epoch, fates), REPORT)
