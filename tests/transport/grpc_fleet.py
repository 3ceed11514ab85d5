"""Fleets of gRPC transports on loopback, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from netdfl.core.clock import RealClock
from netdfl.testing.transports import KeptLedger
from netdfl.transport.base import Ledger
from netdfl.transport.grpc.transport import GrpcOptions, GrpcTransport
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.identity import Identity
from netdfl.transport.v1.data_pb2 import HelloReply

RUN_ID = b"run-0001"
OPTIONS = GrpcOptions(close_grace=50_000_000)
NODE = "netdfl.v1.Node"
Answer = Callable[[Any, Any], Any]


def make(
    node: int,
    ledger: Ledger | None = None,
    epoch: int = 0,
    run_id: bytes = RUN_ID,
    scenario_hash: str = "abc",
    **changed: Any,
) -> GrpcTransport:
    """A transport of the tests' run that knows nobody."""
    me = Identity(node, epoch, run_id, scenario_hash)
    settings: dict[str, Any] = {"clock": RealClock(), "options": OPTIONS, "ledger": ledger or KeptLedger()}
    return GrpcTransport(me, "127.0.0.1:0", **(settings | changed))


async def connect(transports: Sequence[GrpcTransport]) -> None:
    """Start all and tell everyone of everyone else; node i is the i-th."""
    addresses = [await transport.start() for transport in transports]
    for node, transport in enumerate(transports):
        for peer, address in enumerate(addresses):
            if peer != node:
                transport.set_peer(peer, address)


@asynccontextmanager
async def grpc_fleet(
    num_nodes: int, ledger: Ledger, options: GrpcOptions = OPTIONS, authority: Authority | None = None
) -> AsyncIterator[Sequence[GrpcTransport]]:
    """`num_nodes` connected transports that share a ledger; with an `authority`, by mutual TLS."""
    transports = [
        make(node, ledger, options=options, credentials=authority and authority.issue(node, 0))
        for node in range(num_nodes)
    ]
    await connect(transports)
    try:
        yield transports
    finally:
        await asyncio.gather(*(transport.aclose() for transport in transports))


async def accept(request: bytes, context: object) -> bytes:
    """Whoever says hello is welcome."""
    return HelloReply(accepted=True).SerializeToString()


async def never(request: object, context: object) -> bytes:
    """No answer."""
    await asyncio.Event().wait()
    return b""


@asynccontextmanager
async def foreign_node(*, push: Answer = never, hello: Answer = accept) -> AsyncIterator[str]:
    """The address of a server that answers the calls of a node with raw bytes."""
    server = grpc.aio.server()
    methods = {
        "Hello": grpc.unary_unary_rpc_method_handler(hello),
        "Push": grpc.stream_stream_rpc_method_handler(push),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NODE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def until(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds; TimeoutError after a minute of asking."""
    for _ in range(12_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError("asked 12,000 times, and what the test waits for has not happened")


def assert_foreign(ledger: KeptLedger, words: str) -> None:
    """Whatever was refused is of no member, with the connection's place and these words."""
    for edge, reason, what in ledger.refusals:
        assert (edge, reason) == (None, "foreign")
        assert "a connection from 127.0.0.1, port " in what
        assert words in what
