"""A hostile client of a fleet: bare gRPC, written against `protos/` alone, and nothing of netdfl's own client code.

As a stranger it knows the ports that the kernel lists, and what an earlier netdfl told everybody: the run and the hash
of its scenario. As a member that errs it has the secret of the fleet, or a certificate, too.

    python -m tests.hostile.client < ORDER
makes the attacks of an order that `ordered` wrote, as another user or from another network, and prints what each hears.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import grpc
import grpc.aio
import msgpack
import numpy as np
import xxhash

from netdfl.transport.v1 import control_pb2, data_pb2, meeting_pb2

VERSION = 2
FRAME_VERSION = 1
KINDS = (
    "data",
    "ack",
    "notice",
    "board",
    "request",
    "reply",
    "heartbeat",
    "probe",
    "fetch",
    "model",
    "query",
    "status",
)
TIMEOUT_S = 10.0
NO_CONNECTION = "no connection"
_HEADER = struct.Struct("<4sBBHIIii8sq")
_REFERENCE = struct.pack("<QQQQHB", 0, 64, 1 << 63, 0, 0, 0)
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Known:
    """What an attacker knows of a fleet: its run, the hash of its scenario, its nodes, its rounds."""

    run_id: bytes
    scenario_hash: str
    num_nodes: int
    rounds: int


def proof(secret: str, audience: str) -> str:
    """The proof of a member who calls `audience`, as `protos/netdfl/v1/data.proto` has it."""
    return hmac.new(secret.encode(), audience.encode(), hashlib.sha256).hexdigest()


def member(secret: str, callee: int, address: str, version: int = VERSION) -> Metadata:
    """The metadata of a member's call of node `callee` at `address`, in a fleet that has a supervisor."""
    return ("netdfl-callee", f"{callee}"), ("netdfl-version", f"{version}"), ("netdfl-proof", proof(secret, address))


def stranger(callee: int = 0) -> Metadata:
    """The metadata of who knows the protocol, and no secret."""
    return ("netdfl-callee", f"{callee}"), ("netdfl-version", f"{VERSION}")


def header(known: Known, src: int, kind: str = "data", *, epoch: int = 0, round: int = 0, step: int = 0) -> bytes:
    """The header of a message in the name of `src`."""
    return _HEADER.pack(b"ndfl", FRAME_VERSION, KINDS.index(kind), 0, src, epoch, round, step, known.run_id, 0)


def body_of(arrays: Mapping[str, np.ndarray[Any, Any]] = {}, **meta: Any) -> bytes:
    """A body that holds `arrays` and `meta`."""
    listing = [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()]
    told = msgpack.packb([meta, listing])
    made = struct.pack("<I", len(told)) + told
    for array in arrays.values():
        made += bytes(-len(made) % 16) + array.tobytes()
    return made + struct.pack("<Q", xxhash.xxh3_64_intdigest(made))


def frame(head: bytes, body: bytes) -> bytes:
    """A frame with `body`, which begins at byte 48."""
    rest = data_pb2.Frame(body=body).SerializeToString()
    padded = head + bytes(48 - 2 - len(head) - (len(rest) - len(body)))
    return data_pb2.Frame(header=padded).SerializeToString() + rest


def referring(head: bytes, reference: bytes) -> bytes:
    """A frame with a reference to shared memory."""
    return data_pb2.Frame(header=head, reference=reference).SerializeToString()


def listening() -> list[int]:
    """The ports of this machine at which anybody listens, as the kernel tells every user."""
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return sorted({int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"})


@dataclass(frozen=True)
class Tls:
    """What is shown to a server of `name`, whose certificates are of `authority`: a certificate, or none."""

    name: str
    authority: str
    key: str = ""
    certificate: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """As gRPC has them."""
        shown = (self.key.encode(), self.certificate.encode()) if self.key else (None, None)
        return grpc.ssl_channel_credentials(self.authority.encode(), *shown)


@dataclass(frozen=True)
class Attacker:
    """Calls node `callee` at one address, with some metadata, in plain text or by TLS. As a member it is `mine`."""

    address: str
    metadata: Metadata = ()
    tls: Tls | None = None
    callee: int = 0
    mine: int | None = None

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """A connection of its own."""
        if self.tls is None:
            made = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        else:
            named = ("grpc.ssl_target_name_override", self.tls.name)
            made = grpc.aio.secure_channel(self.address, self.tls.credentials(), options=[*_OPTIONS, named])
        async with made as opened:
            yield opened

    def others(self, known: Known) -> list[int]:
        """The nodes in whose names it speaks."""
        return [node for node in range(1, known.num_nodes) if node != self.mine]

    async def hello(self, **said: Any) -> str:
        """`accepted`, or why not."""
        data = await self._ask("Node/Hello", data_pb2.HelloRequest(**said).SerializeToString())
        if isinstance(data, str):
            return data
        reply = data_pb2.HelloReply.FromString(data)
        return "accepted" if reply.accepted else reply.reason

    async def meet(self, **said: Any) -> str:
        """`accepted`, or why not."""
        data = await self._ask("Meeting/Meet", meeting_pb2.Call(**said).SerializeToString())
        return data if isinstance(data, str) else meeting_pb2.Answer.FromString(data).refusal or "accepted"

    async def push(self, *frames: bytes) -> str:
        """The fates of messages on one stream, each after the answer to the one before, or why the stream ended."""
        return await _heard(lambda: self._stream("Node/Push", frames, _fate))

    async def push_chunks(self, *chunks: bytes) -> str:
        """The fate of a message in chunks, or why its stream ended."""

        async def call(channel: grpc.aio.Channel) -> str:
            pushed = channel.stream_unary("/netdfl.v1.Node/PushChunks")
            data = await pushed(iter(chunks), timeout=TIMEOUT_S, metadata=self.metadata)
            return _fate(data)

        return await _heard(lambda: self._over(call))

    async def attend(self, *reports: bytes) -> str:
        """`accepted` by the supervisor, or why not."""
        return await _heard(lambda: self._stream("Control/Attend", reports, lambda data: "accepted"))

    async def _ask(self, method: str, request: bytes) -> bytes | str:
        async with self.channel() as channel:
            call = channel.unary_unary(f"/netdfl.v1.{method}")
            try:
                answer: bytes = await call(request, timeout=TIMEOUT_S, metadata=self.metadata)
                return answer
            except grpc.aio.AioRpcError as error:
                return _reason(error)

    async def _over(self, work: Callable[[grpc.aio.Channel], Awaitable[str]]) -> str:
        async with self.channel() as channel:
            return await work(channel)

    async def _stream(self, method: str, sent: Sequence[bytes], read: Callable[[bytes], str]) -> str:
        async with self.channel() as channel:
            call = channel.stream_stream(f"/netdfl.v1.{method}")(timeout=TIMEOUT_S, metadata=self.metadata)
            heard: list[str] = []
            try:
                for data in sent:
                    await call.write(data)
                    if (came := await call.read()) is grpc.aio.EOF:
                        ended = await call.code() is grpc.StatusCode.UNAVAILABLE
                        return NO_CONNECTION if ended else str(await call.details())
                    heard.append(read(came))
                return ", ".join(heard)
            finally:
                call.cancel()


def _fate(receipt: bytes) -> str:
    return str(data_pb2.Receipt.FromString(receipt).fate)


async def _heard(work: Callable[[], Awaitable[str]]) -> str:
    """What a call on a stream comes to; once more where gRPC lost the reason of its end behind a write."""
    for _ in range(50):
        try:
            return await work()
        except asyncio.InvalidStateError:
            continue
        except grpc.aio.AioRpcError as error:
            if "Internal error from Core" not in (error.details() or ""):
                return _reason(error)
    return "no reason came"


def _reason(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.UNAVAILABLE:  # in words of the machine's, which name the address
        return NO_CONNECTION
    return error.details() or error.code().name


Attack = Callable[[Attacker, Known], Awaitable[str]]


def greeting(known: Known, node: int, callee: int = 0, **more: Any) -> dict[str, Any]:
    """A hello in the name of `node`."""
    said = {"protocol_version": VERSION, "run_id": known.run_id, "scenario_hash": known.scenario_hash}
    return said | {"node": node, "callee": callee} | more


def _hello_in_every_name(epoch: int) -> Attack:
    async def attack(caller: Attacker, known: Known) -> str:
        said = [greeting(known, node, max(0, caller.callee), epoch=epoch) for node in caller.others(known)]
        return _all([await caller.hello(**each) for each in said])

    return attack


def _pushing(*heads: Mapping[str, Any], past: bool = False, **arrays: float) -> Attack:
    """Messages in the name of the last other node, which is the server where there is one."""
    body = body_of({name: np.full(8, value, np.float32) for name, value in arrays.items()}, w=1000.0)

    async def attack(caller: Attacker, known: Known) -> str:
        last = {"src": caller.others(known)[-1], "round": known.rounds if past else 0}
        return await caller.push(*(frame(header(known, **(last | head)), body) for head in heads))

    return attack


async def _refer(caller: Attacker, known: Known) -> str:
    return await caller.push(referring(header(known, caller.others(known)[-1]), _REFERENCE))


async def _in_chunks(caller: Attacker, known: Known) -> str:
    chunk = data_pb2.Chunk(header=header(known, caller.others(known)[-1]), total=1 << 20, data=bytes(1 << 10))
    return await caller.push_chunks(*[chunk.SerializeToString()] * 3)


def _meeting(phase: int, **more: Any) -> Attack:
    async def attack(caller: Attacker, known: Known) -> str:
        said = greeting(known, caller.others(known)[-1], max(0, caller.callee), phase=phase)
        return await caller.meet(**said | more)

    return attack


async def _attend(caller: Attacker, known: Known) -> str:
    node = caller.others(known)[0]
    hello = control_pb2.Hello(node=node, role="client", protocol_version=VERSION, scenario_hash=known.scenario_hash)
    crashed = control_pb2.Crashed(round=1, state="lost")
    reports = control_pb2.Report(hello=hello), control_pb2.Report(crashed=crashed)
    return await caller.attend(*(report.SerializeToString() for report in reports))


STRANGERS: dict[str, Attack] = {
    "hello in every name": _hello_in_every_name(0),
    "hello of a later life": _hello_in_every_name(5),
    "a share in a peer's name": _pushing({}, x=1000.0),
    "zeros in the server's name": _pushing({}, {"round": 1}, {"round": 2}, x=0.0),
    "a message past the last round": _pushing({}, past=True, x=0.0),
    "kinds that the family does not use": _pushing(*({"kind": kind} for kind in KINDS)),
    "a reference of version 2^63": _refer,
    "a message in chunks": _in_chunks,
    "which run is this": _meeting(0, run_id=b""),
    "the server is finished": _meeting(3),
    "a report of a crash": _attend,
}
"""The attacks of a stranger, which a member can make too, in the names of others."""


def _in_its_name(*heads: Mapping[str, Any], past: bool = False) -> Attack:
    """Messages of a member in its own name, after its hello."""
    body = body_of({"x": np.zeros(8, np.float32)}, w=1000.0)

    async def attack(caller: Attacker, known: Known) -> str:
        assert caller.mine is not None
        if (answer := await caller.hello(**greeting(known, caller.mine, caller.callee))) != "accepted":
            return answer
        last = {"src": caller.mine, "round": known.rounds if past else 0}
        return await caller.push(*(frame(header(known, **(last | head)), body) for head in heads))

    return attack


MEMBERS: dict[str, Attack] = {
    "over an edge that is none": _in_its_name(*({"round": round} for round in range(8))),
    "past the last round": _in_its_name({}, {"round": 1 << 20}, past=True),
    "of kinds that nobody uses": _in_its_name(*({"kind": kind} for kind in ("ack", "board", "request", "reply"))),
}
"""The attacks of a member at a node to which it has no edge: every message is one that the run does not have."""


def _all(answers: Sequence[str]) -> str:
    return answers[0] if len(set(answers)) == 1 else ", ".join(answers)


async def try_all(attacks: Iterable[str], caller: Attacker, known: Known) -> dict[str, str]:
    """What each attack gets to hear."""
    names = list(attacks)
    heard = await asyncio.gather(*((STRANGERS | MEMBERS)[name](caller, known) for name in names))
    return dict(zip(names, heard, strict=True))


def ordered(attacks: Iterable[str], callers: Iterable[Attacker], known: Known) -> str:
    """The order to make these attacks, for a process of another user, or in another network."""
    told = asdict(known) | {"run_id": known.run_id.hex()}
    return json.dumps({"attacks": list(attacks), "callers": [asdict(caller) for caller in callers], "known": told})


def _caller(told: dict[str, Any]) -> Attacker:
    tls = None if told["tls"] is None else Tls(**told["tls"])
    return Attacker(**told | {"metadata": tuple((key, value) for key, value in told["metadata"]), "tls": tls})


class Answers(TypedDict):
    """What one caller hears of each attack, and whether the kernel lists the port that it called."""

    heard: dict[str, str]
    listed: bool


def read_order(order: str) -> tuple[list[str], list[Attacker], Known]:
    """The attacks, the callers, and what these know."""
    told = json.loads(order)
    known = Known(**told["known"] | {"run_id": bytes.fromhex(told["known"]["run_id"])})
    return told["attacks"], [_caller(each) for each in told["callers"]], known


async def obey(order: str) -> list[Answers]:
    """Make the attacks of an order; return what each of its callers hears."""
    attacks, callers, known = read_order(order)
    found: list[Answers] = []
    for caller in callers:
        listed = caller.address.rpartition(":")[2] in map(str, listening())
        found.append({"heard": await try_all(attacks, caller, known), "listed": listed})
    return found


if __name__ == "__main__":
    for answers in asyncio.run(obey(sys.stdin.read())):
        print(json.dumps(answers))
