"""Frames come back as they left, keep the protobuf format, and hostile bytes give one kind of error."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from netdfl.core.errors import ForeignMessage, MalformedMessage, MessageError, OversizedMessage
from netdfl.core.types import ITEM_BYTES, Array, Kind, Message, Payload
from netdfl.testing.transports import contents
from netdfl.transport import wire
from netdfl.transport.grpc.chunks import Assembly, split
from netdfl.transport.v1.data_pb2 import Chunk, Frame

MANY = settings(max_examples=max(100, settings.default.max_examples))

RUN = b"run-0001"
LIMITS = wire.Limits(max_bytes=1 << 20)

scalars = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def arrays(draw):
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    nbytes = ITEM_BYTES[dtype] * int(np.prod(shape))
    values = st.binary(min_size=nbytes, max_size=nbytes)
    data = draw(values) if dtype != "bool" else bytes(nbytes)
    return Array(dtype, shape, memoryview(data))


@st.composite
def messages(draw):
    payload = Payload(
        draw(st.dictionaries(st.text(max_size=5), arrays(), max_size=4)),
        draw(st.dictionaries(st.text(max_size=5), scalars, max_size=4)),
    )
    unsigned, signed = st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1)
    return Message(
        draw(unsigned), 1, draw(st.sampled_from(Kind)), draw(unsigned), draw(signed), draw(signed),
        draw(st.integers(0, 2**16 - 1)), payload,
    )  # fmt: skip


def vector_message(nbytes: int = 4000, round_: int = 3) -> Message:
    data = memoryview(np.random.default_rng(0).bytes(nbytes))
    return Message(1, 2, Kind.DATA, 0, round_, 0, 0, Payload({"x": Array("float32", (nbytes // 4,), data)}, {"w": 0.5}))


def with_body(body: bytes) -> bytes:
    """A valid frame around any body, its checksum included."""
    header = wire.FrameWriter(RUN).header(vector_message(), 0)
    body += xxh3_64_intdigest(body).to_bytes(8, "little")
    lead = b"\x12" + wire.varint(len(body))
    header += bytes(wire.BODY_AT - 2 - len(header) - len(lead))
    return b"\x0a" + bytes([len(header)]) + header + lead + body


def with_metadata(content: object, values: bytes = b"") -> bytes:
    packed = content if isinstance(content, bytes) else msgpack.packb(content)
    lead = len(packed).to_bytes(4, "little") + packed
    return with_body(lead + bytes(-len(lead) % 16 if values else 0) + values)


@given(messages(), st.integers(-(2**63), 2**63 - 1))
def test_a_frame_comes_back_as_it_left(message, sent_ns):
    data = wire.encode(message, RUN, sent_ns)
    header, payload = wire.decode(data, LIMITS)
    m = message
    assert header == (m.kind, m.src, m.epoch, m.round, m.step, m.attempt, RUN, sent_ns)
    assert contents(payload) == contents(message.payload)
    assert len(data) == wire.frame_size(message.payload) == payload.size


@given(messages())
def test_the_size_is_exact_before_anything_is_encoded(message):
    size = wire.frame_size(message.payload)
    assert message.payload.encoded is None
    assert len(wire.encode(message, RUN, 0)) == size


@given(messages())
def test_frames_are_what_protobuf_writes_and_reads(message):
    data = wire.encode(message, RUN, 0)
    frame = Frame.FromString(data)
    assert frame.SerializeToString() == data
    assert frame.body == data[wire.BODY_AT :]


@given(messages(), st.integers(1, 3000))
def test_chunks_are_what_protobuf_reads_and_come_together(message, chunk_bytes):
    header = wire.FrameWriter(RUN).header(message, 0)
    pieces = list(split(header, wire.FrameWriter.body(message.payload), chunk_bytes))
    read = [Chunk.FromString(piece) for piece in pieces]
    assert b"".join(chunk.data for chunk in read) == wire.encode(message, RUN, 0)[wire.BODY_AT :]
    assert [chunk.SerializeToString() for chunk in read] == pieces
    assert all(len(chunk.data) <= chunk_bytes for chunk in read)
    assembly = assemble(pieces)
    assert assembly.header.round == message.round
    assert contents(assembly.finish()) == contents(message.payload)


def assemble(pieces: list[bytes]) -> Assembly:
    assembly = Assembly(pieces[0], LIMITS)
    assembly.begin()
    for piece in pieces[1:]:
        assembly.add(piece)
    return assembly


def test_arrays_are_views_of_the_received_bytes_and_aligned():
    data = wire.encode(vector_message(), RUN, 0)
    _, payload = wire.decode(data, LIMITS)
    array = payload.arrays["x"].data
    assert array.obj is data
    assert array.readonly
    address = np.frombuffer(array, np.uint8).__array_interface__["data"][0]
    assert address % 16 == 0


def test_neighbors_of_a_step_share_one_frame_and_the_next_step_gets_its_own():
    message = vector_message()
    again = Message(1, 7, Kind.DATA, 0, 3, 0, 0, message.payload)
    later = Message(1, 2, Kind.DATA, 0, 4, 0, 0, message.payload)
    first = wire.encode(message, RUN, 10)
    assert wire.encode(again, RUN, 20) is first
    assert wire.decode(wire.encode(later, RUN, 30), LIMITS)[0].round == 4
    assert wire.decode(wire.encode(message, RUN, 40), LIMITS)[0].round == 3


@MANY
@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_error(data):
    with pytest.raises(MessageError):
        wire.decode(data, LIMITS)
    with pytest.raises(MessageError):
        assemble([data]).finish()


@MANY
@given(st.data())
def test_a_damaged_frame_is_refused(data):
    frame = bytearray(wire.encode(vector_message(200), RUN, 0))
    at = data.draw(st.integers(0, len(frame) - 1) | st.integers(wire.BODY_AT, wire.BODY_AT + 40))
    frame[at] ^= data.draw(st.integers(1, 255))
    try:
        _, payload = wire.decode(bytes(frame), LIMITS)
    except MessageError:
        return
    assert at < wire.BODY_AT, "a damaged body got through"
    assert contents(payload) == contents(vector_message(200).payload)


@given(st.integers(0, 400))
def test_a_truncated_or_lengthened_frame_is_refused(length):
    frame = wire.encode(vector_message(200), RUN, 0)
    with pytest.raises(MessageError):
        wire.decode((frame * 2)[:length] if length != len(frame) else frame + b"\0", LIMITS)


@MANY
@given(st.data())
def test_damaged_chunks_are_refused(data):
    header = wire.FrameWriter(RUN).header(vector_message(2000), 0)
    pieces = list(split(header, wire.FrameWriter.body(vector_message(2000).payload), 256))
    change = data.draw(st.sampled_from(["drop", "swap", "twice", "cut", "flip"]))
    at = data.draw(st.integers(1, len(pieces) - 2))
    match change:
        case "drop":
            del pieces[at]
        case "swap":
            pieces[at], pieces[at + 1] = pieces[at + 1], pieces[at]
        case "twice":
            pieces.insert(at, pieces[at])
        case "cut":
            pieces[at] = pieces[at][: data.draw(st.integers(0, len(pieces[at]) - 1))]
        case "flip":
            where = data.draw(st.integers(0, len(pieces[at]) - 1))
            pieces[at] = pieces[at][:where] + bytes([pieces[at][where] ^ 1]) + pieces[at][where + 1 :]
    with pytest.raises(MessageError):
        assemble(pieces).finish()


@MANY
@given(scalars | st.binary(max_size=60), st.binary(max_size=40))
def test_random_metadata_under_a_right_checksum_gives_nothing_or_an_error(content, values):
    try:
        _, payload = wire.decode(with_metadata(content, values), LIMITS)
    except MessageError:
        return
    assert not payload.arrays, "arrays came out of metadata that lists none"
    assert isinstance(payload.meta, dict)


any_int = st.integers(-(2**63), 2**64 - 1)
entries = st.tuples(
    st.text(max_size=2) | any_int,
    st.sampled_from(["float32", "uint8", "bool", "complex64", "object"]) | any_int,
    st.lists(any_int | st.integers(0, 4) | st.booleans(), max_size=20) | st.none(),
)


@MANY
@given(st.lists(entries, max_size=3), st.binary(max_size=64))
def test_what_decodes_has_the_shapes_that_it_announces(listing, values):
    try:
        _, payload = wire.decode(with_metadata(({}, listing), values), LIMITS)
    except MessageError:
        return
    for (name, dtype, shape), array in zip(listing, payload.arrays.values(), strict=True):
        assert payload.arrays[name] is array
        assert array.dtype == dtype
        assert array.shape == tuple(shape)
        assert array.nbytes == np.zeros(array.shape, dtype).nbytes


def nested(depth: int) -> object:
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (with_metadata(({}, [["x", "object", [1]]]), bytes(8)), MalformedMessage, "known dtype"),
        (with_metadata(({}, [["x", "float32", [3]]]), bytes(8)), MalformedMessage, "exceeds the body"),
        (with_metadata(({}, [["x", "float32", [1]]]), bytes(8)), MalformedMessage, "follow the last array"),
        (with_metadata(({}, [["x", "float32", [1]], ["x", "float32", [0]]]), bytes(4)), MalformedMessage, "twice"),
        (with_metadata(({}, [["x", "float32", [-1]]])), MalformedMessage, "shape"),
        (with_metadata(({}, [["x", "float32", [0, 2**40]]])), MalformedMessage, "shape"),
        (with_metadata(({}, [["x", "float32", [0, 2**19, 2**19]]])), MalformedMessage, "shape"),
        (with_metadata(({}, [["x", "float32", [0] * 17]])), MalformedMessage, "shape"),
        (with_metadata(({}, [["x", "bool", [2]]]), b"\x01\x02"), MalformedMessage, "bool"),
        (with_metadata(({}, [["x" * 257, "bool", [0]]])), OversizedMessage, "257 letters"),
        (with_metadata(({}, [[str(n), "bool", [0]] for n in range(1025)])), OversizedMessage, "1025 arrays"),
        (with_metadata(({"deep": nested(20)}, [])), OversizedMessage, "nested"),
        (with_metadata(({"many": [[]] * (1 << 16)}, [])), OversizedMessage, "more than 65536 values"),
        (with_metadata(({"deep": nested(600)}, [])), MessageError, "nested|msgpack"),
        (with_metadata(({"long": "x" * (1 << 18)}, [])), OversizedMessage, "metadata"),
        (with_metadata(({"raw": b"bytes"}, [])), MalformedMessage, "holds a bytes"),
        (with_metadata(({b"key": 1}, [])), MalformedMessage, "key"),
        (with_metadata(({"time": msgpack.Timestamp(1, 2)}, [])), MalformedMessage, "Timestamp"),
        (with_metadata(({"ext": msgpack.ExtType(5, b"")}, [])), MalformedMessage, "extension type 5"),
        (with_metadata(b"\xdd\xff\xff\xff\xff"), MalformedMessage, "msgpack"),
        (with_metadata(({}, [], [])), MalformedMessage, "pair"),
        (with_body(b"\xff\0\0\0"), MalformedMessage, "announced in a body"),
        (wire.encode(vector_message(2 << 20), RUN, 0), OversizedMessage, "the limit is"),
        (wire.encode(vector_message(), RUN, 0).replace(b"ndfl", b"evil"), ForeignMessage, "evil"),
        (wire.encode(vector_message(), RUN, 0).replace(b"ndfl\x01", b"ndfl\x02"), ForeignMessage, "version 2"),
    ],
)
def test_each_limit_has_its_error(frame, error, words):
    with pytest.raises(error, match=words):
        wire.decode(frame, LIMITS)


def test_a_listing_that_is_known_is_read_by_the_limits_of_who_reads():
    message = vector_message()
    data = wire.encode(message, RUN, 0)
    for _ in range(2):
        assert contents(wire.decode(data, LIMITS)[1]) == contents(message.payload)
        for limits in (replace(LIMITS, max_arrays=0), replace(LIMITS, max_name=0)):
            with pytest.raises(OversizedMessage):
                wire.decode(data, limits)


def test_metadata_that_can_not_travel_is_the_senders_error():
    message = Message(0, 1, Kind.DATA, 0, 0, 0, 0, Payload(meta={"o": object()}))
    with pytest.raises(TypeError, match="metadata holds"):
        wire.frame_size(message.payload)
    with pytest.raises(TypeError, match="64 bits"):
        wire.frame_size(Payload(meta={"n": 2**64}))
    with pytest.raises(ValueError, match="can't hold"):
        wire.FrameWriter(RUN).header(Message(0, 1, Kind.DATA, 0, 2**31, 0, 0, Payload()), 0)


def test_the_wire_does_not_import_grpc():
    modules = ("base", "wire", "link_header", "grpc.chunks", "grpc.options", "security.identity")
    names = ", ".join(f"netdfl.transport.{name}" for name in modules)
    code = f"import sys; import {names}, netdfl.testing.transports; print(*sys.modules)"
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "netdfl.transport.wire" in loaded
    assert not {"grpc", "torch"} & set(loaded)
