"""How much memory others can have a node, a supervisor or a reader keep: PSS before, at the peak and after, in MB.

python -m tests.soak.floods [TRIES] [ATTACK ...]

A victim is a process of its own: node 0 of five, with a model of 80,000 numbers, or a supervisor. A stranger knows its
address alone and may cost it 10 MB; a member has the secret and may cost it 10 MB and the messages that the bounds have
of a peer, or by calls those that they have of all peers. Each figure is the median of the tries.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np

from netdfl.core.bounds import MemoryBounds
from netdfl.transport.security.credentials import Credentials
from tests.hostile.client import Known, Metadata, body_of, frame, greeting, header, member, stranger
from tests.hostile.connections import SAID, holding
from tests.soak.tally import append, repeat

SECRET, RUN_ID, DIM, NODES = "the secret of this soak", b"run-0001", 80_000, 5
KNOWN = Known(RUN_ID, "abc", NODES, 10_000)
BOUNDS = MemoryBounds.of(num_nodes=NODES, together=1, peers=NODES - 1, directed=False, dim=DIM)
MB, SECONDS, SETTLING_S, COMMON = 1e6, 3.0, 1.0, 10.0
BODY = body_of({"x": np.ones(DIM, np.float32)})


def _credentials() -> Credentials:
    from netdfl.transport.security.authority import Authority  # with all of cryptography, which nodes do not load

    return Authority.make(RUN_ID.hex()).issue(0, 0)


async def _node(tls: bool = False, emulated: bool = False) -> None:
    """Be node 0 of five, which keeps to its bounds and reads nothing, with links of its own if they are `emulated`."""
    from netdfl.core.clock import RealClock
    from netdfl.core.process import keep_freed
    from netdfl.core.rng import Streams
    from netdfl.core.types import StepId
    from netdfl.host.network import LOOKAHEAD_AT_HOME
    from netdfl.links.channel import Links
    from netdfl.links.spec import LinksSpec
    from netdfl.node.ledger import NodeLedger
    from netdfl.node.mailbox import Mailbox
    from netdfl.record.store import StoreWriter
    from netdfl.transport.base import Ledger
    from netdfl.transport.emulated.transport import EmulatedTransport
    from netdfl.transport.grpc.options import GrpcOptions
    from netdfl.transport.grpc.transport import GrpcTransport
    from netdfl.transport.security.identity import Identity
    from netdfl.transport.security.secret import FleetSecret

    keep_freed()  # as every node does
    options = GrpcOptions(
        streams=BOUNDS.streams,
        calls=BOUNDS.calls,
        connections=BOUNDS.connections,
        max_message=4 * 8 * DIM + (1 << 20),
        lookahead=LOOKAHEAD_AT_HOME,
    )
    with tempfile.TemporaryDirectory() as folder, StoreWriter(Path(folder), "000") as store:
        clock = RealClock()

        def carrier(ledger: Ledger) -> GrpcTransport:
            return GrpcTransport(
                Identity(0, 0, RUN_ID, "abc"),
                "127.0.0.1:0",
                clock=clock,
                ledger=ledger,
                options=options,
                secret=FleetSecret(text=SECRET),
                credentials=_credentials() if tls else None,
            )

        ledger = NodeLedger(0, clock, store)

        def on_links() -> EmulatedTransport:
            links = Links(LinksSpec({"default": {"latency": "25ms"}}, {}, NODES), Streams(1), (), halves=True)
            peer_bytes = BOUNDS.peer_bytes
            return EmulatedTransport(0, carrier, links, (), clock=clock, ledger=ledger, seed=1, peer_bytes=peer_bytes)

        node = on_links() if emulated else carrier(ledger)
        node.begin()
        mailbox = Mailbox(keep_late=False, peer_bytes=BOUNDS.peer_bytes, late_bytes=BOUNDS.mailbox_bytes)
        mailbox.open(StepId(0, 0), lambda *told: None)
        node.attach(mailbox)
        address = await node.start()
        for peer in range(1, NODES):
            node.set_peer(peer, "127.0.0.1:1")
        print(address, flush=True)
        await asyncio.Event().wait()


async def _supervisor() -> None:
    """Serve as a supervisor at which no node of its fleet attends."""
    from netdfl.transport.control.attendance import ControlServer
    from netdfl.transport.security.secret import FleetSecret

    server = ControlServer(FleetSecret(text=SECRET), lambda *told: None, num_nodes=NODES, together=1)
    print(await server.start(), flush=True)
    await asyncio.Event().wait()


def _supervise() -> None:
    from netdfl.core.process import few_collections
    from netdfl.worlds.base import run_in_real_time

    with few_collections():  # as `netdfl.run` does
        run_in_real_time(_supervisor, lambda: None)


VICTIMS: Mapping[str, Callable[[], None]] = {
    "node": lambda: asyncio.run(_node()),
    "node at TLS": lambda: asyncio.run(_node(tls=True)),
    "node on emulated links": lambda: asyncio.run(_node(emulated=True)),
    "supervisor": _supervise,
}


def pss(pid: int) -> float:
    """The memory of a process, in MB; what it shares counts by parts."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Pss:")) * 1024 / MB


class Cost(NamedTuple):
    """What an attack costs its victim, in MB."""

    before: float
    peak: float
    after: float


@contextmanager
def victim(kind: str) -> Iterator[tuple[int, str]]:
    """A victim, by its process and address."""
    command = [sys.executable, "-m", "tests.soak.floods", "be", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.kill()


def cost(kind: str, attack: Callable[[str], None]) -> Cost:
    """What `attack` costs a victim of `kind`."""
    with victim(kind) as (pid, address):
        time.sleep(SETTLING_S)
        before, peak, over = pss(pid), [0.0], threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                peak[0] = max(peak[0], pss(pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            attack(address)
            time.sleep(SETTLING_S)
        finally:
            over.set()
            watching.join()
        return Cost(before, peak[0], pss(pid))


# attacks


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _opening(path: bytes, metadata: Metadata) -> bytes:
    """The headers of a call."""
    fixed = ((b":path", path), (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc"))
    named = [(name.encode(), value.encode()) for name, value in metadata]
    return b"\x83\x86" + b"".join(_literal(*each) for each in (*fixed, *named))


def rapid_reset(metadata: Callable[[str], Metadata]) -> Callable[[str], None]:
    """Open calls and reset each at once, over four connections."""

    def attack(address: str) -> None:
        host, _, port = address.rpartition(":")
        calls = _opening(b"/netdfl.v1.Node/Push", metadata(address))
        connections: dict[socket.socket, int] = {}
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with suppress(OSError):
                while len(connections) < 4:
                    made = socket.create_connection((host, int(port)), timeout=1.0)
                    made.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
                    connections[made] = 1
            for each, first in list(connections.items()):
                streams = range(first, first + 400, 2)
                reset = struct.pack("!I", 8)
                try:
                    each.sendall(b"".join(_frame(1, 4, s, calls) + _frame(3, 0, s, reset) for s in streams))
                    connections[each] = first + 400
                except OSError:
                    del connections[each]
                    each.close()
        for each in connections:
            each.close()

    return attack


def held(said: str) -> Callable[[str], None]:
    """Hold as many connections as can be had, and say so much over each."""

    def attack(address: str) -> None:
        until = time.monotonic() + SECONDS
        with holding(address, said, 0) as stranger:
            while time.monotonic() < until:
                stranger.open(200)
                stranger.count()

    return attack


def over(work: Callable[[str, list[grpc.aio.Channel]], Awaitable[None]], connections: int = 1) -> Callable[[str], None]:
    """An attack by calls of gRPC over so many connections."""

    async def go(address: str) -> None:
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.max_send_message_length", -1),
        ]
        channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(connections)]
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await work(address, channels)
        for channel in channels:
            await channel.close()

    return lambda address: asyncio.run(go(address))


async def _written(call: Any, *data: bytes) -> None:
    with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
        for each in data:
            await call.write(each)


def unread(metadata: Callable[[str], Metadata], path: str, data: bytes, streams: int) -> Any:
    """Write to many streams what nobody reads, and leave them open."""

    async def work(address: str, channels: list[grpc.aio.Channel]) -> None:
        calls = [
            channel.stream_stream(f"/netdfl.v1.{path}")(metadata=metadata(address))
            for channel in channels
            for _ in range(streams)
        ]
        await asyncio.gather(*(_written(call, *[data] * 4) for call in calls))
        await asyncio.sleep(SECONDS)

    return work


def as_member(address: str) -> Metadata:
    """A member's metadata."""
    return member(SECRET, 0, address)


def as_stranger(address: str) -> Metadata:
    """A stranger's metadata."""
    return stranger(0)


def as_nobody(address: str) -> Metadata:
    """No metadata."""
    return ()


async def _greet(address: str, channel: grpc.aio.Channel, node: int) -> None:
    from netdfl.transport.v1 import data_pb2

    hello = channel.unary_unary("/netdfl.v1.Node/Hello")
    said = data_pb2.HelloRequest(**greeting(KNOWN, node)).SerializeToString()
    data = await hello(said, metadata=as_member(address), timeout=10)
    assert data_pb2.HelloReply.FromString(data).accepted


async def early_rounds(address: str, channels: list[grpc.aio.Channel]) -> None:
    """Send each round's message of one member long before it is awaited."""
    await _greet(address, channels[0], 1)
    call = channels[0].stream_stream("/netdfl.v1.Node/Push")(metadata=as_member(address))
    for round in range(1, 2000):
        await _written(call, frame(header(KNOWN, 1, round=round), BODY))
        await call.read()


async def far_from_due(address: str, channels: list[grpc.aio.Channel]) -> None:
    """Send messages of one member that are due on their emulated link in 18 years."""
    from netdfl.transport.link_header import LinkHeader
    from netdfl.transport.v1 import data_pb2

    await _greet(address, channels[0], 1)
    call = channels[0].stream_stream("/netdfl.v1.Node/Push")(metadata=as_member(address))
    behind = data_pb2.Frame(stamp=LinkHeader(1, 0, 1 << 59).pack()).SerializeToString()
    for round in range(1, 2000):
        await _written(call, frame(header(KNOWN, 1, round=round), BODY) + behind)
        await call.read()


async def refused_calls(address: str, channels: list[grpc.aio.Channel]) -> None:
    """Make calls without the secret, again and again."""

    async def again(channel: grpc.aio.Channel) -> None:
        attend = channel.stream_stream("/netdfl.v1.Control/Attend")
        while True:
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await attend(metadata=as_nobody(address)).read()

    await asyncio.gather(*(again(channel) for channel in channels for _ in range(8)))


async def half_sent(address: str, channels: list[grpc.aio.Channel]) -> None:
    """Send messages of one member up to their last chunk."""
    from netdfl.transport.v1 import data_pb2

    await _greet(address, channels[0], 1)
    total, piece = 4 * 8 * DIM, bytes(1 << 18)

    async def chunks(round: int) -> AsyncIterator[bytes]:
        first = data_pb2.Chunk(header=header(KNOWN, 1, round=round), total=total, data=piece)
        yield first.SerializeToString()
        for _ in range(total // len(piece) - 1):
            yield data_pb2.Chunk(data=piece).SerializeToString()
        await asyncio.sleep(SECONDS)

    pushes = [channel.stream_unary("/netdfl.v1.Node/PushChunks") for channel in channels]
    calls = [push(chunks(round), metadata=as_member(address)) for round in range(1, 20) for push in pushes]
    await asyncio.gather(*calls, return_exceptions=True)


FEW, SOME = BOUNDS.peer_bytes / MB + COMMON, BOUNDS.mailbox_bytes / MB + COMMON
ATTACKS: Mapping[str, tuple[str, Callable[[str], None], float]] = {
    "rapid reset, stranger": ("node", rapid_reset(as_stranger), COMMON),
    "rapid reset, member": ("node", rapid_reset(as_member), FEW),
    "requests nobody reads, stranger": ("node", over(unread(as_stranger, "Node/Push", bytes(1 << 19), 100), 4), COMMON),
    "hellos of 500 kB, stranger": ("node", over(unread(as_stranger, "Node/Hello", bytes(1 << 19), 100), 4), COMMON),
    "silent streams, stranger": ("node", over(unread(as_stranger, "Node/Push", b"", 500), 10), COMMON),
    "silent streams, member": ("node", over(unread(as_member, "Node/Push", b"\xff", 500), 10), FEW),
    **{f"connections over which {said} is said": ("node", held(said), COMMON) for said in SAID},
    "connections over which half a TLS handshake is said": ("node at TLS", held("half a handshake"), COMMON),
    "connections at a supervisor": ("supervisor", held("HTTP/2"), COMMON),
    "early rounds, member": ("node", over(early_rounds), FEW),
    "messages due in 18 years, member": ("node on emulated links", over(far_from_due), FEW),
    "half-sent messages, member": ("node", over(half_sent, 10), SOME),
    "refused calls at a supervisor": ("supervisor", over(refused_calls, 4), COMMON),
    "reports before the secret is shown": (
        "supervisor",
        over(unread(as_nobody, "Control/Attend", bytes(1 << 22), 50), 4),
        COMMON,
    ),
}


TINY: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "name": "tiny",
    "nodes": 3,
    "rounds": 3,
    "world": {"kind": "simulated"},
    "task": {"kind": "consensus", "dim": 8},
    "algorithm": "dpsgd",
    "topology": "full",
}


def parquet(tries: int) -> Cost:
    """What reading a run costs whose few bytes of Parquet stand for gigabytes."""
    import duckdb

    import netdfl

    with tempfile.TemporaryDirectory() as folder:
        store = netdfl.run(TINY, out=Path(folder) / "run", page=False).path / "store"
        details = "'{\"x\": \"' || repeat('x', 800000) || '\"}' AS details"
        row = f"0.0 AS at_s, 0 AS node, 0 AS round, 'odd' AS kind, {details}"
        duckdb.sql(f"COPY (SELECT {row} FROM range(4000)) TO '{store}/events.1.parquet' (COMPRESSION zstd)")
        peaks = []
        for _ in range(tries):
            process = subprocess.Popen(
                [sys.executable, "-m", "netdfl", "report", str(store.parent)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            peak = 0.0
            while process.poll() is None:
                with suppress(OSError):
                    peak = max(peak, pss(process.pid))
                time.sleep(0.02)
            assert process.stderr is not None
            assert "stands for more than can be read" in process.stderr.read()
            peaks.append(peak)
        return Cost(0.0, median(peaks), 0.0)


def main(tries: str = "3", *named: str) -> None:
    """Try each attack, print what it costs, and append the count of those that cost too much."""
    costs: dict[str, Cost] = {}

    def trial(rng: Random, number: int) -> str | None:
        name = (named or (*ATTACKS, "parquet"))[number]
        if name == "parquet":
            found, most = parquet(int(tries)), 800.0
        else:
            kind, attack, most = ATTACKS[name]
            found = Cost(*(median(each) for each in zip(*(cost(kind, attack) for _ in range(int(tries))), strict=True)))
        costs[name] = found
        print(
            f"{name}: {found.before:.0f} / {found.peak:.0f} / {found.after:.0f} MB, allowed {most:.0f} more", flush=True
        )
        return f"{name} costs {found.peak - found.before:.0f} MB" if found.peak - found.before > most else None

    counted = repeat(trial, count=len(named or (*ATTACKS, "parquet")), seed=1)
    if not named:
        append("memory under floods", counted, 1)
    print(json.dumps({name: [round(each, 1) for each in found] for name, found in costs.items()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["be"]:
        VICTIMS[sys.argv[2]]()
    else:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        main(*sys.argv[1:])
