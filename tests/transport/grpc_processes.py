"""Fleets of gRPC transports whose nodes share processes, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from netdfl.core.bounds import STREAMS_A_PAIR, STREAMS_BESIDE
from netdfl.core.types import Message, unicasts
from netdfl.testing.transports import KeptSink, data_message, vector_payload
from netdfl.transport.base import Ledger
from netdfl.transport.grpc.connections import SharedNetwork
from netdfl.transport.grpc.transport import GrpcOptions, GrpcTransport
from netdfl.transport.shared_memory.memory import SharedMemory
from tests.transport.grpc_fleet import OPTIONS, make

SMALL = vector_payload(np.zeros(5))


@asynccontextmanager
async def fleet_in_processes(
    num_nodes: int,
    ledger: Ledger | Sequence[Ledger],
    options: GrpcOptions = OPTIONS,
    size: int = 2,
    memory: SharedMemory | None = None,
) -> AsyncIterator[list[GrpcTransport]]:
    """Connected transports, `size` of them to what stands for a process; a ledger for all, or one each."""
    options = replace(options, streams=STREAMS_A_PAIR * size**2 + STREAMS_BESIDE)
    shared = [SharedNetwork(options) for _ in range(0, num_nodes, size)]
    ledgers = ledger if isinstance(ledger, list) else [ledger] * num_nodes
    transports = [
        make(node, ledgers[node], options=options, shared=shared[node // size], memory=memory)
        for node in range(num_nodes)
    ]
    addresses = await asyncio.gather(*(transport.start() for transport in transports))
    for node, transport in enumerate(transports):
        for peer, address in enumerate(addresses):
            if peer != node:
                transport.set_peer(peer, address)
    try:
        yield transports
    finally:
        await asyncio.gather(*(transport.aclose() for transport in transports))


def attach_all(transports: Sequence[GrpcTransport]) -> list[KeptSink]:
    """A mailbox for each."""
    sinks = [KeptSink() for _ in transports]
    for transport, sink in zip(transports, sinks, strict=True):
        transport.attach(sink)
    return sinks


def crossing(round: int, size: int) -> list[Message]:
    """A message from each node of the first process to each of the second."""
    return [data_message((src, size + dst), round, SMALL) for src in range(size) for dst in range(size)]


async def send_all(transports: Sequence[GrpcTransport], messages: Sequence[Message]) -> None:
    for message in messages:
        await transports[message.src].send(unicasts([message]))
