"""Nodes that share a process share a server and connections: each gets its own, and leaves alone."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bare_client import HELLO, channel, to
from grpc_fleet import OPTIONS, RUN_ID, make, until

from netdfl.core.types import Kind, Payload, unicasts
from netdfl.testing.transports import TRANSPORT_CHECKS, KeptLedger, KeptSink, data_message
from netdfl.transport import wire
from netdfl.transport.base import Fate
from netdfl.transport.shared_memory.memory import SharedMemory
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest
from tests.transport.checks import FULL_MAILBOX_RARELY
from tests.transport.grpc_processes import SMALL, attach_all, crossing, fleet_in_processes, send_all


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.soak), 3])
async def test_conformance(check: Any, size: int) -> None:
    await check(partial(fleet_in_processes, size=size))


@pytest.mark.parametrize("check", FULL_MAILBOX_RARELY)
async def test_conformance_in_chunks(check: Any) -> None:
    await check(partial(fleet_in_processes, options=replace(OPTIONS, frame_max=100, chunk=30_000)))


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance_with_bodies_in_shared_memory(check: Any) -> None:
    await check(partial(fleet_in_processes, memory=SharedMemory(range(3), 1 << 24, 0)))


def connections(port: int) -> int:
    """How many callers are connected to `port` of this machine."""
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return sum(row[3] == "01" and int(row[1].rpartition(":")[2], 16) == port for row in rows)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux lists its connections so")
async def test_two_processes_have_a_connection_for_messages_and_one_for_heartbeats() -> None:
    size, ledger = 5, KeptLedger()
    async with fleet_in_processes(2 * size, ledger, size=size) as transports:
        sinks = attach_all(transports)
        port = int(transports[-1].address.rpartition(":")[2])
        assert {transport.address for transport in transports[size:]} == {transports[-1].address}
        assert connections(port) == 0
        await send_all(transports, crossing(0, size))
        await ledger.until_settled(size * size)
        assert connections(port) == 1
        beats = [message._replace(kind=Kind.HEARTBEAT, payload=Payload()) for message in crossing(1, size)]
        await send_all(transports, beats)
        await ledger.until_settled(2 * size * size)
        assert connections(port) == 2
        came = [Counter(message.src for message in sink.messages) for sink in sinks]
        assert came == [Counter()] * size + [Counter(dict.fromkeys(range(size), 2))] * size
        for transport in transports[: size - 1]:
            await transport.aclose()
        assert connections(port) == 2
        await transports[size - 1].aclose()
        await until(lambda: connections(port) == 0)
    assert {row.fate.text for row in ledger.rows} == {"delivered"}
    assert ledger.refusals == []


async def test_a_node_that_leaves_can_be_reached_no_more_and_the_others_go_on() -> None:
    ledger = KeptLedger()
    async with fleet_in_processes(4, ledger) as transports:
        attach_all(transports)
        transports[2].attach(full := KeptSink(capacity=0))
        await send_all(transports, [data_message((0, dst), 0, SMALL) for dst in (2, 3)])
        await ledger.until_settled(1)
        await full.until_waiting()
        await transports[2].aclose()
        await ledger.until_settled(2)
        await send_all(transports, [data_message((src, dst), 1, SMALL) for src in (0, 1) for dst in (2, 3)])
        await transports[3].send(unicasts([data_message((3, 0), 1, SMALL)]))
        await ledger.until_settled(7)
        full.make_room()
        assert full.messages == []
    fates = {(row.message.src, row.message.dst, row.message.round): row.fate.text for row in ledger.rows}
    assert fates == {
        (0, 2, 0): "in_flight",
        (0, 3, 0): "delivered",
        (0, 2, 1): "failed:unavailable",
        (1, 2, 1): "failed:unavailable",
        (0, 3, 1): "delivered",
        (1, 3, 1): "delivered",
        (3, 0, 1): "delivered",
    }
    assert ledger.refusals == []


async def test_an_outlet_that_closes_ends_its_own_calls_alone() -> None:
    ledger = KeptLedger()
    async with fleet_in_processes(4, ledger) as transports:
        sinks = attach_all(transports)
        transports[2].attach(KeptSink(capacity=0))
        transports[3].attach(full := KeptSink(capacity=0))
        await send_all(transports, [data_message((0, dst), 0, SMALL) for dst in (2, 3)])
        transports[0].set_gone(2)
        assert [(row.message.dst, row.fate.text) for row in ledger.rows] == [(2, "failed:gone")]
        full.make_room()
        await ledger.until_settled(2)
        assert ledger.rows[-1].fate == Fate.DELIVERED
        transports[0].set_peer(2, transports[2].address)
        transports[2].attach(sinks[2])
        await transports[0].send(unicasts([data_message((0, 2), 1, SMALL)]))
        await ledger.until_settled(3)
    assert ledger.rows[-1].fate == Fate.DELIVERED


async def test_a_later_life_of_a_node_is_reached_at_its_own_address() -> None:
    ledger = KeptLedger()
    async with fleet_in_processes(4, ledger) as transports:
        sinks = attach_all(transports)
        await transports[0].send(unicasts([data_message((0, 2), 0, SMALL)]))
        await ledger.until_settled(1)
        await transports[2].aclose()
        again = make(2, ledger, epoch=1)
        address = await again.start()
        again.attach(sink := KeptSink())
        for node in (0, 1, 3):
            transports[node].set_peer(2, address, 1)
            again.set_peer(node, transports[node].address)
        await send_all(transports, [data_message((node, 2), 1, SMALL) for node in (0, 1, 3)])
        await again.send(unicasts([data_message((2, 3), 1, SMALL)._replace(epoch=1)]))
        await ledger.until_settled(5)
        await again.aclose()
    assert {row.fate.text for row in ledger.rows} == {"delivered"}
    assert sorted(message.src for message in sink.messages) == [0, 1, 3]
    assert [len(each.messages) for each in sinks] == [0, 0, 1, 1]


async def test_whoever_asks_for_no_node_or_one_that_is_elsewhere_is_refused() -> None:
    ledgers = [KeptLedger() for _ in range(4)]
    async with fleet_in_processes(4, ledgers) as transports:
        said = HelloRequest(
            protocol_version=wire.PROTOCOL_VERSION, run_id=RUN_ID, scenario_hash="abc", node=0, callee=2
        )
        async with channel(transports[3].address, None) as opened:
            call = opened.unary_unary(HELLO, None, HelloReply.FromString)
            for metadata in (to(2)[1:], to(0)):
                assert (await call(said.SerializeToString(), metadata=metadata)).reason == "not of this fleet"
            assert (await call(said.SerializeToString(), metadata=to(2))).accepted
        await transports[2].aclose()
        transports[0].set_peer(1, transports[3].address, epoch=1)
        await transports[0].send(unicasts([data_message((0, 1), 0, SMALL)]))
        await ledgers[0].until_settled(1)
    assert [row.fate.text for row in ledgers[0].rows] == ["refused:foreign"]
    assert ledgers[0].refusals[0][2].endswith("refuses node 0: not of this fleet")
    assert [what for each in ledgers[2:] for _, _, what in each.refusals if "Hello: not of this fleet" in what]


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="only Linux tells of connections that ended")
async def test_a_stranger_at_a_shared_port_is_counted_once() -> None:
    ledgers = [KeptLedger() for _ in range(6)]
    async with fleet_in_processes(6, ledgers, size=3) as transports:
        host, _, port = transports[3].address.rpartition(":")

        async def come() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()

        await come()
        await ledgers[3].until_refused(1)
        await transports[3].aclose()
        await come()
        await ledgers[4].until_refused(1)
    assert [len(ledger.refusals) for ledger in ledgers] == [0, 0, 0, 1, 1, 0]
