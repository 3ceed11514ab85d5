"""A process with one node of `tests.soak.shared_networks`, which obeys lines of JSON and answers by others."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import astuple
from typing import Any

import numpy as np

from netdfl.core.clock import RealClock
from netdfl.core.control import CoreFlows, CoreRate, CoreRates
from netdfl.core.rng import Streams
from netdfl.core.types import Kind, Message, Payload, unicasts
from netdfl.links.channel import Links
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.transport.wire import frame_size
from tests.links.shared_traffic import SCENARIOS
from tests.transport.grpc_fleet import make
from tests.underlay.core_traffic import CORE_TRAFFIC

S = 10**9
WARM = 10_000
"""The round of messages that open connections; they cross no emulated link."""


def payload(nbytes: int) -> Payload:
    """A payload whose frame has `nbytes`, or its least size."""
    more = frame_size(vector_payload(np.zeros(10_000, np.uint8))) - 10_000
    return vector_payload(np.zeros(max(0, nbytes - more), np.uint8))


def links_of(name: str) -> tuple[Links, list[CompiledEvent]]:
    """A node's copy of the links of a network, and the schedule."""
    if name in CORE_TRAFFIC:
        return CORE_TRAFFIC[name].links(), CORE_TRAFFIC[name].events
    rules, entries = SCENARIOS[name].written()
    events = compile_events(entries, Facts(16, Streams(0)))
    return Links(LinksSpec(rules, {}, 16), Streams(0), events, halves=True), events


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


class SharedNode:
    """One node of one network."""

    def __init__(self, node: int, name: str) -> None:
        links, events = links_of(name)
        self.node, self.ledger, self.clock = node, KeptLedger(), RealClock()
        sent = (CORE_TRAFFIC.get(name) or SCENARIOS[name]).messages
        self.mine = [(number, *message) for number, message in enumerate(sent) if message[1] == node]
        self.transport = EmulatedTransport(
            node,
            lambda inner: make(node, inner, clock=self.clock),
            links,
            events,
            clock=self.clock,
            ledger=self.ledger,
            seed=0,
            report=self.report,
        )
        self.transport.attach(KeptSink())

    def report(self, flows: CoreFlows) -> None:
        say({"flows": [astuple(each) for each in flows.offers]})

    def take(self, told: dict[str, Any]) -> None:
        self.transport.take_rates(CoreRates(tuple(CoreRate(*each) for each in told["rates"]), told["answers"]))

    async def meet(self, peers: dict[str, str]) -> None:
        """Open a connection for models and one for notices to each receiver, and to those that send to this node."""
        for peer, address in peers.items():
            if int(peer) != self.node:
                self.transport.set_peer(int(peer), address)
        to = [int(peer) for peer in peers if int(peer) != self.node]
        warm = [data_message((self.node, dst), WARM, payload(0)) for dst in to]
        warm += [Message(self.node, dst, Kind.PROBE, 0, WARM, 0, 0, Payload()) for dst in to]
        await self.transport.carrier.send(unicasts(warm))
        await asyncio.sleep(1)
        say({"met": True})

    async def run(self, start_ns: int) -> None:
        """Send this node's messages at their times, and tell what became of them."""
        self.clock.start_ns = start_ns
        await self.clock.sleep_until(0)
        self.transport.begin()

        async def send(number: int, at: float, src: int, dst: int, nbytes: int) -> None:
            await self.clock.sleep_until(round(at * S))
            await self.transport.send(unicasts([data_message((src, dst), number, payload(nbytes))]))

        await asyncio.gather(*(send(*message) for message in self.mine))
        await self.ledger.until_settled(len(self.mine))
        say({"rows": [[row.message.round, row.sent_ns, row.arrived_ns] for row in self.ledger.rows]})


async def main(node: int) -> None:
    """Read lines until the end."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := await reader.readline():
        match json.loads(line):
            case {"network": name}:
                one = SharedNode(node, name)
                say({"address": await one.transport.start()})
            case {"peers": peers}:
                tasks.add(asyncio.create_task(one.meet(peers)))
            case {"start_ns": start_ns}:
                tasks.add(asyncio.create_task(one.run(start_ns)))
            case {"rates": _} as told:
                one.take(told)
            case {"close": _}:
                await one.transport.aclose()
                say({"closed": True})


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
