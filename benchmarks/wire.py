"""The wire against its limits: a raw TCP socket, a protobuf `bytes` unary call, and bare grpc.aio.

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
from collections.abc import Awaitable, Callable

TUNED = {
    "GRPC_VERBOSITY": "NONE",
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
}
if __name__ == "__main__" and any(os.environ.get(name) != value for name, value in TUNED.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | TUNED)

import grpc  # noqa: E402
import grpc.aio  # noqa: E402
import numpy as np  # noqa: E402

from netdfl.core.clock import RealClock  # noqa: E402
from netdfl.core.types import Array, Kind, Message, Payload  # noqa: E402
from netdfl.testing.transports import KeptLedger  # noqa: E402
from netdfl.transport.base import Fate  # noqa: E402
from netdfl.transport.grpc import GrpcOptions, GrpcTransport  # noqa: E402
from netdfl.transport.v1.data_pb2 import Frame, Receipt  # noqa: E402

LARGE, SMALL = 11_250_000, 160_000
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
Contender = Callable[[np.ndarray], Awaitable[None]]


class LastOnly:
    """A mailbox that keeps the last message, read as a vector."""

    def deliver(self, message: Message) -> Fate:
        self.vector = np.frombuffer(message.payload.arrays["x"].data, np.float32)
        return Fate.DELIVERED

    def when_room(self, callback: Callable[[], None]) -> None:
        raise AssertionError("never full")


def transport(node: int, ledger: KeptLedger) -> GrpcTransport:
    settings = {"run_id": b"wirebnch", "scenario_hash": "", "clock": RealClock(), "ledger": ledger}
    return GrpcTransport(node, "127.0.0.1:0", {}, **settings, options=GrpcOptions(max_message=64 << 20))


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
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


async def netdfl_contender(child: subprocess.Popen[str], address: str) -> Contender:
    ledger = KeptLedger()
    node = transport(0, ledger)
    print(json.dumps({"netdfl": await node.start()}), file=child.stdin, flush=True)
    await asyncio.to_thread(child.stdout.readline)
    node.set_peer(1, address)

    async def send(vector: np.ndarray) -> None:
        payload = Payload({"x": Array("float32", vector.shape, vector.data.cast("B").toreadonly())})
        await node.send([Message(0, 1, Kind.DATA, 0, 0, 0, 0, payload)])
        await ledger.until_settled(1)
        row = ledger.rows.pop()
        assert row.fate == Fate.DELIVERED, (row.fate, ledger.refusals)

    return send


async def contenders(child: subprocess.Popen[str]) -> dict[str, Contender]:
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


def row(name: str, value: float, unit: str, reference: str, reference_value: float) -> dict[str, object]:
    return {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "reference": reference,
        "reference_value": round(reference_value, 4),
        "ratio": round(value / reference_value, 3),
    }


async def main(repeats: int) -> None:
    command = [sys.executable, __file__, "--serve"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        named = await contenders(child)
        large = await medians({name: named[name] for name in ("netdfl", "tcp", "protobuf")}, LARGE, repeats)
        small = await medians({name: named[name] for name in ("netdfl", "raw")}, SMALL, 20 * repeats)
    finally:
        child.kill()
    gigabytes = {name: 4 * LARGE / 1e9 / taken for name, taken in large.items()}
    rows = [
        row("45 MB, vector to vector", gigabytes["netdfl"], "GB/s", "raw TCP socket", gigabytes["tcp"]),
        row("45 MB, vector to vector", gigabytes["netdfl"], "GB/s", "protobuf bytes unary", gigabytes["protobuf"]),
        row("0.64 MB, send to receipt", 1e3 * small["netdfl"], "ms", "bare grpc.aio unary", 1e3 * small["raw"]),
    ]
    print(json.dumps(rows, indent=1), flush=True)
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(serve() if arguments.serve else main(arguments.repeats))
