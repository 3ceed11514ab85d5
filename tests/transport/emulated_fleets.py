"""Fleets whose links are emulated above gRPC, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from netdfl.core.clock import RealClock
from netdfl.core.rng import Streams
from netdfl.core.types import Message
from netdfl.links.channel import Links
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.testing.transports import data_message, vector_payload
from netdfl.transport.base import Ledger
from netdfl.transport.emulated.transport import EmulatedTransport
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.shared_memory.memory import SharedMemory
from tests.transport.grpc_fleet import OPTIONS, connect, make

MS = 1_000_000
STREAMS = Streams(5)


def links_of(block: Mapping[str, Any], events: Sequence[CompiledEvent] = (), num_nodes: int = 3) -> Links:
    return Links(LinksSpec(block, {}, num_nodes), STREAMS, events, halves=True)


@asynccontextmanager
async def emulated_fleet(
    num_nodes: int,
    ledger: Ledger,
    block: Mapping[str, Any] | None = None,
    entries: Sequence[Mapping[str, Any]] = (),
    measure: Any = lambda *_: None,
    memory: SharedMemory | None = None,
    options: GrpcOptions = OPTIONS,
    clock: RealClock | None = None,
) -> AsyncIterator[Sequence[EmulatedTransport]]:
    """`num_nodes` connected transports with the links of `block` above gRPC; the fleet's time begins with the block."""
    clock = clock or RealClock()
    events = compile_events(entries, Facts(num_nodes, STREAMS))
    transports = [
        EmulatedTransport(
            node,
            lambda inner, node=node: make(node, inner, options=options, clock=clock, memory=memory),
            links_of(block or {}, events, num_nodes),
            events,
            clock=clock,
            ledger=ledger,
            seed=STREAMS.integer("ties"),
            measure=measure,
        )
        for node in range(num_nodes)
    ]
    await connect([transport.carrier for transport in transports])
    clock.start_ns = RealClock().now_ns()
    for transport in transports:
        transport.begin()
    try:
        yield transports
    finally:
        await asyncio.gather(*(transport.aclose() for transport in transports))


def messages(count: int, edge: tuple[int, int] = (0, 1)) -> list[Message]:
    return [data_message(edge, t, vector_payload(np.full(10, t, np.float32))) for t in range(count)]
