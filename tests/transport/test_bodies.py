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
from netdfl.transport.grpc.receiving import Inlet
from netdfl.transport.grpc.transport import GrpcTransport
from netdfl.transport.security.identity import Identity
from netdfl.transport.shared_memory import bodies as bodies
from netdfl.transport.shared_memory.bodies import Bodies, SharedMemory
from netdfl.transport.shared_memory.shelf import DOUBT_NS, PAGE
from netdfl.transport.v1.data_pb2 import Frame, HelloRequest, Receipt

LIMITS = wire.Limits(max_bytes=1 << 20)
VECTOR = np.arange(3000, dtype=np.float32)


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


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance_where_not_all_has_room(check: Any) -> None:
    """A part that holds a few small bodies: what does not fit goes inline."""
    await check(lambda num_nodes, ledger: sharing_fleet(num_nodes, ledger, 16 * PAGE))


def shared(nbytes: int = 64 * PAGE, nodes: int = 3) -> SharedMemory:
    return SharedMemory(range(nodes), nbytes, least_bytes=0)


def lent(writer: Bodies, payload: Payload, reader: int = 1) -> tuple[Any, Any, bytes]:
    """The place of a payload, and what to say of it to `reader`."""
    place = writer.keep(payload, wire.frame_size(payload) - wire.BODY_AT)
    assert place is not None
    told = writer.tell(place, reader)
    assert told is not None
    return place, *told


async def test_a_body_is_written_once_for_all_neighbors_and_read_where_it_lies(monkeypatch: Any) -> None:
    written: list[Payload] = []
    write = wire.write_body

    def counting(payload: Payload, into: memoryview) -> None:
        written.append(payload)
        write(payload, into)

    monkeypatch.setattr(bodies.wire, "write_body", counting)
    monkeypatch.setattr(wire, "join", None)  # nothing goes inline
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
    write = wire.write_body
    monkeypatch.setattr(bodies.wire, "write_body", lambda *args: (written.append(b""), write(*args)))
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


def test_a_place_is_free_when_its_reader_has_done() -> None:
    memory = shared(4 * PAGE)
    writer, reader = Bodies(memory, 0, 0), Bodies(memory, 1, 0)
    payload, other = vector_payload(VECTOR), vector_payload(VECTOR + 1)
    place, ticket, reference = lent(writer, payload)
    read = wire.read_body(reader.borrow(0, reference, LIMITS).body, LIMITS)
    view = read.arrays["x"].data
    writer.answered(place, ticket, sure=True)
    writer.drop(payload, place)
    del read
    gc.collect()
    assert writer.keep(other, 9000) is None, "a view of the body is in use still"
    assert bytes(view) == VECTOR.tobytes()
    del view
    assert writer.keep(other, wire.frame_size(other) - wire.BODY_AT) is not None


def test_who_is_told_no_more_may_not_begin() -> None:
    memory = shared()
    writer, reader = Bodies(memory, 0, 0), Bodies(memory, 1, 0)
    place, ticket, reference = lent(writer, vector_payload(VECTOR))
    writer.answered(place, ticket, sure=False)
    with pytest.raises(MalformedMessage, match="does not lend"):
        reader.borrow(0, reference, LIMITS)


def test_a_later_life_writes_nowhere() -> None:
    """Readers may still hold what the earlier one wrote."""
    writer = Bodies(shared(), 0, 1)
    assert writer.keep(vector_payload(VECTOR), 13_000) is None


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
        ({"token": 0}, MalformedMessage, "cell 0"),
        ({"cell": 170}, MalformedMessage, "cell 170"),
        ({"in_cell": 2}, MalformedMessage, "cell 0"),
        ({"cell": 7}, MalformedMessage, "does not lend"),
        ({"src": 9}, MalformedMessage, "its part goes from 0 to 0"),
        ({"src": 1}, MalformedMessage, "its part goes from"),
    ],
)
def test_what_a_reference_says_is_checked(change: dict[str, int], error: type[MessageError], words: str) -> None:
    memory = shared()
    writer, reader = Bodies(memory, 0, 0), Bodies(memory, 1, 0)
    place, ticket, reference = lent(writer, vector_payload(VECTOR))
    names = ("offset", "nbytes", "token", "cell", "in_cell")
    said = dict(zip(names, bodies._REFERENCE.unpack(reference), strict=True)) | change
    src = said.pop("src", 0)
    hostile = bodies._REFERENCE.pack(*(said[name] for name in names))
    with pytest.raises(error, match=words):
        wire.read_body(reader.borrow(src, hostile, LIMITS).body, LIMITS)
    gc.collect()
    writer.answered(place, ticket, sure=True)
    assert not reader._borrowed
    assert contents(wire.read_body(memory.bytes[PAGE : PAGE + place.nbytes], LIMITS))


def test_a_reference_of_odd_length_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="by 3 bytes"):
        Bodies(shared(), 1, 0).borrow(0, b"abc", LIMITS)


class Caller:
    """The context of a call."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


async def taken(frame: bytes, memory: SharedMemory | None, ledger: KeptLedger) -> Receipt:
    """What node 1, which knows node 0, answers to a frame."""
    inlet = Inlet(
        Identity(1, 0, RUN_ID, "abc"),
        RealClock(),
        ledger,
        OPTIONS,
        bodies=None if memory is None else Bodies(memory, 1, 0),
    )
    inlet.attach(KeptSink())
    inlet.introduce(0)
    said = HelloRequest(protocol_version=1, run_id=RUN_ID, scenario_hash="abc", node=0, epoch=0, callee=1)
    assert (await inlet.hello(said.SerializeToString(), Caller())).accepted
    return await inlet._take(frame)


def referring(memory: SharedMemory, run_id: bytes = RUN_ID) -> bytes:
    """A frame of node 0 that refers to a body that it lends to node 1."""
    payload = vector_payload(VECTOR)
    message = data_message((0, 1), 0, payload)
    return wire.referring(wire.encode_header(message, run_id, 0), lent(Bodies(memory, 0, 0), payload)[2])


def test_a_reference_to_the_memory_of_another_machine_is_refused() -> None:
    here, there = shared(nodes=1), SharedMemory([1], 64 * PAGE, least_bytes=0)
    _, _, reference = lent(Bodies(here, 0, 0), vector_payload(VECTOR))
    with pytest.raises(MalformedMessage, match="its part goes from 0 to 0"):
        Bodies(there, 1, 0).borrow(0, reference, LIMITS)


async def test_hostile_references_are_refused_and_counted() -> None:
    memory, ledger = shared(), KeptLedger()
    frame = referring(memory)
    assert (await taken(frame, memory, KeptLedger())).fate == "delivered"
    assert Frame.FromString(frame).reference == frame[-27:]
    for hostile, held, reason in (
        (referring(memory, b"other-01"), memory, "foreign"),
        (frame, None, "malformed"),
        (frame[:-1], memory, "malformed"),
        (frame[:40] + frame[42:], memory, "malformed"),
        (wire.referring(frame[2:42], bytes(27)), memory, "malformed"),
    ):
        receipt = await taken(hostile, held, ledger)
        assert receipt.fate == f"refused:{reason}"
        assert held is not None or receipt.reason.endswith("node 1 shares none")
    assert [reason for _, reason, _ in ledger.refusals] == ["foreign", *["malformed"] * 4]


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


def test_a_reader_that_is_killed_holds_nothing(monkeypatch: Any) -> None:
    """Neither its place, nor anything in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    memory = shared(4 * PAGE)
    writer, reader = Bodies(memory, 0, 0), Bodies(memory, 1, 0)
    payload, other = vector_payload(VECTOR), vector_payload(VECTOR + 1)
    place, ticket, reference = lent(writer, payload)
    ready, told = os.pipe()
    held: list[object] = []

    def read() -> None:
        held.append(reader.borrow(0, reference, LIMITS).body)
        os.write(told, b"k")

    pid = in_a_child(read)
    assert os.read(ready, 1) == b"k"
    writer.answered(place, ticket, sure=False)
    writer.drop(payload, place)
    late = bodies.time.monotonic_ns() + DOUBT_NS
    monkeypatch.setattr(bodies.time, "monotonic_ns", lambda: late)
    assert writer.keep(other, 9000) is None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert writer.keep(other, wire.frame_size(other) - wire.BODY_AT) is not None
    assert set(os.listdir("/dev/shm")) == before


async def test_a_reader_that_takes_nothing_stalls_nobody() -> None:
    """It keeps its place; what has no room beside it goes inline."""
    ledger, sink = KeptLedger(), KeptSink()
    async with sharing_fleet(3, ledger, 8 * PAGE) as transports:
        transports[2].attach(sink)
        await transports[0].send(unicasts([data_message((0, 1), 0, vector_payload(VECTOR))]))  # node 1 has no sink yet
        await transports[0].send(unicasts([data_message((0, 2), t, vector_payload(VECTOR + t)) for t in range(8)]))
        await ledger.until_settled(8)
        assert {(row.message.dst, row.fate.text) for row in ledger.rows} == {(2, "delivered")}
    for t, message in enumerate(sink.messages):
        assert contents(message.payload) == contents(vector_payload(VECTOR + t))
