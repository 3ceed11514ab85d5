"""The frame: the bytes of a message, wire compatible with `Frame` of data.proto.

    frame = 0x0A len header | 0x12 varint(len) body         (body begins at byte 48; a link header may follow)
          | 0x0A len header | 0x22 len reference            (the body lies in shared memory)
    body  = u32 length of metadata | msgpack metadata | arrays, each at a multiple of 16 | u64 xxh3_64

Relies on: protobuf's encoding of fields with a length, and little-endian arrays, as numpy and torch have them.

Why: Reading does not copy arrays: they are views of the body. That is why arrays are aligned and the body begins at a
fixed byte. Nothing that comes over a wire is trusted: whatever the bytes are, decoding returns a message or raises one
of the three `MessageError`s. protobuf would copy each body, so netdfl reads and writes these few fields itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

import msgpack
from xxhash import xxh3_64, xxh3_64_intdigest

from netdfl.core.errors import ForeignMessage, MalformedMessage, OversizedMessage, UnsendableError
from netdfl.core.types import ITEM_BYTES, Array, Kind, Message, NodeId, Payload, Scalar

Listing: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]
"""The name, dtype and shape of each array of a payload."""

PROTOCOL_VERSION = 2
"""The version of the calls between nodes and with the supervisor: their order, contents and proofs of membership."""
FRAME_VERSION = 1
"""The version of a message's byte format, in which checkpoints also hold a node's unacknowledged messages."""
BODY_AT = 48

_MAGIC = b"ndfl"
_HEADER = struct.Struct("<4sBBHIIii8sq")
_SENT_AT = _HEADER.size - 8
_LENGTH = struct.Struct("<I")
_CHECKSUM = struct.Struct("<Q")
_ALIGN = 16
_ZEROS = bytes(_ALIGN)
_PIECE_BYTES = 1 << 18
"""Bytes that are hashed and copied at a time, so that the copy reads from the cache of a core."""
_MAX_RANK = 16
_NO_META = b"\x92\x80"
"""The first bytes of a payload's msgpack metadata without key-value pairs: a pair that begins with an empty map."""
_MOST_KEPT_BYTES = 1024
"""Longest metadata in bytes whose decoded form is cached: a bound on what a sender can make this node keep."""
_KINDS = tuple(Kind)
_KIND_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """The limits of a frame decoder. `max_bytes` bounds the body and comes from the scenario's model.

    Limits are compared by identity, because they are part of a cache key that is looked up for each message.
    """

    max_bytes: int = 1 << 26
    max_arrays: int = 1024
    max_name: int = 256
    max_metadata_bytes: int = 1 << 18
    max_depth: int = 16
    max_values: int = 1 << 16


class Header(NamedTuple):
    """The fixed part of a frame. `sent_ns` is when the sender first encoded it, on the fleet's clock."""

    kind: Kind
    src: NodeId
    epoch: int
    round: int
    step: int
    attempt: int
    run_id: bytes
    sent_ns: int


class FrameWriter:
    """The encoder of frames, each with a header and a body, or a header and a reference to shared memory.

    A body is the same for all receivers of a payload, and is encoded once.
    """

    def __init__(self, run_id: bytes) -> None:
        """Write frames for the run with id `run_id`."""
        self._run_id = run_id

    def header(self, message: Message, sent_ns: int) -> bytes:
        """Return the 40-byte header that identifies a message. Raises ValueError for a number that does not fit."""
        src, _, kind, epoch, round_, step, attempt, _ = message
        numbers = _KIND_NUMBERS[kind], attempt, src, epoch, round_, step
        try:
            return _HEADER.pack(_MAGIC, FRAME_VERSION, *numbers, self._run_id, sent_ns)
        except struct.error as error:
            raise ValueError(f"a header can't hold {message}: {error}") from error

    @staticmethod
    def join(header: bytes, payload: Payload) -> bytes:
        """Return the frame of a header and a payload; the same bytes object again if only `sent_ns` differs."""
        parts = FrameWriter.body(payload)
        if len(parts) == 1 and isinstance(parts[0], memoryview) and isinstance(frame := parts[0].obj, bytes):
            if frame[2 : 2 + _SENT_AT] == header[:_SENT_AT]:
                return frame
        nbytes = sum(len(part) for part in parts)
        lead = b"\x12" + varint(nbytes)
        header += bytes(BODY_AT - 2 - len(header) - len(lead))
        frame = b"".join((b"\x0a", varint(len(header)), header, lead, *parts))
        payload.encoded = (memoryview(frame)[BODY_AT:],)
        return frame

    @staticmethod
    def referring(header: bytes, reference: bytes) -> bytes:
        """Return a frame with a reference to shared memory in place of its body."""
        return b"".join((b"\x0a", varint(len(header)), header, b"\x22", varint(len(reference)), reference))

    @staticmethod
    def with_link_header(frame: bytes, link_header: bytes) -> bytes:
        """Return the frame with an emulated link's header appended."""
        return b"".join((frame, b"\x1a", varint(len(link_header)), link_header))

    @staticmethod
    def size(payload: Payload) -> int:
        """Return the exact size in bytes of a frame with `payload`, without HTTP/2 and TCP headers."""
        if payload.size is None:
            at = _LENGTH.size + len(FrameWriter._metadata(payload))
            for array in payload.arrays.values():
                at += -at % _ALIGN + array.data.nbytes
            payload.size = BODY_AT + at + _CHECKSUM.size
        return payload.size

    @staticmethod
    def body(payload: Payload) -> tuple[_Buffer, ...]:
        """Return the body as buffers that share memory with the payload's arrays; cached in `payload.encoded`."""
        if payload.encoded is None:
            parts = FrameWriter._content(payload)
            digest = xxh3_64()
            for part in parts:
                digest.update(part)
            payload.checksum = digest.intdigest()
            payload.encoded = (*parts, _CHECKSUM.pack(payload.checksum))
            payload.size = BODY_AT + sum(len(part) for part in payload.encoded)
        return payload.encoded

    @staticmethod
    def checksum(payload: Payload) -> int:
        """Return the checksum of a payload's encoded form; a payload that was read from a frame has it already."""
        if payload.checksum is None:
            digest = xxh3_64()
            for part in FrameWriter._content(payload):
                digest.update(part)
            payload.checksum = digest.intdigest()
        return payload.checksum

    @staticmethod
    def write_body(payload: Payload, into: memoryview) -> None:
        """Write the body into `into`, which has exactly its size, in one pass over the arrays."""
        digest, at = xxh3_64(), 0
        for part in FrameWriter._content(payload):
            view = memoryview(part)
            for start in range(0, len(view), _PIECE_BYTES):
                piece = view[start : start + _PIECE_BYTES]
                digest.update(piece)
                into[at : at + len(piece)] = piece
                at += len(piece)
        payload.checksum = digest.intdigest()
        into[at:] = _CHECKSUM.pack(payload.checksum)

    @staticmethod
    def _content(payload: Payload) -> list[_Buffer]:
        """Return the buffers (metadata, arrays, padding) that make up a payload's body, without its checksum."""
        metadata = FrameWriter._metadata(payload)
        lead = _LENGTH.pack(len(metadata)) + metadata
        parts: list[_Buffer] = [lead]
        at = len(lead)
        for array in payload.arrays.values():
            gap = -at % _ALIGN
            parts += (_ZEROS[:gap], array.data) if gap else (array.data,)
            at += gap + array.nbytes
        return parts

    @staticmethod
    def _metadata(payload: Payload) -> bytes:
        listing = tuple([(name, array.dtype, array.shape) for name, array in payload.arrays.items()])
        return FrameWriter.packed(payload.meta, listing) if payload.meta else _bare(listing)

    @staticmethod
    def packed(meta: Mapping[str, Scalar], listing: Listing) -> bytes:
        """Return the encoded metadata of a body: its key-value pairs, and the listing of its arrays.

        Raises UnsendableError.
        """
        try:
            packed: bytes = msgpack.packb((meta, listing), default=_plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise error if isinstance(error, UnsendableError) else UnsendableError(f"metadata: {error}") from error
        return packed


frame_size = FrameWriter.size
"""The exact size in bytes of a frame with a payload, which simulated links also count."""


def encode(message: Message, run_id: bytes, sent_ns: int) -> bytes:
    """Return the frame of a message as one bytes object, made once per payload and step, as neighbors share it."""
    writer = FrameWriter(run_id)
    return writer.join(writer.header(message, sent_ns), message.payload)


class FrameReader:
    """The decoder of frames, within limits. Invalid bytes raise MessageErrors, never other errors."""

    def __init__(self, limits: Limits) -> None:
        """Accept frames within `limits`."""
        self._limits = limits

    @staticmethod
    def split_link_header(data: _Buffer) -> tuple[memoryview, memoryview | None]:
        """Split data into the frame and the link header behind it, None if there is none. Raises MalformedMessage."""
        view = memoryview(data)
        nbytes, body_at = FrameReader._body_of(view)
        end = body_at + nbytes
        if end >= len(view):
            return view, None
        if view[end] != 0x1A:
            raise MalformedMessage(f"{len(view) - end} bytes follow the body of a frame, and are no link header")
        length, at = FrameReader.varint(view, end + 1)
        if length != len(view) - at:
            raise MalformedMessage(f"a frame announces a link header of {length} bytes and has {len(view) - at}")
        return view[:end], view[at:]

    @staticmethod
    def split_reference(frame: memoryview) -> tuple[Header, bytes] | None:
        """Return the header and the shared-memory reference of a frame; None if the frame has a body.

        Raises as `header`.
        """
        at = 2 + _HEADER.size
        if len(frame) < at + 2 or frame[1] != _HEADER.size or frame[at] != 0x22:
            return None
        return FrameReader.header(frame[2:at]), bytes(frame[at + 2 :])

    def decode(self, data: _Buffer) -> tuple[Header, Payload]:
        """Read a frame. The payload's arrays are views into `data`.

        Raises:
            OversizedMessage: the frame exceeds a limit.
            ForeignMessage: the frame's magic or protocol version is not this program's.
            MalformedMessage: anything else is wrong with the frame.
        """
        most = BODY_AT + self._limits.max_bytes
        if len(data) > most:
            raise OversizedMessage(f"a frame of {len(data)} bytes came, the limit is {most}")
        view = memoryview(data)
        nbytes, body_at = self._body_of(view)
        if body_at != BODY_AT or nbytes != len(view) - BODY_AT or view[2 + view[1]] != 0x12:
            raise MalformedMessage(f"a frame announces a body of {nbytes} bytes and has {len(view) - body_at}")
        header = self.header(view[2 : 2 + view[1]])
        return header, self.body(view[BODY_AT:])

    @staticmethod
    def header(data: _Buffer) -> Header:
        """Read a header. Raises ForeignMessage or MalformedMessage."""
        if len(data) < _HEADER.size or any(data[_HEADER.size :]):
            raise MalformedMessage(f"a header of {len(data)} bytes came, expected {_HEADER.size} and then zeros")
        magic, version, kind, attempt, src, epoch, round_, step, run_id, sent_ns = _HEADER.unpack_from(data)
        if magic != _MAGIC or version != FRAME_VERSION:
            raise ForeignMessage(
                f"a frame begins with {magic!r} version {version}, expected {_MAGIC!r} version {FRAME_VERSION}; "
                "run the same netdfl on every node"
            )
        if kind >= len(_KINDS):
            raise MalformedMessage(f"a header of node {src} has the unknown kind {kind}")
        return Header(_KINDS[kind], src, epoch, round_, step, attempt, run_id, sent_ns)

    def body(self, body: memoryview) -> Payload:
        """Check and read a body in one piece. Raises MessageErrors only."""
        return self.hashed_body(body, xxh3_64_intdigest(body[: -_CHECKSUM.size]))

    def hashed_body(self, body: memoryview, digest: int) -> Payload:
        """Read a body whose bytes before the checksum hash to `digest`. Raises MessageErrors only."""
        if len(body) < _LENGTH.size + _CHECKSUM.size:
            raise MalformedMessage(f"a body of {len(body)} bytes is too short to be one")
        if _CHECKSUM.unpack_from(body, len(body) - _CHECKSUM.size)[0] != digest:
            raise MalformedMessage(f"the checksum of a body of {len(body)} bytes does not match; it was damaged")
        content = body[: -_CHECKSUM.size].toreadonly()
        (length,) = _LENGTH.unpack_from(content)
        if length > self._limits.max_metadata_bytes:
            raise OversizedMessage(f"metadata of {length} bytes came, the limit is {self._limits.max_metadata_bytes}")
        at = _LENGTH.size + length
        if at > len(content):
            raise MalformedMessage(f"metadata of {length} bytes is announced in a body of {len(body)}")
        meta, listing = self._metadata(content[_LENGTH.size : at])
        arrays: dict[str, Array] = {}
        for name, dtype, shape in listing:
            at += -at % _ALIGN
            end = at + ITEM_BYTES[dtype] * prod(shape)
            if name in arrays or end > len(content):
                raise MalformedMessage(f"array {name!r} of shape {shape} stands twice or exceeds the body")
            arrays[name] = Array(dtype, shape, content[at:end])
            if dtype == "bool" and bytes(content[at:end]).strip(b"\x00\x01"):
                raise MalformedMessage(f"array {name!r} is of bool and holds bytes other than 0 and 1")
            at = end
        if at != len(content):
            raise MalformedMessage(f"{len(content) - at} bytes follow the last array of a body")
        return Payload(arrays, meta, size=BODY_AT + len(body), checksum=digest)

    @staticmethod
    def varint(data: memoryview, at: int) -> tuple[int, int]:
        """Return the protobuf varint at offset `at`, and the offset after it. Raises MalformedMessage."""
        value = 0
        for index, byte in enumerate(data[at : at + 10]):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, at + index + 1
        raise MalformedMessage("a number in a frame does not end")

    @staticmethod
    def _body_of(frame: memoryview) -> tuple[int, int]:
        """Return the length of a frame's body or reference, and the offset at which it begins."""
        begun = len(frame) >= BODY_AT and frame[0] == 0x0A and frame[1] < BODY_AT - 3
        if not begun or frame[2 + frame[1]] not in b"\x12\x22":
            raise MalformedMessage(f"{len(frame)} bytes came that are not a frame: no header and body fields")
        return FrameReader.varint(frame, 3 + frame[1])

    def _metadata(self, data: memoryview) -> tuple[dict[str, Any], Listing]:
        if data[: len(_NO_META)] == _NO_META and len(data) <= _MOST_KEPT_BYTES:
            return {}, _listing_of(bytes(data), self._limits)
        return self.unpacked(data)

    def unpacked(self, data: _Buffer) -> tuple[dict[str, Any], Listing]:
        """Decode a body's metadata: return its key-value pairs, and the name, dtype and shape of each array."""
        try:
            content = msgpack.unpackb(data, raw=False, strict_map_key=True, ext_hook=_no_extension)
        except (ValueError, RecursionError, OverflowError, msgpack.UnpackException) as error:
            raise MalformedMessage(f"the metadata of a message is not msgpack: {error}") from error
        match content:
            case [dict() as meta, list() as listing] if len(content) == 2:
                pass
            case _:
                raise MalformedMessage("the metadata of a message is not a pair of a map and a list of arrays")
        if len(listing) > self._limits.max_arrays:
            raise OversizedMessage(f"{len(listing)} arrays came in one message, the limit is {self._limits.max_arrays}")
        if self._num_values(meta, self._limits.max_depth) > self._limits.max_values:
            raise OversizedMessage(f"the metadata of a message has more than {self._limits.max_values} values")
        return meta, tuple([self._entry(entry) for entry in listing])

    @staticmethod
    def _num_values(value: object, depth: int) -> int:
        if depth < 0:
            raise OversizedMessage("the metadata of a message is nested too deeply")
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise MalformedMessage("the metadata of a message has a key that is not a string")
            value = value.values()
        elif not isinstance(value, list):
            if value is not None and not isinstance(value, int | float | str):
                raise MalformedMessage(f"the metadata of a message holds a {type(value).__name__}")
            return 1
        return 1 + sum([FrameReader._num_values(item, depth - 1) for item in value])

    def _entry(self, entry: Any) -> tuple[str, str, tuple[int, ...]]:
        longest, most = self._limits.max_name, self._limits.max_bytes
        match entry:
            case [str() as name, str() as dtype, list() as shape] if dtype in ITEM_BYTES and len(shape) <= _MAX_RANK:
                if len(name) > longest:
                    raise OversizedMessage(f"an array has a name of {len(name)} letters, the limit is {longest}")
                sound = all(type(length) is int and 0 <= length <= most for length in shape)
                # An empty array may not claim an absurd shape either: it would overflow where it is made.
                if sound and prod(max(length, 1) for length in shape) <= most:
                    return name, dtype, tuple(shape)
        raise MalformedMessage(
            f"an array is announced as {str(entry)[:200]}, expected a name, a known dtype and a shape"
        )


def decode(data: _Buffer, limits: Limits) -> tuple[Header, Payload]:
    """Decode a frame into its header and payload. Raises MessageErrors only."""
    return FrameReader(limits).decode(data)


def varint(value: int) -> bytes:
    """Return a non-negative number as a protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=64)
def _bare(listing: Listing) -> bytes:
    """Return the encoded metadata of a payload without key-value pairs, with arrays as in `listing`.

    Cached: it is the same in every round.
    """
    return FrameWriter.packed({}, listing)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise UnsendableError(
        f"metadata holds {value!r} of {type(value).__name__}; numbers of 64 bits, strings, lists and maps travel"
    )


@lru_cache(maxsize=64)
def _listing_of(data: bytes, limits: Limits) -> Listing:
    """Return the names, types and shapes of a payload's arrays, from packed metadata that holds nothing else.

    Cached: they are the same in every round.
    """
    return FrameReader(limits).unpacked(data)[1]


def _no_extension(code: int, data: bytes) -> object:
    raise ValueError(f"extension type {code} is not allowed")
