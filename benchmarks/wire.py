"""The wire against its limits: a raw TCP socket, a protobuf `bytes` unary call, and bare grpc.aio; and with mutual TLS.

    python benchmarks/wire.py [--repeats 30]

Two processes on loopback. A contender's time runs from a float32 vector in one to the acknowledgement
that the other holds it as one; contenders take turns, and the median of each is printed as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial

import grpc
import grpc.aio
import numpy as np
from figures import Row, show

from netdfl.core.clock import RealClock
from netdfl.core.outcome import Outcome
from netdfl.core.process import keep_freed
from netdfl.core.types import Array, Kind, Message, Payload, unicasts
from netdfl.testing.transports import KeptLedger
from netdfl.transport.base import Fate
from netdfl.transport.grpc.transport import GrpcOptions, GrpcTransport
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.security.identity import Identity
from netdfl.transport.shared_memory.memory import SharedMemory
from netdfl.transport.v1.data_pb2 import Frame, Receipt

TUNED = {
    "GRPC_VERBOSITY": "NONE",
    "KEEP_FREED": "yes",
}
LARGE, SMALL = 11_250_000, 160_000
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
Contender = Callable[[np.ndarray], Awaitable[None]]


class LastOnly:
    """A mailbox that keeps the last message, read as a vector."""

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate]:
        self.vector = np.frombuffer(messages[-1].payload.arrays["x"].data, np.float32)
        return [Fate.DELIVERED] * len(messages)

    def when_room(self, callback: Callable[[], None]) -> None:
        raise AssertionError("never full")


class OneRow(KeptLedger):
    """Tells the fate of the one message under way."""

    fate: asyncio.Future[Fate]

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        self.fate.set_result(outcome.fate)


def transport(
    node: int, ledger: KeptLedger, credentials: Credentials | None = None, memory: SharedMemory | None = None
) -> GrpcTransport:
    options = GrpcOptions(max_message=64 << 20)
    known = partial(GrpcTransport, clock=RealClock(), options=options, credentials=credentials, memory=memory)
    return known(Identity(node, 0, b"wirebnch", ""), "127.0.0.1:0", ledger=ledger)


def receive_exactly(connection: socket.socket, view: memoryview) -> None:
    while view:
        view = view[connection.recv_into(view) :]


def serve_tcp(listener: socket.socket) -> None:
    """Take vectors with a length before each; acknowledge with one byte."""
    connection, _ = listener.accept()
    length = bytearray(8)
    while True:
        receive_exactly(connection, memoryview(length))
        vector = np.empty(int.from_bytes(length, "little") // 4, np.float32)
        receive_exactly(connection, vector.data.cast("B"))
        connection.sendall(b"k")


async def serve() -> None:
    """The receiving process: netdfl, raw and protobuf unary, and a socket. Ends with its input."""
    node = transport(1, KeptLedger())
    node.attach(LastOnly())
    addresses = {"netdfl": await node.start()}

    async def raw(data: bytes, context: object) -> bytes:
        np.frombuffer(data, np.float32)
        return b"k"

    async def protobuf(frame: Frame, context: object) -> Receipt:
        np.frombuffer(frame.body, np.float32)
        return Receipt(fate="delivered")

    server = grpc.aio.server(options=OPTIONS)
    methods = {
        "Raw": grpc.unary_unary_rpc_method_handler(raw),
        "Protobuf": grpc.unary_unary_rpc_method_handler(protobuf, Frame.FromString, Receipt.SerializeToString),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bare", methods),))
    addresses["bare"] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    listener = socket.create_server(("127.0.0.1", 0))
    addresses["tcp"] = str(listener.getsockname()[1])
    threading.Thread(target=serve_tcp, args=(listener,), daemon=True).start()
    print(json.dumps(addresses), flush=True)
    peer = json.loads(await asyncio.to_thread(sys.stdin.readline))
    node.set_peer(0, peer["netdfl"])
    print("ready", flush=True)
    peer = json.loads(await asyncio.to_thread(sys.stdin.readline))
    certified = transport(1, KeptLedger(), Credentials(**peer["credentials"]))
    certified.attach(LastOnly())
    certified.set_peer(0, peer["netdfl"])
    print(await certified.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


async def netdfl_contender(child: subprocess.Popen[str], address: str) -> Contender:
    ledger = OneRow()
    node = transport(0, ledger)
    assert child.stdout is not None
    print(json.dumps({"netdfl": await node.start()}), file=child.stdin, flush=True)
    await asyncio.to_thread(child.stdout.readline)
    node.set_peer(1, address)
    return sending(node, ledger)


async def certified_contender(child: subprocess.Popen[str]) -> Contender:
    """netdfl with mutual TLS."""
    ledger, authority = OneRow(), Authority.make(b"wirebnch".hex())
    node = transport(0, ledger, authority.issue(0, 0))
    assert child.stdout is not None
    told = {"netdfl": await node.start(), "credentials": asdict(authority.issue(1, 0))}
    print(json.dumps(told), file=child.stdin, flush=True)
    node.set_peer(1, (await asyncio.to_thread(child.stdout.readline)).strip())
    return sending(node, ledger)


def sending(node: GrpcTransport, ledger: OneRow) -> Contender:
    """Send a vector from `node`, and wait for its receipt."""

    async def send(vector: np.ndarray) -> None:
        ledger.fate = asyncio.get_running_loop().create_future()
        payload = Payload({"x": Array("float32", vector.shape, vector.data.cast("B").toreadonly())})
        await node.send(unicasts([Message(0, 1, Kind.DATA, 0, 0, 0, 0, payload)]))
        assert await ledger.fate == Fate.DELIVERED

    return send


async def contenders(child: subprocess.Popen[str]) -> dict[str, Contender]:
    assert child.stdout is not None
    addresses = json.loads(await asyncio.to_thread(child.stdout.readline))
    channel = grpc.aio.insecure_channel(addresses["bare"], options=OPTIONS)
    raw_call = channel.unary_unary("/Bare/Raw")
    protobuf_call = channel.unary_unary("/Bare/Protobuf", Frame.SerializeToString, Receipt.FromString)
    connection = socket.create_connection(("127.0.0.1", int(addresses["tcp"])))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def raw(vector: np.ndarray) -> None:
        await raw_call(vector.tobytes())

    async def protobuf(vector: np.ndarray) -> None:
        await protobuf_call(Frame(body=vector.tobytes()))

    async def tcp(vector: np.ndarray) -> None:
        connection.sendall(vector.nbytes.to_bytes(8, "little"))
        connection.sendall(vector.data.cast("B"))
        connection.recv(1)

    return {
        "netdfl": await netdfl_contender(child, addresses["netdfl"]),
        "tls": await certified_contender(child),
        "raw": raw,
        "protobuf": protobuf,
        "tcp": tcp,
    }


async def medians(named: dict[str, Contender], size: int, repeats: int) -> dict[str, float]:
    """Seconds per vector of `size` numbers, the contenders in turn."""
    vector = np.random.default_rng(0).random(size, np.float32)
    times: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(repeats + 3):
        for name, contender in named.items():
            start = time.perf_counter()
            await contender(vector)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken[3:]) for name, taken in times.items()}


def row(name: str, value: float, unit: str, reference: str, reference_value: float) -> Row:
    return Row(name, round(value, 4), unit, reference, round(reference_value, 4), round(value / reference_value, 3))


async def measure(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds by size and contender, under this process's allocator settings."""
    command = [sys.executable, __file__, "--serve"]
    child = await asyncio.to_thread(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        named = await contenders(child)
        large = await medians({name: named[name] for name in ("netdfl", "tls", "tcp", "protobuf")}, LARGE, repeats)
        small = await medians({name: named[name] for name in ("netdfl", "tls", "raw")}, SMALL, 20 * repeats)
    finally:
        child.kill()
    return {"large": large, "small": small}


def rows(repeats: int) -> list[Row]:
    """Every figure twice: as netdfl starts its nodes, and with the allocator's default settings."""
    made = []
    for label, settings in (("", TUNED), (", default malloc", {})):
        command = [sys.executable, __file__, "--measure", "--repeats", str(repeats)]
        environment = {name: value for name, value in os.environ.items() if name not in TUNED}
        output = subprocess.run(command, env=environment | settings, stdout=subprocess.PIPE, check=True).stdout
        taken = json.loads(output)
        speed = {name: 4 * LARGE / 1e9 / seconds for name, seconds in taken["large"].items()}
        small = {name: 1e3 * seconds for name, seconds in taken["small"].items()}
        large_name, small_name = f"45 MB, vector to vector{label}", f"0.64 MB, vector to receipt{label}"
        made += [
            row(large_name, speed["netdfl"], "GB/s", "raw TCP socket", speed["tcp"]),
            row(large_name, speed["netdfl"], "GB/s", "protobuf bytes unary", speed["protobuf"]),
            row(small_name, small["netdfl"], "ms", "bare grpc.aio unary", small["raw"]),
            row(f"{large_name}, mutual TLS", speed["tls"], "GB/s", "plain text", speed["netdfl"]),
            row(f"{small_name}, mutual TLS", small["tls"], "ms", "plain text", small["netdfl"]),
        ]
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if "KEEP_FREED" in os.environ:
        keep_freed()
    if arguments.serve:
        asyncio.run(serve())
    elif arguments.measure:
        print(json.dumps(asyncio.run(measure(arguments.repeats))), flush=True)
        os._exit(0)
    else:
        show(rows(arguments.repeats), f"medians of {arguments.repeats}, of the small ones {20 * arguments.repeats}")
