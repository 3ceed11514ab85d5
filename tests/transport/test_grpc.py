"""The gRPC transport keeps the contract of transports, and its own of peers that come, go and lie."""

from __future__ import annotations

import asyncio
import os
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import pytest
from grpc_fleet import OPTIONS, RUN_ID, connect, grpc_fleet, make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdfl.core.errors import MachineError
from netdfl.core.types import Kind, Message, Payload
from netdfl.testing.transports import TRANSPORT_CHECKS, KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport import wire
from netdfl.transport.base import Fate
from netdfl.transport.chunks import split
from netdfl.transport.identity import Identity
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest, Receipt

MS = 1_000_000
NODE = "/netdfl.v1.Node"


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance(check):
    await check(grpc_fleet)


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance_in_chunks(check):
    options = replace(OPTIONS, frame_max=100, chunk=30_000)
    await check(partial(grpc_fleet, options=options))


async def test_a_large_message_arrives_whole():
    vector = np.random.default_rng(0).random(1 << 24, np.float32)
    ledger, sink = KeptLedger(), KeptSink()
    async with grpc_fleet(2, ledger, replace(OPTIONS, max_message=1 << 27)) as (a, b):
        b.attach(sink)
        message = data_message((0, 1), 0, vector_payload(vector))
        await a.send([message])
        await ledger.until_settled(1)
    assert ledger.rows[0].fate == Fate.DELIVERED
    assert ledger.rows[0].nbytes == wire.frame_size(message)
    assert np.array_equal(np.frombuffer(sink.messages[0].payload.arrays["x"].data, np.float32), vector)


async def test_an_oversized_message_is_refused_before_a_byte_is_stored():
    ledger, sink = KeptLedger(), KeptSink()
    payload = vector_payload(np.zeros(1 << 23, np.float32))
    async with grpc_fleet(2, ledger, replace(OPTIONS, max_message=1 << 24)) as (a, b):
        b.attach(sink)
        wire.body_parts(payload)
        tracemalloc.start()
        await a.send([data_message((0, 1), 0, payload), data_message((0, 1), 1, vector_payload(np.zeros(3)))])
        await ledger.until_settled(2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [row.fate for row in ledger.rows] == ["refused:oversized", Fate.DELIVERED]
    assert [(edge, reason) for edge, reason, _ in ledger.refusals] == [((0, 1), "oversized")]
    assert [m.round for m in sink.messages] == [1]
    assert peak < 1 << 23


async def test_a_small_oversized_message_is_refused_and_counted():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger, replace(OPTIONS, max_message=1000)) as (a, b):
        b.attach(KeptSink())
        await a.send([data_message((0, 1), 0, vector_payload(np.zeros(300)))])
        await ledger.until_settled(1)
    assert ledger.rows[0].fate == "refused:oversized"
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
    await transports[0].send([data_message((0, 1), 0, vector_payload(np.zeros(3)))])
    await ledger.until_settled(1)
    assert ledger.rows[0].fate == "refused:foreign"
    assert words in ledger.refusals[0][2]
    assert not sink.messages
    for transport in transports:
        await transport.aclose()


async def test_a_channel_that_reaches_the_wrong_node_is_refused():
    ledger = KeptLedger()
    async with grpc_fleet(3, ledger) as (a, b, c):
        c.attach(sink := KeptSink())
        a.set_peer(1, c.address, epoch=1)
        await a.send([data_message((0, 1), 0, vector_payload(np.zeros(3)))])
        await ledger.until_settled(1)
        assert ledger.rows[0].fate == "refused:foreign"
        assert "takes for node 1, expected 2" in ledger.refusals[0][2]
        assert not sink.messages
        assert b.address != c.address


@asynccontextmanager
async def bare_client(address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A stranger's channel, with raw bytes."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


async def say_hello(channel: grpc.aio.Channel, node: int = 0, epoch: int = 0) -> HelloReply:
    hello = channel.unary_unary(f"{NODE}/Hello", HelloRequest.SerializeToString, HelloReply.FromString)
    return await hello(Identity(node, epoch, RUN_ID, "abc").greeting(1))


async def push(channel: grpc.aio.Channel, data: bytes) -> str:
    stream = channel.stream_stream(f"{NODE}/Push", None, Receipt.FromString)(timeout=30)
    await stream.write(data)
    receipt: Receipt = await stream.read()
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    return receipt.fate


def frame(round_: int = 0, epoch: int = 0, src: int = 0) -> bytes:
    payload = vector_payload(np.ones(5, np.float32))
    return wire.encode(Message(src, 1, Kind.DATA, epoch, round_, 0, 0, payload), RUN_ID, 0)


async def test_only_peers_that_said_hello_are_heard_and_only_in_their_newest_epoch():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as (_, b), bare_client(b.address) as channel:
        b.attach(sink := KeptSink())
        assert await push(channel, frame()) == "refused:hello_first"
        assert not (await say_hello(channel, node=7)).accepted
        assert (await say_hello(channel, epoch=2)).accepted
        assert await push(channel, frame(epoch=1)) == "refused:stale_epoch"
        assert await push(channel, frame(epoch=3)) == "refused:hello_first"
        assert not (await say_hello(channel, epoch=1)).accepted
        assert await push(channel, frame(epoch=2).replace(RUN_ID, b"run-0009")) == "refused:foreign"
        assert not sink.messages
        assert await push(channel, frame(epoch=2)) == Fate.DELIVERED
        assert len(ledger.refusals) == 6


async def test_hostile_bytes_change_nothing_and_are_counted():
    ledger = KeptLedger()
    good = frame()

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=100) | st.integers(0, len(good) - 1).map(lambda n: good[:n]))
    def examples(data: bytes) -> None:
        hostile.append(data)

    hostile: list[bytes] = []
    examples()
    async with grpc_fleet(2, ledger) as (_, b), bare_client(b.address) as channel:
        b.attach(sink := KeptSink())
        await say_hello(channel)
        stream = channel.stream_unary(f"{NODE}/PushChunks", None, Receipt.FromString)
        for data in hostile:
            assert (await push(channel, data)).startswith("refused:")
            receipt = await stream(iter([data]), timeout=30)
            assert receipt.fate.startswith("refused:")
        assert len(ledger.refusals) == 2 * len(hostile)
        nonsense = await channel.unary_unary(f"{NODE}/Hello", None, HelloReply.FromString)(b"\xff\xff")
        assert not nonsense.accepted
        assert len(ledger.refusals) == 2 * len(hostile) + 1
        assert not sink.messages
        assert await push(channel, good) == Fate.DELIVERED


async def test_a_stream_that_breaks_off_changes_nothing():
    ledger = KeptLedger()
    message = data_message((0, 1), 0, vector_payload(np.zeros(5000)))
    pieces = list(split(wire.encode_header(message, RUN_ID, 0), wire.body_parts(message.payload), 1000))
    async with grpc_fleet(2, ledger) as (_, b), bare_client(b.address) as channel:
        b.attach(sink := KeptSink())
        await say_hello(channel)
        stream = channel.stream_unary(f"{NODE}/PushChunks", None, Receipt.FromString)
        assert (await stream(iter(pieces[:-1]), timeout=30)).fate == "refused:malformed"
        call = stream(timeout=30)
        await call.write(pieces[0])
        await call.initial_metadata()
        call.cancel()
        assert (await stream(iter(pieces), timeout=30)).fate == Fate.DELIVERED
        assert len(sink.messages) == 1


async def test_calls_that_wait_at_a_full_mailbox_are_bounded():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as (_, b), bare_client(b.address) as channel:
        b.attach(sink := KeptSink(capacity=0))
        await say_hello(channel)
        calls = [asyncio.create_task(push(channel, frame(round_))) for round_ in range(20)]
        await ledger.until_refused(20 - OPTIONS.waiting_calls)
        sink.make_room()
        fates = Counter(await asyncio.gather(*calls))
    assert fates == {"refused:overloaded": 20 - OPTIONS.waiting_calls, Fate.DELIVERED: OPTIONS.waiting_calls}


async def test_a_message_outlives_its_calls_deadline_at_a_full_mailbox():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger, replace(OPTIONS, call_deadline=100 * MS)) as (a, b):
        b.attach(sink := KeptSink(capacity=0))
        await a.send([data_message((0, 1), 0, vector_payload(np.zeros(5)))])
        await asyncio.sleep(0.3)
        assert not ledger.rows
        sink.make_room()
        await ledger.until_settled(1)
    assert [row.fate for row in ledger.rows] == [Fate.DELIVERED]
    assert len(sink.messages) == 1


async def test_messages_that_come_before_the_sink_wait_for_it():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as (a, b):
        await a.send([data_message((0, 1), 0, vector_payload(np.zeros(5)))])
        await asyncio.sleep(0.1)
        b.attach(sink := KeptSink())
        await sink.until(1)


async def test_a_hello_waits_until_the_callee_knows_its_peers():
    ledger = KeptLedger()
    a, b = make(0, ledger), make(1, ledger)
    await a.start()
    a.set_peer(1, await b.start())
    b.attach(KeptSink())
    await a.send([data_message((0, 1), 0, vector_payload(np.zeros(5)))])
    await asyncio.sleep(0.1)
    b.set_peer(0, a.address)
    await ledger.until_settled(1)
    assert ledger.rows[0].fate == Fate.DELIVERED
    await asyncio.gather(a.aclose(), b.aclose())


async def test_a_peer_that_never_answers_costs_its_deadline_and_no_other_edge():
    ledger = KeptLedger()

    async def never(request: HelloRequest, context: object) -> HelloReply:
        await asyncio.Event().wait()
        return HelloReply()

    server = grpc.aio.server()
    hello = grpc.unary_unary_rpc_method_handler(never, HelloRequest.FromString, HelloReply.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("netdfl.v1.Node", {"Hello": hello}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc_fleet(3, ledger, replace(OPTIONS, call_deadline=200 * MS)) as (a, _, c):
        c.attach(KeptSink())
        a.set_peer(1, f"127.0.0.1:{port}", epoch=1)
        payload = vector_payload(np.zeros(5))
        await a.send([data_message((0, 1), 0, payload), data_message((0, 2), 0, payload)])
        await ledger.until_settled(2)
    await server.stop(None)
    assert [(row.message.dst, row.fate) for row in ledger.rows] == [(2, Fate.DELIVERED), (1, "failed:deadline")]


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
            await a.send([data_message((0, 1), 0, payload)])
            await ledger.until_settled(1)
            process.kill()
            await process.wait()
        await a.send([data_message((0, dst), t, payload) for t in (1, 2, 3) for dst in (1, 2)])
        await ledger.until_settled(7)
        async with peer_process(a.address, epoch=1) as (_, address):
            a.set_peer(1, address, epoch=2)
            await a.send([data_message((0, 1), 4, payload)])
            await ledger.until_settled(8)
    fates = {(row.message.dst, row.message.round): row.fate for row in ledger.rows}
    assert [fates[1, t] for t in range(5)] == [Fate.DELIVERED, *["failed:unavailable"] * 3, Fate.DELIVERED]
    assert [fates[2, t] for t in (1, 2, 3)] == [Fate.DELIVERED] * 3


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.1])
async def test_a_peer_killed_in_the_middle_of_a_large_message_settles_it(delay_s):
    ledger = KeptLedger()
    payload = vector_payload(np.zeros(5_000_000, np.float32))
    async with grpc_fleet(2, ledger) as (a, b):
        await b.aclose()
        async with peer_process(a.address) as (process, address):
            a.set_peer(1, address, epoch=1)
            await a.send([data_message((0, 1), 0, vector_payload(np.zeros(3)))])
            await ledger.until_settled(1)
            await a.send([data_message((0, 1), t, payload) for t in range(1, 10)])
            await asyncio.sleep(delay_s)
            process.kill()
        await ledger.until_settled(10)
    fates = [row.fate for row in ledger.rows]
    assert set(fates) <= {Fate.DELIVERED, "failed:unavailable"}
    assert fates == sorted(fates), "a message was delivered by a dead peer"


async def test_a_peer_that_answers_nonsense_fails_that_message_alone():
    ledger = KeptLedger()

    async def nonsense(request: bytes, context: object) -> bytes:
        return b"\xff\xff\xff"

    async def more_nonsense(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            yield b"\xff\xff\xff"

    server = grpc.aio.server()
    methods = {
        "Hello": grpc.unary_unary_rpc_method_handler(nonsense),
        "Push": grpc.stream_stream_rpc_method_handler(more_nonsense),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("netdfl.v1.Node", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc_fleet(2, ledger) as (a, _):
        a.set_peer(1, f"127.0.0.1:{port}", epoch=1)
        await a.send([data_message((0, 1), t, vector_payload(np.zeros(5))) for t in range(3)])
        await ledger.until_settled(3)
    await server.stop(None)
    assert {row.fate for row in ledger.rows} == {"failed:broken_call"}


async def test_a_message_on_a_stream_that_has_ended_goes_over_a_new_one():
    ledger = KeptLedger()
    served: list[bytes] = []

    async def greet(request: bytes, context: object) -> bytes:
        return HelloReply(accepted=True).SerializeToString()

    async def one(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        served.append(await anext(requests))
        yield Receipt(fate=Fate.DELIVERED).SerializeToString()

    server = grpc.aio.server()
    methods = {"Hello": grpc.unary_unary_rpc_method_handler(greet), "Push": grpc.stream_stream_rpc_method_handler(one)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("netdfl.v1.Node", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc_fleet(2, ledger) as (a, _):
        a.set_peer(1, f"127.0.0.1:{port}", epoch=1)
        for t in range(3):
            await a.send([data_message((0, 1), t, vector_payload(np.zeros(5)))])
            await ledger.until_settled(t + 1)
            await asyncio.sleep(0.05)
    await server.stop(None)
    assert [row.fate for row in ledger.rows] == [Fate.DELIVERED] * 3
    assert len(served) == 3


async def test_a_receiver_that_never_answers_costs_a_message_its_deadline_and_no_other():
    ledger = KeptLedger()
    silent = True

    async def greet(request: bytes, context: object) -> bytes:
        return HelloReply(accepted=True).SerializeToString()

    async def listen(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            if not silent:
                yield Receipt(fate=Fate.DELIVERED).SerializeToString()

    server = grpc.aio.server()
    methods = {
        "Hello": grpc.unary_unary_rpc_method_handler(greet),
        "Push": grpc.stream_stream_rpc_method_handler(listen),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("netdfl.v1.Node", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc_fleet(2, ledger, replace(OPTIONS, call_deadline=300_000_000)) as (a, _):
        a.set_peer(1, f"127.0.0.1:{port}", epoch=1)
        await a.send([data_message((0, 1), 0, vector_payload(np.zeros(5)))])
        await ledger.until_settled(1)
        silent = False
        await a.send([data_message((0, 1), 1, vector_payload(np.zeros(5)))])
        await ledger.until_settled(2)
    await server.stop(None)
    assert [row.fate for row in ledger.rows] == ["failed:deadline", Fate.DELIVERED]


async def test_what_is_queued_for_a_peer_that_is_given_up_fails_as_gone():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger) as (a, b):
        b.attach(sink := KeptSink(capacity=0))
        await a.send([data_message((0, 1), t, vector_payload(np.zeros(5))) for t in range(3)])
        a.set_gone(1)
        a.set_gone(1)
        await a.send([data_message((0, 1), 3, vector_payload(np.zeros(5)))])
        assert [(row.message.round, row.fate) for row in ledger.rows] == [(t, "failed:gone") for t in range(4)]
        a.set_peer(1, b.address)
        sink.make_room()
        await a.send([data_message((0, 1), 4, vector_payload(np.zeros(5)))])
        await ledger.until_settled(5)
        assert ledger.rows[-1].fate == Fate.DELIVERED


async def test_a_blocked_send_goes_on_when_its_peer_is_given_up():
    ledger = KeptLedger()
    async with grpc_fleet(2, ledger, replace(OPTIONS, queue_messages=2)) as (a, b):
        b.attach(KeptSink(capacity=0))
        messages = [data_message((0, 1), t, vector_payload(np.zeros(5))) for t in range(4)]
        sending = asyncio.create_task(a.send(messages))
        await asyncio.sleep(0.05)
        assert not sending.done()
        a.set_gone(1)
        await sending
        assert [row.fate for row in ledger.rows] == ["failed:gone"] * 4


async def test_a_receiver_restarted_behind_the_same_address_is_greeted_again():
    ledger = KeptLedger()
    payload = vector_payload(np.zeros(5))
    a, b = make(0, ledger), make(1, ledger)
    await connect([a, b])
    b.attach(KeptSink())
    await a.send([data_message((0, 1), 0, payload)])
    await ledger.until_settled(1)
    await b.aclose()
    again = make(1, ledger, epoch=1)
    again.address = b.address
    await again.start()
    again.set_peer(0, a.address)
    again.attach(sink := KeptSink())
    for t in range(1, 1000):
        await a.send([data_message((0, 1), t, payload)])
        await ledger.until_settled(t + 1)
        if sink.messages:
            break
        await asyncio.sleep(0.02)
    assert ledger.rows[-1].fate == Fate.DELIVERED
    await asyncio.gather(a.aclose(), again.aclose())


async def test_a_heartbeat_passes_data_that_waits():
    async with grpc_fleet(2, KeptLedger()) as (a, b):
        b.attach(Deaf())
        await a.send([data_message((0, 1), 0, vector_payload(np.zeros(5)))])
        await a.send([Message(0, 1, Kind.HEARTBEAT, 0, 0, 0, 0, Payload())])
        await b._inlet.sink.until(1)


class Deaf(KeptSink):
    """Takes heartbeats only."""

    def deliver(self, message: Message) -> Fate | None:
        return super().deliver(message) if message.kind is Kind.HEARTBEAT else None


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
        await a.send([data_message((0, dst), 0, vector_payload(np.zeros(5))) for dst in (1, 2)])
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_peer_that_is_gone_before_it_was_ever_known_is_sent_nothing():
    ledger = KeptLedger()
    a = make(0, ledger)
    await a.start()
    a.set_gone(1)
    await a.send([data_message((0, 1), 0, vector_payload(np.zeros(5)))])
    assert [row.fate for row in ledger.rows] == ["failed:gone"]
    async with grpc_fleet(2, ledger) as (_, b):
        b.attach(sink := KeptSink())
        b.set_peer(0, a.address)
        a.set_peer(1, b.address)
        await a.send([data_message((0, 1), 1, vector_payload(np.zeros(5)))])
        await ledger.until_settled(2)
        assert len(sink.messages) == 1
    await a.aclose()
