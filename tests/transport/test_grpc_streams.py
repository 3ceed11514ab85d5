"""What gRPC transports make of strangers: clients and servers made by hand, which talk over calls and streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import grpc.aio
import numpy as np
import pytest
from bare_client import to
from grpc_fleet import NODE, OPTIONS, RUN_ID, foreign_node, grpc_fleet, never
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdfl.core.types import Kind, Message, unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message, vector_payload
from netdfl.transport import wire
from netdfl.transport.base import Fate
from netdfl.transport.grpc.chunks import split
from netdfl.transport.grpc.receipts import LEFT
from netdfl.transport.security.identity import Identity
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest, Receipt

MS = 1_000_000
NONSENSE = b"\xff\xff\xff"
DELIVERED = Receipt(fate=Fate.DELIVERED.text).SerializeToString()


async def nonsense(request: bytes, context: object) -> bytes:
    return NONSENSE


async def nonsense_each(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    async for _ in requests:
        yield NONSENSE


@asynccontextmanager
async def bare_client(address: str) -> AsyncIterator[grpc.aio.Channel]:
    """A stranger's channel, with raw bytes."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


async def say_hello(channel: grpc.aio.Channel, node: int = 0, epoch: int = 0) -> HelloReply:
    hello = channel.unary_unary(f"/{NODE}/Hello", HelloRequest.SerializeToString, HelloReply.FromString)
    return await hello(Identity(node, epoch, RUN_ID, "abc").greeting(1), metadata=to(1))


async def push(channel: grpc.aio.Channel, data: bytes) -> str:
    stream = channel.stream_stream(f"/{NODE}/Push", None, Receipt.FromString)(timeout=30, metadata=to(1))
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
        assert await push(channel, frame(epoch=2)) == "delivered"
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
        stream = channel.stream_unary(f"/{NODE}/PushChunks", None, Receipt.FromString)
        for data in hostile:
            assert (await push(channel, data)).startswith("refused:")
            receipt = await stream(iter([data]), timeout=30, metadata=to(1))
            assert receipt.fate.startswith("refused:")
        assert len(ledger.refusals) == 2 * len(hostile)
        nonsense = await channel.unary_unary(f"/{NODE}/Hello", None, HelloReply.FromString)(b"\xff\xff", metadata=to(1))
        assert not nonsense.accepted
        assert len(ledger.refusals) == 2 * len(hostile) + 1
        assert not sink.messages
        assert await push(channel, good) == "delivered"


async def test_a_stream_that_breaks_off_changes_nothing():
    ledger = KeptLedger()
    message = data_message((0, 1), 0, vector_payload(np.zeros(5000)))
    pieces = list(split(wire.FrameWriter(RUN_ID).header(message, 0), wire.FrameWriter.body(message.payload), 1000))
    async with grpc_fleet(2, ledger) as (_, b), bare_client(b.address) as channel:
        b.attach(sink := KeptSink())
        await say_hello(channel)
        stream = channel.stream_unary(f"/{NODE}/PushChunks", None, Receipt.FromString)
        assert (await stream(iter(pieces[:-1]), timeout=30, metadata=to(1))).fate == "refused:malformed"
        call = stream(timeout=30, metadata=to(1))
        await call.write(pieces[0])
        await call.initial_metadata()
        call.cancel()
        assert (await stream(iter(pieces), timeout=30, metadata=to(1))).fate == "delivered"
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
    assert fates == {"refused:overloaded": 20 - OPTIONS.waiting_calls, "delivered": OPTIONS.waiting_calls}


async def test_a_peer_that_never_answers_costs_its_deadline_and_no_other_edge():
    ledger = KeptLedger()
    options = replace(OPTIONS, call_deadline=200 * MS)
    async with foreign_node(hello=never) as address, grpc_fleet(3, ledger, options) as (a, _, c):
        c.attach(KeptSink())
        a.set_peer(1, address, epoch=1)
        payload = vector_payload(np.zeros(5))
        await a.send(unicasts([data_message((0, 1), 0, payload), data_message((0, 2), 0, payload)]))
        await ledger.until_settled(2)
    assert [(row.message.dst, row.fate.text) for row in ledger.rows] == [(2, "delivered"), (1, "failed:deadline")]


@pytest.mark.parametrize("answers", [{"hello": nonsense}, {"push": nonsense_each}], ids=["hello", "push"])
async def test_a_peer_that_answers_nonsense_fails_that_message_alone(answers):
    ledger = KeptLedger()
    async with foreign_node(**answers) as address, grpc_fleet(2, ledger) as (a, _):
        a.set_peer(1, address, epoch=1)
        await a.send(unicasts([data_message((0, 1), t, vector_payload(np.zeros(5))) for t in range(3)]))
        await ledger.until_settled(3)
    assert {row.fate.text for row in ledger.rows} == {"failed:broken_call"}


@pytest.mark.parametrize(("reason", "fate"), [(LEFT, "in_flight"), ("", "failed:cancelled")], ids=["left", "else"])
async def test_a_call_that_its_receiver_cancels_leaves_a_message_in_flight_only_where_it_says_that_it_leaves(
    reason: str, fate: str
) -> None:
    ledger = KeptLedger()

    async def cancelled(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        yield await anext(requests) and DELIVERED
        await anext(requests)
        await context.abort(grpc.StatusCode.CANCELLED, reason)

    async with foreign_node(push=cancelled) as address, grpc_fleet(2, ledger) as (a, _):
        a.set_peer(1, address, epoch=1)
        for t in range(2):
            await a.send(unicasts([data_message((0, 1), t, vector_payload(np.zeros(5)))]))
            await ledger.until_settled(t + 1)
    assert [row.fate.text for row in ledger.rows] == ["delivered", fate]


async def test_however_many_calls_wait_for_a_server_none_is_cancelled() -> None:
    """Left to itself gRPC cancels some from a thousand on, and all beyond three thousand."""
    options = replace(OPTIONS, streams=4000, calls=4000)
    async with grpc_fleet(2, KeptLedger(), options) as (_, b), bare_client(b.address) as channel:
        replies = await asyncio.gather(*(say_hello(channel) for _ in range(4000)))
    assert all(reply.accepted for reply in replies)


async def test_a_receiver_that_never_answers_costs_a_message_its_deadline_and_no_other():
    ledger = KeptLedger()
    silent = True

    async def listen(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            if not silent:
                yield DELIVERED

    options = replace(OPTIONS, call_deadline=300 * MS)
    async with foreign_node(push=listen) as address, grpc_fleet(2, ledger, options) as (a, _):
        a.set_peer(1, address, epoch=1)
        await a.send(unicasts([data_message((0, 1), 0, vector_payload(np.zeros(5)))]))
        await ledger.until_settled(1)
        silent = False
        await a.send(unicasts([data_message((0, 1), 1, vector_payload(np.zeros(5)))]))
        await ledger.until_settled(2)
    assert [row.fate.text for row in ledger.rows] == ["failed:deadline", "delivered"]
