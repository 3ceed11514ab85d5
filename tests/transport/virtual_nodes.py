"""Nodes that emulate their own links, in virtual time: the carrier between them takes a constant time.

So what notices find is told apart from what gRPC and a busy machine add, and is the same in every run.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from netdfl.core.clock import TimerName
from netdfl.core.control import CoreFlows, CoreRates
from netdfl.core.outcome import Outcome, outcome_of
from netdfl.core.types import Edge, Kind, Message, NodeId, Payload, unicasts
from netdfl.links.channel import Links
from netdfl.links.schedule.events import CompiledEvent
from netdfl.testing.transports import KeptLedger, KeptSink, data_message
from netdfl.transport.base import Fate, Ledger
from netdfl.transport.emulated.receipts import REPORT
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.underlay.told import CoreDivision

MS = 1_000_000


class VirtualTime:
    """A clock whose timers are called in the order of their times."""

    def __init__(self) -> None:
        self._now_ns, self._numbers = 0, count()
        self._timers: list[tuple[int, int, dict[str, Callable[[], None]]]] = []

    def now_ns(self) -> int:
        return self._now_ns

    async def sleep_until(self, at_ns: int) -> None:
        raise NotImplementedError

    def call_at(self, at_ns: int, name: TimerName, callback: Callable[[], None]) -> Any:
        call = {"callback": callback}
        heapq.heappush(self._timers, (max(at_ns, self._now_ns), next(self._numbers), call))
        return type("Timer", (), {"cancel": lambda self: call.clear()})()

    def run(self) -> None:
        """Call all timers, and those that they set."""
        while self._timers:
            self._now_ns, _, call = heapq.heappop(self._timers)
            call.get("callback", lambda: None)()


class Carrier:
    """A carrier whose messages all take the same time."""

    def __init__(self, fleet: VirtualFleet, node: NodeId, ledger: Ledger) -> None:
        self.fleet, self.node, self.ledger = fleet, node, ledger

    def attach(self, sink: Any) -> None:
        self.sink = sink

    def set_gone(self, node: NodeId) -> None:
        """Do nothing: nothing is sent to who is gone."""

    def begin(self) -> None:
        """Do nothing: there are no connections."""

    async def hand_over(self) -> None:
        """Do nothing: what is carried comes."""

    def has_room(self, message: Message) -> bool:
        return True

    def carry(self, message: Message, link_header: bytes) -> None:
        clock = self.fleet.clock
        sent_ns = clock.now_ns()
        pair = message.src, message.dst
        is_notice = link_header == REPORT and message.kind is Kind.PROBE
        if is_notice:
            self.fleet.num_notices += 1
            self.fleet.times_told += [told[-1] for told in message.payload.meta.values() if isinstance(told, list)]
            self.fleet.open_notices[pair] += 1
            self.fleet.most_open[pair] = max(self.fleet.most_open[pair], self.fleet.open_notices[pair])

        def come() -> None:
            there = self.fleet.nodes[message.dst].carrier.sink
            fate = there.deliver_with_header(message, link_header)
            outcome = outcome_of(message, 0, sent_ns, clock.now_ns(), fate or Fate.GONE)
            later(lambda: answer(outcome))

        def answer(outcome: Outcome) -> None:
            self.fleet.open_notices[pair] -= is_notice
            self.ledger.settled(outcome, (message.payload,))

        def later(what: Callable[[], None]) -> None:
            clock.call_at(clock.now_ns() + self.fleet.carrier_ns, ("carry",), what)

        later(come)


class TimedSink(KeptSink):
    """A mailbox that notes when each message comes, by its round."""

    def __init__(self, clock: VirtualTime, came_ns: dict[int, int]) -> None:
        super().__init__()
        self.clock, self.came_ns = clock, came_ns

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        self.came_ns |= {message.round: self.clock.now_ns() for message in messages}
        return super().deliver(messages)


class VirtualFleet:
    """Nodes on links that each of them emulates for itself; `num_notices` counts what they tell each other.

    `came_ns` has when each message reached a mailbox, by its place, also after its sender crashed.
    """

    def __init__(
        self,
        links: Callable[[], Links],
        num_nodes: int,
        events: Sequence[CompiledEvent] = (),
        carrier_ns: int = 2 * MS,
        core: CoreDivision | None = None,
    ) -> None:
        self.clock, self.ledger, self.carrier_ns, self.num_notices = VirtualTime(), KeptLedger(), carrier_ns, 0
        self.num_reports, self.times_told, self.came_ns = 0, list[int](), dict[int, int]()
        self.open_notices, self.most_open = Counter[Edge](), Counter[Edge]()
        self.nodes = [
            EmulatedTransport(
                node,
                lambda inner, node=node: Carrier(self, node, inner),  # type: ignore[arg-type, misc]
                links(),
                events,
                clock=self.clock,
                ledger=self.ledger,
                seed=0,
                report=lambda report, node=node: self._later(lambda: self._take(node, report)),  # type: ignore[misc]
            )
            for node in range(num_nodes)
        ]
        self._core, self._asked = core, set[NodeId]()
        for at_ns in sorted({event.at_ns for event in events if event.core and event.at_ns}):
            self.clock.call_at(at_ns, ("core",), self._divide)
        for each in self.nodes:
            each.begin()
            each.attach(TimedSink(self.clock, self.came_ns))

    def _later(self, what: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.now_ns() + self.carrier_ns, ("supervisor",), what)

    def _take(self, node: NodeId, report: CoreFlows) -> None:
        assert self._core is not None
        self.num_reports += 1
        self._core.take(node, report.offers, self.clock.now_ns())
        if not self._asked:
            self._later(self._divide)
        self._asked.add(node)

    def _divide(self) -> None:
        """Tell the rates of core links, as the supervisor does."""
        assert self._core is not None
        self._core.go_on(self.clock.now_ns())
        asked, self._asked = self._asked, set()
        news = self._core.news()
        if (at_ns := self._core.next_ns) is not None:
            self.clock.call_at(at_ns, ("core",), self._divide)
        for node in {*news, *asked}:
            told = CoreRates(tuple(news.get(node, ())), node in asked)
            self._later(lambda node=node, told=told: self.nodes[node].take_rates(told))  # type: ignore[misc]

    def crash(self, at_ns: int, node: NodeId) -> None:
        """Let a node crash at a time to come; the others, and the supervisor, hear of it a carrier's time later."""

        def go() -> None:
            try:
                self.nodes[node].hand_over().send(None)
            except StopIteration:
                self._later(lambda: self._lost(node))
                return
            raise AssertionError("this carrier waits for nothing")

        self.clock.call_at(at_ns, ("crash",), go)

    def _lost(self, node: NodeId) -> None:
        for each in self.nodes:
            if each.node != node:
                each.set_gone(node)
        if self._core is not None:
            self._core.forget(node, self.clock.now_ns())
            self._divide()

    def send(self, at_ns: int, message: Message) -> None:
        """Send a message at a time to come."""

        def go() -> None:
            try:
                self.nodes[message.src].send(unicasts([message])).send(None)
            except StopIteration:
                return
            raise AssertionError("a carrier with room lets nobody wait")

        self.clock.call_at(at_ns, ("send",), go)

    def arrivals(self, messages: Sequence[tuple[float, int, int, Payload]]) -> Mapping[int, int | None]:
        """When each message (at in s, src, dst, payload) arrives, in ns, by its place; None for a lost one."""
        for number, (at, src, dst, payload) in enumerate(messages):
            self.send(round(at * 10**9), data_message((src, dst), number, payload))
        self.clock.run()
        return {row.message.round: row.arrived_ns for row in self.ledger.rows}
