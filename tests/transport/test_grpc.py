"""The gRPC transport keeps the contract of transports, and its own of peers that come and go."""

from __future__ import annotations

import asyncio
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from grpc_fleet import OPTIONS, RUN_ID, connect, grpc_fleet, make, until

from netdfl.core.errors import MachineError
from netdfl.core.types import Kind, Message, Payload, unicasts
from netdfl.testing.transports import TRANSPORT_CHECKS, KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport import wire
from netdfl.transport.base import Fate
from netdfl.transport.security.authority import Authority
from tests.transport.checks import FULL_MAILBOX_RARELY

MS = 1_000_000


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance(check):
    await check(grpc_fleet)


@pytest.mark.parametrize("check", FULL_MAILBOX_RARELY)
async def test_conformance_in_chunks(check):
    options = replace(OPTIONS, frame_max=100, chunk=30_000)
    await check(partial(grpc_fleet, options=options))


@pytest.mark.parametrize("check", FULL_MAILBOX_RARELY)
async def test_conformance_with_tls(check):
    await check(partial(grpc_fleet, authority=Authority.make(RUN_ID.hex())))


async def test_a_large_message_arrives_whole():
    vector = np.random.default_rng(0).random(1 << 24, np.float32)
    ledger, sink = KeptLedger(), KeptSink()
    async with grpc_fleet(2, ledger, replace(OPTIONS, max_message=1 << 27)) as (a, b):
        b.attach(sink)
        message = data_message((0, 1), 0, vector_payload(vector))
        await a.send(unicasts([message]))
        await ledger.until_settled(1)
    assert ledger.rows[0].fate.text == "delivered"
    assert ledger.rows[0].nbytes == wire.frame_size(message.payload)
    assert np.array_equal(np.frombuffer(sink.messages[0].payload.arrays["x"].data, np.float32), vector)


async def test_an_oversized_message_is_refused_before_a_byte_is_stored():
    ledger, sink = KeptLedger(), KeptSink()
    payload = vector_payload(np.zeros(1 << 23, np.float32))
    async with grpc_fleet(2, ledger, replace(OPTIONS, max_message=1 << 24)) as (a, b):
        b.attach(sink)
        wire.FrameWriter.body(payload)
        tracemalloc.start()
        await a.send(unicasts([data_message((0, 1), 0, payload), data_message((0, 1), 1, vector_payload(np.zeros(3)))]))
        await ledger.until_settled(2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [row.fate.text for row in ledger.rows] == ["refused:oversized", "delivered"]
    assert [(edge, reason) for edge, reason, _ in ledger.refusals] == [((0, 1), "oversized")]
    assert [m.round for m in sink.messages] == [1]
    assert peak < 1 << 23


async def test_a_small_oversized_message_is_refused_and_counted():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger, replace(OPTIONS, max_message=1000)) as (a, b):
        b.attach(KeptSink())
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(300)))]))
        await ledger.until_settled(1)
    assert ledger.rows[0].fate.text == "refused:oversized"
    assert [reason for _, reason, _ in ledger.refusals] == ["oversized"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"run_id": b"run-0002"}, "another run"),
        ({"scenario_hash": "abd"}, "another scenario abd, expected abc"),
    ],
)
async def test_a_node_of_another_fleet_is_refused_with_both_values(changed, words):
    ledger = KeptLedger()
    transports = [make(0, ledger, **changed), make(1, ledger)]
    await connect(transports)
    transports[1].attach(sink := KeptSink())
    await transports[0].send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(3)))]))
    await ledger.until_settled(1)
    assert ledger.rows[0].fate.text == "refused:foreign"
    assert words in ledger.refusals[0][2]
    assert not sink.messages
    for transport in transports:
        await transport.aclose()


async def test_a_channel_that_reaches_the_wrong_node_is_refused():
    ledger = KeptLedger()
    async with grpc_fleet(3, ledger) as (a, b, c):
        c.attach(sink := KeptSink())
        a.set_peer(1, c.address, epoch=1)
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(3)))]))
        await ledger.until_settled(1)
        assert ledger.rows[0].fate.text == "refused:foreign"
        assert sorted(edge or () for edge, _, _ in ledger.refusals) == [(), (0, 1)]
        assert all("not of this fleet" in what for _, _, what in ledger.refusals)
        assert not sink.messages
        assert b.address != c.address


async def test_a_message_outlives_its_calls_deadline_at_a_full_mailbox():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger, replace(OPTIONS, call_deadline=100 * MS)) as (a, b):
        b.attach(sink := KeptSink(capacity=0))
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
        await asyncio.sleep(0.3)
        assert not ledger.rows
        sink.make_room()
        await ledger.until_settled(1)
    assert [row.fate.text for row in ledger.rows] == ["delivered"]
    assert len(sink.messages) == 1


async def test_messages_that_come_before_the_sink_wait_for_it():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as (a, b):
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
        await asyncio.sleep(0.1)
        b.attach(sink := KeptSink())
        await sink.until(1)


async def test_a_hello_waits_until_the_callee_knows_its_peers():
    ledger = KeptLedger()
    a, b = make(0, ledger), make(1, ledger)
    await a.start()
    a.set_peer(1, await b.start())
    b.attach(KeptSink())
    await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
    await asyncio.sleep(0.1)
    b.set_peer(0, a.address)
    await ledger.until_settled(1)
    assert ledger.rows[0].fate.text == "delivered"
    await asyncio.gather(a.aclose(), b.aclose())


@asynccontextmanager
async def peer_process(peer_address: str, epoch: int = 0) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Node 1 in a process of its own, and its address."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parent)])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("peer.py")),
        "1",
        peer_address,
        str(epoch),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path, "GRPC_VERBOSITY": "NONE"},
    )
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_killed_peer_fails_promptly_other_edges_go_on_and_it_can_return():
    ledger = KeptLedger()
    payload = vector_payload(np.zeros(100_000))
    async with grpc_fleet(3, ledger) as (a, b, c):
        await b.aclose()
        c.attach(KeptSink())
        async with peer_process(a.address) as (process, address):
            a.set_peer(1, address, epoch=1)
            await a.send(unicasts([data_message((0, 1), 0, payload)]))
            await ledger.until_settled(1)
            process.kill()
            await process.wait()
        await a.send(unicasts([data_message((0, dst), t, payload) for t in (1, 2, 3) for dst in (1, 2)]))
        await ledger.until_settled(7)
        async with peer_process(a.address, epoch=1) as (_, address):
            a.set_peer(1, address, epoch=2)
            await a.send(unicasts([data_message((0, 1), 4, payload)]))
            await ledger.until_settled(8)
    fates = {(row.message.dst, row.message.round): row.fate.text for row in ledger.rows}
    assert [fates[1, t] for t in range(5)] == ["delivered", *["failed:unavailable"] * 3, "delivered"]
    assert [fates[2, t] for t in (1, 2, 3)] == ["delivered"] * 3


@pytest.mark.parametrize("delay_s", [0.0, 0.03, pytest.param(0.1, marks=pytest.mark.soak)])
async def test_a_peer_killed_in_the_middle_of_a_large_message_settles_it(delay_s):
    ledger = KeptLedger()
    payload = vector_payload(np.zeros(5_000_000, np.float32))
    async with grpc_fleet(2, ledger) as (a, b):
        await b.aclose()
        async with peer_process(a.address) as (process, address):
            a.set_peer(1, address, epoch=1)
            await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(3)))]))
            await ledger.until_settled(1)
            await a.send(unicasts([data_message((0, 1), t, payload) for t in range(1, 10)]))
            await asyncio.sleep(delay_s)
            process.kill()
        await ledger.until_settled(10)
    fates = [row.fate.text for row in ledger.rows]
    assert set(fates) <= {"delivered", "failed:unavailable"}
    assert fates == sorted(fates), "a message was delivered by a dead peer"


async def test_what_is_queued_for_a_peer_that_is_given_up_fails_as_gone():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as (a, b):
        b.attach(sink := KeptSink(capacity=0))
        await a.send(unicasts([data_message((0, 1), t, vector_payload(np.zeros(5))) for t in range(3)]))
        a.set_gone(1)
        a.set_gone(1)
        await a.send(unicasts([data_message((0, 1), 3, vector_payload(np.zeros(5)))]))
        assert [(row.message.round, row.fate.text) for row in ledger.rows] == [(t, "failed:gone") for t in range(4)]
        a.set_peer(1, b.address)
        sink.make_room()
        await a.send(unicasts([data_message((0, 1), 4, vector_payload(np.zeros(5)))]))
        await ledger.until_settled(5)
        assert ledger.rows[-1].fate == Fate.DELIVERED


async def test_a_blocked_send_goes_on_when_its_peer_is_given_up():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger, replace(OPTIONS, queue_messages=2)) as (a, b):
        b.attach(KeptSink(capacity=0))
        messages = [data_message((0, 1), t, vector_payload(np.zeros(5))) for t in range(4)]
        sending = asyncio.create_task(a.send(unicasts(messages)))
        await until(lambda: len(ledger.handed) == 2)
        assert not sending.done()
        a.set_gone(1)
        await sending
        assert [row.fate.text for row in ledger.rows] == ["failed:gone"] * 4


async def test_a_receiver_restarted_behind_the_same_address_is_greeted_again():
    ledger = KeptLedger()
    payload = vector_payload(np.zeros(5))
    a, b = make(0, ledger), make(1, ledger)
    await connect([a, b])
    b.attach(KeptSink())
    await a.send(unicasts([data_message((0, 1), 0, payload)]))
    await ledger.until_settled(1)
    await b.aclose()
    again = make(1, ledger, epoch=1)
    again.address = b.address
    await again.start()
    again.set_peer(0, a.address)
    again.attach(sink := KeptSink())
    for t in range(1, 1000):
        await a.send(unicasts([data_message((0, 1), t, payload)]))
        await ledger.until_settled(t + 1)
        if sink.messages:
            break
        await asyncio.sleep(0.02)
    assert ledger.rows[-1].fate == Fate.DELIVERED
    await asyncio.gather(a.aclose(), again.aclose())


async def test_a_heartbeat_passes_data_that_waits():
    async with grpc_fleet(2, KeptLedger()) as (a, b):
        b.attach(deaf := Deaf())
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
        await a.send(unicasts([Message(0, 1, Kind.HEARTBEAT, 0, 0, 0, 0, Payload())]))
        await deaf.until(1)


class Deaf(KeptSink):
    """Takes heartbeats only."""

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        (message,) = messages
        return super().deliver(messages) if message.kind is Kind.HEARTBEAT else [None]


async def test_a_port_in_use_is_one_clear_line():
    first = make(0)
    await first.start()
    second = make(1)
    second.address = first.address
    with pytest.raises(MachineError, match="port in use"):
        await second.start()
    await first.aclose()
    await second.aclose()


async def test_nothing_runs_on_after_close():
    async with grpc_fleet(3, KeptLedger()) as (a, b, _):
        b.attach(KeptSink(capacity=0))
        await a.send(unicasts([data_message((0, dst), 0, vector_payload(np.zeros(5))) for dst in (1, 2)]))
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_a_peer_that_is_gone_before_it_was_ever_known_is_sent_nothing():
    ledger = KeptLedger()
    a = make(0, ledger)
    await a.start()
    a.set_gone(1)
    await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
    assert [row.fate.text for row in ledger.rows] == ["failed:gone"]
    async with grpc_fleet(2, ledger) as (_, b):
        b.attach(sink := KeptSink())
        b.set_peer(0, a.address)
        a.set_peer(1, b.address)
        await a.send(unicasts([data_message((0, 1), 1, vector_payload(np.zeros(5)))]))
        await ledger.until_settled(2)
        assert len(sink.messages) == 1
    await a.aclose()
