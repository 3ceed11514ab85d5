"""Connections over which nobody proves anything are few, whatever is said over them, and leave members a way in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from netdfl.core.bounds import CONNECTIONS_A_PROCESS, MOST_VISITORS, VISITORS, MemoryBounds
from netdfl.core.clock import RealClock
from netdfl.core.control import Hello
from netdfl.core.types import unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport.base import Ledger
from netdfl.transport.control.attendance import ControlClient, ControlServer, control_channels
from netdfl.transport.grpc.options import GrpcOptions
from netdfl.transport.grpc.transport import GrpcTransport
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.identity import Identity
from netdfl.transport.security.secret import FleetSecret
from netdfl.transport.security.visitors import LOOK_S
from netdfl.transport.wire import PROTOCOL_VERSION
from tests.hostile.connections import SAID, Holder, holding

RUN_ID = b"run-0001"
SECRET = FleetSecret(text="secret")
PLACES = 100
OPTIONS = GrpcOptions(connections=PLACES, close_grace=50_000_000)


def node(number: int, ledger: Ledger, authority: Authority | None) -> GrpcTransport:
    return GrpcTransport(
        Identity(number, 0, RUN_ID, "abc"),
        "127.0.0.1:0",
        clock=RealClock(),
        ledger=ledger,
        options=OPTIONS,
        secret=SECRET,
        credentials=authority and authority.issue(number, 0),
    )


@asynccontextmanager
async def two_nodes(ledger: Ledger, tls: bool) -> AsyncIterator[tuple[GrpcTransport, GrpcTransport]]:
    """Node 0, to which node 1 has not spoken yet."""
    authority = Authority.make(RUN_ID.hex()) if tls else None
    nodes = node(0, ledger, authority), node(1, ledger, authority)
    addresses = [await each.start() for each in nodes]
    for me, peer in ((0, 1), (1, 0)):
        nodes[me].set_peer(peer, addresses[peer])
    nodes[0].attach(KeptSink())
    try:
        yield nodes
    finally:
        for each in reversed(nodes):
            await each.aclose()


async def say(nodes: tuple[GrpcTransport, GrpcTransport], ledger: KeptLedger, round: int) -> None:
    """Node 1 gets a message to node 0."""
    await nodes[1].send(unicasts([data_message((1, 0), round, vector_payload(np.zeros(5, np.float32)))]))
    await ledger.until_settled(round + 1)
    assert ledger.rows[round].fate.text == "delivered"


WAYS = [(said, tls) for tls in (False, True) for said in SAID if (said, tls) != ("HTTP/2", True)]
SAMPLE = "HTTP/2", False


@pytest.mark.parametrize(
    ("said", "tls"), [pytest.param(*way, marks=[] if way == SAMPLE else [pytest.mark.soak]) for way in WAYS]
)
async def test_a_member_comes_in_though_strangers_hold_all_places_and_is_never_sent_away(said: str, tls: bool) -> None:
    ledger = KeptLedger()
    async with two_nodes(ledger, tls) as nodes:
        with holding(nodes[0].address, said, PLACES + 50) as strangers:
            await until_at_most(PLACES, strangers)
            assert strangers.count() > MOST_VISITORS
            await say(nodes, ledger, 0)
            await asyncio.to_thread(strangers.open, PLACES)  # they take what is free
            await until_at_most(MOST_VISITORS, strangers)
            await say(nodes, ledger, 1)
            assert strangers.count() == MOST_VISITORS, "no more of them are ended than must be"
    said_of = {what for _, _, what in ledger.refusals if "over which nobody proved the secret were ended" in what}
    assert said_of
    assert all(what.endswith(f"at most {MOST_VISITORS} may stay (from 127.0.0.1)") for what in said_of)
    assert [row.fate.text for row in ledger.rows] == ["delivered"] * 2


async def test_as_many_connections_of_strangers_as_may_stay_are_left_alone() -> None:
    ledger = KeptLedger()
    async with two_nodes(ledger, False) as nodes:
        await say(nodes, ledger, 0)
        with holding(nodes[0].address, "HTTP/2", MOST_VISITORS) as strangers:
            await asyncio.sleep(2.2 * LOOK_S)
            assert strangers.count() == MOST_VISITORS
    assert ledger.refusals == []


async def test_a_node_attends_at_a_supervisor_whose_places_strangers_hold() -> None:
    refused: list[str] = []
    server = ControlServer(SECRET, lambda who, report: None, on_refused=refused.append, num_nodes=1)
    address = await server.start()
    server.expect(0, 0)
    try:
        with holding(address, "HTTP/2", CONNECTIONS_A_PROCESS + VISITORS + 50) as strangers:
            await until_at_most(CONNECTIONS_A_PROCESS + VISITORS, strangers)
            hello = Hello(node=0, role="client", pid=1, address="here", protocol_version=PROTOCOL_VERSION)
            heard = lambda *told: None  # noqa: E731
            client = await ControlClient.connect(address, hello, heard, heard, control_channels(SECRET))
            await client.aclose()
            await until_at_most(MOST_VISITORS, strangers)
    finally:
        await server.aclose()
    assert any("over which nobody proved the secret" in what for what in refused)


def test_a_port_has_places_for_the_processes_of_its_fleet_and_for_few_strangers() -> None:
    def places(**more: Any) -> int:
        return MemoryBounds.of(num_nodes=100, peers=4, directed=False, dim=10, **more).connections - VISITORS

    assert places(together=1) == 100 * CONNECTIONS_A_PROCESS
    assert places(together=30) == 4 * CONNECTIONS_A_PROCESS
    assert places(together=30, tls=True) == 100 * CONNECTIONS_A_PROCESS


async def until_at_most(number: int, strangers: Holder) -> None:
    """Return when at most so many connections are left; TimeoutError after a minute."""
    for _ in range(3000):
        if strangers.count() <= number:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{strangers.count()} connections are left")
