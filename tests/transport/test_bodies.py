"""Bodies by reference: the contract of transports, what is refused, and what is left where somebody dies."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from grpc_fleet import OPTIONS, RUN_ID, connect, make

from netdfl.core.clock import RealClock
from netdfl.core.errors import MalformedMessage, MessageError, OversizedMessage
from netdfl.core.types import Payload, unicasts
from netdfl.testing.transports import TRANSPORT_CHECKS, KeptLedger, KeptSink, contents, data_message, vector_payload
from netdfl.transport import wire
from netdfl.transport.base import Ledger
from netdfl.transport.grpc.receiving import DataServicer
from netdfl.transport.grpc.transport import GrpcTransport
from netdfl.transport.security.identity import Identity
from netdfl.transport.shared_memory import buffers
from netdfl.transport.shared_memory.base import Lease
from netdfl.transport.shared_memory.buffers import SharedBuffers
from netdfl.transport.shared_memory.memory import PAGE, SharedMemory
from netdfl.transport.shared_memory.pool import REFERENCE
from netdfl.transport.v1.data_pb2 import Frame, HelloRequest, Receipt
from tests.transport.checks import FULL_MAILBOX_RARELY

LIMITS = wire.Limits(max_bytes=1 << 20)
VECTOR = np.arange(3000, dtype=np.float32)
NBYTES = wire.frame_size(vector_payload(VECTOR)) - wire.BODY_AT


@asynccontextmanager
async def sharing_fleet(
    num_nodes: int, ledger: Ledger, nbytes: int = 1 << 24, options: Any = OPTIONS, of_a_machine: int = 1000
) -> AsyncIterator[Sequence[GrpcTransport]]:
    """Transports that share memory for whatever they send to others of their machine."""
    nodes = range(num_nodes)
    machines = [nodes[i : i + of_a_machine] for i in range(0, num_nodes, of_a_machine)]
    memories = {node: memory for on in machines for memory in [SharedMemory(on, nbytes, 0)] for node in on}
    transports = [make(node, ledger, memory=memories[node], options=options) for node in nodes]
    await connect(transports)
    try:
        yield transports
    finally:
        await asyncio.gather(*(transport.aclose() for transport in transports))


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance(check: Any) -> None:
    await check(sharing_fleet)


@pytest.mark.parametrize("check", FULL_MAILBOX_RARELY)
async def test_conformance_where_not_all_has_room(check: Any) -> None:
    """A part that holds a few small bodies: what does not fit goes inline."""
    await check(lambda num_nodes, ledger: sharing_fleet(num_nodes, ledger, 16 * PAGE))


def shared(nbytes: int = 64 * PAGE, nodes: int = 3) -> SharedMemory:
    return SharedMemory(range(nodes), nbytes, least_bytes=0)


def lent(lender: SharedBuffers, payload: Payload, reader: int = 1) -> tuple[Lease, bytes]:
    """The lease of a payload, and what to say of it to `reader`."""
    lease = lender.lend(payload, wire.frame_size(payload) - wire.BODY_AT, reader)
    assert lease is not None
    reference = lease.reference(quiet=False)
    assert reference is not None
    return lease, reference


async def test_a_body_is_written_once_for_all_neighbors_and_read_where_it_lies(monkeypatch: Any) -> None:
    written: list[Payload] = []
    write = wire.FrameWriter.write_body

    def counting(payload: Payload, into: memoryview) -> None:
        written.append(payload)
        write(payload, into)

    monkeypatch.setattr(buffers.wire.FrameWriter, "write_body", counting)
    monkeypatch.setattr(wire.FrameWriter, "join", None)  # nothing goes inline
    ledger, sinks = KeptLedger(), [KeptSink() for _ in range(3)]
    payload = vector_payload(VECTOR)
    async with sharing_fleet(3, ledger) as transports:
        for transport, sink in zip(transports, sinks, strict=True):
            transport.attach(sink)
        sent = [data_message((0, dst), 0, payload) for dst in (1, 2)]
        await transports[0].send(unicasts(sent))
        for sink in sinks[1:]:
            await sink.until(1)
            assert contents(sink.messages[0].payload) == contents(payload)
        await ledger.until_settled(2)
    assert written == [payload]
    assert {row.nbytes for row in ledger.rows} == {wire.frame_size(sent[0].payload)}
    came = [np.frombuffer(sink.messages[0].payload.arrays["x"].data, np.float32) for sink in sinks[1:]]
    first, second = (array.__array_interface__["data"][0] for array in came)
    assert first == second


@pytest.mark.parametrize("src", range(3))
async def test_nodes_of_another_machine_are_sent_the_body_itself(monkeypatch: Any, src: int) -> None:
    """0 and 1 have a memory, 2 has another, for itself."""
    written: list[bytes] = []
    write = wire.FrameWriter.write_body
    monkeypatch.setattr(buffers.wire.FrameWriter, "write_body", lambda *args: (written.append(b""), write(*args)))
    ledger, sinks = KeptLedger(), [KeptSink() for _ in range(3)]
    payload = vector_payload(VECTOR)
    async with sharing_fleet(3, ledger, of_a_machine=2) as transports:
        for transport, sink in zip(transports, sinks, strict=True):
            transport.attach(sink)
        others = [dst for dst in range(3) if dst != src]
        await transports[src].send(unicasts([data_message((src, dst), 0, payload) for dst in others]))
        for dst in others:
            await sinks[dst].until(1)
            assert contents(sinks[dst].messages[0].payload) == contents(payload)
        await ledger.until_settled(2)
    assert len(written) == (src != 2)
    assert not ledger.refusals


def test_a_buffer_is_free_when_its_reader_has_done() -> None:
    memory = shared(4 * PAGE)
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    payload, other = vector_payload(VECTOR), vector_payload(VECTOR + 1)
    lease, reference = lent(lender, payload)
    read = wire.FrameReader(LIMITS).body(reader.borrow(0, reference, LIMITS))
    view = read.arrays["x"].data
    lease.answered()
    lease.release()
    del read
    gc.collect()
    assert lender.lend(other, 9000, 1) is None, "a view of the body is in use still"
    assert bytes(view) == VECTOR.tobytes()
    del view
    assert lender.lend(other, wire.frame_size(other) - wire.BODY_AT, 1) is not None


def test_a_buffer_whose_reader_has_said_nothing_is_kept_however_long_it_takes() -> None:
    """The sender has given the message up, and the reader may still begin it."""
    memory = shared(4 * PAGE)
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    lease, reference = lent(lender, vector_payload(VECTOR))
    lease.release()
    assert lender.lend(vector_payload(VECTOR + 1), NBYTES, 1) is None
    assert contents(wire.FrameReader(LIMITS).body(reader.borrow(0, reference, LIMITS))) == contents(
        vector_payload(VECTOR)
    )
    gc.collect()
    assert lender.lend(vector_payload(VECTOR + 1), NBYTES, 1) is not None


def test_who_accepts_a_renewal_begins_nothing_older() -> None:
    memory = shared()
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    (begun, first), (refused, second) = lent(lender, vector_payload(VECTOR)), lent(lender, vector_payload(VECTOR + 1))
    queued = lender.lend(vector_payload(VECTOR + 2), NBYTES, 1)
    assert queued is not None
    body = reader.borrow(0, first, LIMITS)
    number = lender.renewal()
    assert reader.renew(0, number)
    assert not reader.renew(0, number), "a hello may come twice"
    with pytest.raises(MalformedMessage, match="does not lend"):
        reader.borrow(0, second, LIMITS)
    lender.renewed(1, number)
    after = queued.reference(quiet=False)
    assert after is not None
    for lease in (begun, refused, queued):
        lease.release()
    free = [buffer.is_free for buffer in lender.pool.buffers]
    assert free == [False, True, False], "one is read, one may be begun"
    assert len(body) + len(reader.borrow(0, after, LIMITS)) > 20_000


def test_another_life_of_a_reader_is_lent_nothing_by_a_reference_to_the_earlier_one() -> None:
    """For the lender has the buffer back as soon as it sees that the earlier life is over."""
    memory = shared(4 * PAGE)
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    lease, reference = lent(lender, vector_payload(VECTOR))
    lease.release()
    later = SharedBuffers(memory, 1, 1)
    with pytest.raises(MalformedMessage, match="does not lend"):
        later.borrow(0, reference, LIMITS)
    reader.close()
    with pytest.raises(MalformedMessage, match="does not lend"):
        reader.borrow(0, reference, LIMITS)
    again = lender.lend(vector_payload(VECTOR), NBYTES, 1)
    assert again is not None
    assert again.reference(quiet=False) is not None, "the later life is still there"


def test_nothing_is_lent_to_a_node_that_is_not_there() -> None:
    memory = shared()
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    reader.close()
    lease = lender.lend(vector_payload(VECTOR), NBYTES, 1)
    assert lease is not None
    assert lease.reference(quiet=False) is None


def test_a_reference_is_taken_once() -> None:
    """It may come again, and the lender has the buffer back by then."""
    memory = shared()
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    _, reference = lent(lender, vector_payload(VECTOR))
    held = [reader.borrow(0, reference, LIMITS)]
    with pytest.raises(MalformedMessage, match="does not lend"):
        reader.borrow(0, reference, LIMITS)
    held.clear()
    gc.collect()
    with pytest.raises(MalformedMessage, match="does not lend"):
        reader.borrow(0, reference, LIMITS)


def test_a_later_life_writes_nowhere() -> None:
    """Readers may still hold what the earlier one wrote."""
    memory = shared()
    SharedBuffers(memory, 1, 0)
    assert SharedBuffers(memory, 0, 1).lend(vector_payload(VECTOR), 13_000, 1) is None


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"offset": 1 << 60}, MalformedMessage, "its part goes from 0 to 262144"),
        ({"offset": 64 * PAGE}, MalformedMessage, "its part goes from 0 to 262144"),
        ({"offset": 17}, MalformedMessage, "at 17 of the shared memory"),
        ({"nbytes": 64 * PAGE}, MalformedMessage, "its part goes from 0"),
        ({"nbytes": 1 << 40}, OversizedMessage, "the limit is 1048576"),
        ({"nbytes": 5}, MalformedMessage, "too short"),
        ({"nbytes": 9000}, MalformedMessage, "checksum"),
        ({"token": 1}, MalformedMessage, "does not lend"),
        ({"token": 0}, MalformedMessage, "slot 0"),
        ({"mark": 0}, MalformedMessage, "does not lend"),
        ({"mark": 1}, MalformedMessage, "does not lend"),
        ({"slot": 170}, MalformedMessage, "slot 170"),
        ({"quiet": 2}, MalformedMessage, "slot 0"),
        ({"slot": 7}, MalformedMessage, "does not lend"),
        ({"src": 9}, MalformedMessage, "its part goes from 0 to 0"),
        ({"src": 1}, MalformedMessage, "its part goes from"),
    ],
)
def test_what_a_reference_says_is_checked(change: dict[str, int], error: type[MessageError], words: str) -> None:
    memory = shared()
    lender, reader = SharedBuffers(memory, 0, 0), SharedBuffers(memory, 1, 0)
    lease, reference = lent(lender, vector_payload(VECTOR))
    names = ("offset", "nbytes", "token", "mark", "slot", "quiet")
    said = dict(zip(names, REFERENCE.unpack(reference), strict=True))
    nbytes = said["nbytes"]
    said |= change
    src = said.pop("src", 0)
    hostile = REFERENCE.pack(*(said[name] for name in names))
    with pytest.raises(error, match=words):
        wire.FrameReader(LIMITS).body(reader.borrow(src, hostile, LIMITS))
    gc.collect()
    lease.answered()
    lease.release()
    assert all(buffer.is_free for buffer in lender.pool.buffers)
    assert contents(wire.FrameReader(LIMITS).body(memory.bytes[PAGE : PAGE + nbytes]))


def test_a_reference_of_odd_length_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="by 3 bytes"):
        SharedBuffers(shared(), 1, 0).borrow(0, b"abc", LIMITS)


class Caller:
    """The context of a call."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


async def taken(frame: bytes, memory: SharedMemory | None, ledger: KeptLedger) -> Receipt:
    """What node 1, which knows node 0, answers to a frame."""
    inlet = DataServicer(
        Identity(1, 0, RUN_ID, "abc"),
        RealClock(),
        ledger,
        OPTIONS,
        buffers=None if memory is None else SharedBuffers(memory, 1, 0),
    )
    inlet.attach(KeptSink())
    inlet.introduce(0)
    said = HelloRequest(
        protocol_version=wire.PROTOCOL_VERSION, run_id=RUN_ID, scenario_hash="abc", node=0, epoch=0, callee=1
    )
    assert (await inlet.hello(said.SerializeToString(), Caller())).accepted
    return await inlet.take(frame)


def referring(memory: SharedMemory, run_id: bytes = RUN_ID) -> bytes:
    """A frame of node 0 that refers to a body that it lends to node 1."""
    payload = vector_payload(VECTOR)
    message = data_message((0, 1), 0, payload)
    SharedBuffers(memory, 1, 0)  # the node that it is lent to is there
    return wire.FrameWriter.referring(
        wire.FrameWriter(run_id).header(message, 0), lent(SharedBuffers(memory, 0, 0), payload)[1]
    )


def test_a_reference_to_the_memory_of_another_machine_is_refused() -> None:
    here, there = shared(nodes=2), SharedMemory([1], 64 * PAGE, least_bytes=0)
    SharedBuffers(here, 1, 0)
    _, reference = lent(SharedBuffers(here, 0, 0), vector_payload(VECTOR))
    with pytest.raises(MalformedMessage, match="its part goes from 0 to 0"):
        SharedBuffers(there, 1, 0).borrow(0, reference, LIMITS)


async def test_hostile_references_are_refused_and_counted() -> None:
    memory, ledger = shared(), KeptLedger()
    frame = referring(memory)
    assert (await taken(frame, memory, KeptLedger())).fate == "delivered"
    assert Frame.FromString(frame).reference == frame[-REFERENCE.size :]
    for hostile, held, reason in (
        (referring(memory, b"other-01"), memory, "foreign"),
        (frame, None, "malformed"),
        (frame[:-1], memory, "malformed"),
        (frame[:40] + frame[42:], memory, "malformed"),
        (wire.FrameWriter.referring(frame[2:42], bytes(REFERENCE.size)), memory, "malformed"),
    ):
        receipt = await taken(hostile, held, ledger)
        assert receipt.fate == f"refused:{reason}"
        assert held is not None or receipt.reason.endswith("node 1 shares none")
    assert [reason for _, reason, _ in ledger.refusals] == ["foreign", *["malformed"] * 4]


async def test_a_renewal_ends_the_calls_that_wait_for_room() -> None:
    """Else the message would be taken once there is room, though its sender sends it again."""
    memory = shared()
    servicer = DataServicer(
        Identity(1, 0, RUN_ID, "abc"), RealClock(), KeptLedger(), OPTIONS, buffers=SharedBuffers(memory, 1, 0)
    )
    servicer.attach(sink := KeptSink(capacity=0))
    servicer.introduce(0)
    lender, payload = SharedBuffers(memory, 0, 0), vector_payload(VECTOR)
    lease, reference = lent(lender, payload)
    said = HelloRequest(
        protocol_version=wire.PROTOCOL_VERSION, run_id=RUN_ID, scenario_hash="abc", node=0, epoch=0, callee=1
    )
    assert (await servicer.hello(said.SerializeToString(), Caller())).accepted
    frame = wire.FrameWriter.referring(wire.FrameWriter(RUN_ID).header(data_message((0, 1), 0, payload), 0), reference)
    call = asyncio.create_task(servicer.take(frame))
    await asyncio.sleep(0.01)
    assert not call.done()
    said.renewal = lender.renewal()
    assert (await servicer.hello(said.SerializeToString(), Caller())).accepted
    assert call.cancelled()
    sink.make_room()
    await asyncio.sleep(0.01)
    assert not sink.messages
    lender.renewed(1, said.renewal)
    lease.release()
    del call
    gc.collect()
    assert all(buffer.is_free for buffer in lender.pool.buffers)
    assert (await servicer.take(frame)).fate == "refused:malformed"  # type: ignore[union-attr]


async def test_a_damaged_body_is_refused() -> None:
    memory, ledger = shared(), KeptLedger()
    frame = referring(memory)
    memory.bytes[PAGE + 2000] ^= 1
    assert (await taken(frame, memory, ledger)).fate == "refused:malformed"
    assert "checksum" in ledger.refusals[0][2]


def in_a_child(work: Callable[[], object]) -> int:
    """The id of a forked process that does some work, and then nothing."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            while True:
                signal.pause()
        finally:
            os._exit(1)
    return pid


def test_a_reader_that_is_killed_holds_nothing() -> None:
    """Neither its buffer, nor anything in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    memory = shared(4 * PAGE)
    lender = SharedBuffers(memory, 0, 0)
    payload, other = vector_payload(VECTOR), vector_payload(VECTOR + 1)
    (ready, told), (its, mine) = os.pipe(), os.pipe()
    held: list[object] = []

    def read() -> None:
        reader = SharedBuffers(memory, 1, 0)
        os.write(told, b"t")
        held.append(reader.borrow(0, os.read(its, 100), LIMITS))
        os.write(told, b"k")

    pid = in_a_child(read)
    assert os.read(ready, 1) == b"t"
    lease, reference = lent(lender, payload)
    os.write(mine, reference)
    assert os.read(ready, 1) == b"k"
    lease.release()
    assert lender.lend(other, 9000, 1) is None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert lender.lend(other, wire.frame_size(other) - wire.BODY_AT, 1) is not None
    assert set(os.listdir("/dev/shm")) == before


async def test_a_reader_that_takes_nothing_stalls_nobody() -> None:
    """It keeps its buffer; what has no room beside it goes inline."""
    ledger, sink = KeptLedger(), KeptSink()
    async with sharing_fleet(3, ledger, 8 * PAGE) as transports:
        transports[2].attach(sink)
        await transports[0].send(unicasts([data_message((0, 1), 0, vector_payload(VECTOR))]))  # node 1 has no sink yet
        await transports[0].send(unicasts([data_message((0, 2), t, vector_payload(VECTOR + t)) for t in range(8)]))
        await ledger.until_settled(8)
        assert {(row.message.dst, row.fate.text) for row in ledger.rows} == {(2, "delivered")}
    for t, message in enumerate(sink.messages):
        assert contents(message.payload) == contents(vector_payload(VECTOR + t))
