"""A large vector to several neighbors on one machine: bodies in shared memory beside inline ones and raw TCP.

    python benchmarks/neighbors.py [--neighbors 4] [--repeats 20] [--numbers 11250000]

A process a node. The time runs from a float32 vector at the sender to its knowledge that all neighbors hold it as one,
checked. Contenders take turns, in each process alike; medians. Raw TCP has a connection and a thread for each neighbor.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np
from figures import Row, show

from netdfl.core.outcome import Outcome
from netdfl.core.process import die_with_parent, keep_freed
from netdfl.core.types import Array, Kind, Message, Payload, unicasts
from netdfl.transport.shared_memory.memory import SharedMemory

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
WARM = 3
Contender = Callable[[np.ndarray], Awaitable[None]]


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


def receiver(parent: int, node: int, memory: SharedMemory, pipe: Connection) -> None:
    """Listen with a transport that shares memory, one that does not, and a socket; until the pipe ends."""
    die_with_parent(parent)
    keep_freed()
    asyncio.run(serve(node, memory, pipe))


async def serve(node: int, memory: SharedMemory, pipe: Connection) -> None:
    from wire import LastOnly, transport

    from netdfl.testing.transports import KeptLedger

    made = [transport(node, KeptLedger(), memory=each) for each in (memory, None)]
    for each in made:
        each.attach(LastOnly())
        each.set_peer(0, "127.0.0.1:1")
    addresses = [await each.start() for each in made]
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_tcp, args=(listener,), daemon=True).start()
    pipe.send((*addresses, listener.getsockname()[1]))
    await asyncio.to_thread(pipe.poll, None)
    os._exit(0)


async def contenders(
    neighbors: int, memory: SharedMemory, pipes: list[Connection], opened: AsyncExitStack
) -> dict[str, Contender]:
    """The ways to send a vector to all; `opened` closes what they open."""
    from wire import OneRow, transport

    from netdfl.transport.base import Fate

    told = [pipe.recv() for pipe in pipes]

    class Rows(OneRow):
        """Tells when all neighbors' are settled."""

        left = 0

        def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
            assert outcome.fate == Fate.DELIVERED, outcome
            self.left -= len(payloads)
            if not self.left:
                self.fate.set_result(outcome.fate)

    async def netdfl(which: int, memory: SharedMemory | None) -> Contender:
        ledger = Rows()
        node = transport(0, ledger, memory=memory)
        await node.start()
        opened.push_async_callback(node.aclose)
        for index, addresses in enumerate(told):
            node.set_peer(1 + index, addresses[which])

        async def send(vector: np.ndarray) -> None:
            ledger.fate, ledger.left = asyncio.get_running_loop().create_future(), neighbors
            payload = Payload({"x": Array("float32", vector.shape, vector.data.cast("B").toreadonly())})
            await node.send(unicasts([Message(0, 1 + dst, Kind.DATA, 0, 0, 0, 0, payload) for dst in range(neighbors)]))
            await ledger.fate

        return send

    connections = [socket.create_connection(("127.0.0.1", addresses[2])) for addresses in told]
    for connection in connections:
        opened.callback(connection.close)

    def to_one(connection: socket.socket, vector: np.ndarray) -> None:
        connection.sendall(vector.nbytes.to_bytes(8, "little"))
        connection.sendall(vector.data.cast("B"))
        connection.recv(1)

    async def tcp(vector: np.ndarray) -> None:
        await asyncio.gather(*(asyncio.to_thread(to_one, connection, vector) for connection in connections))

    return {"shared": await netdfl(0, memory), "inline": await netdfl(1, None), "tcp": tcp}


async def measure(neighbors: int, memory: SharedMemory, pipes: list[Connection], args: argparse.Namespace) -> list[Row]:
    """Medians, the contenders in turn."""
    from wire import row

    vector = np.random.default_rng(0).random(args.numbers, np.float32)
    async with AsyncExitStack() as opened:
        named = await contenders(neighbors, memory, pipes, opened)
        times: dict[str, list[float]] = {name: [] for name in named}
        for _ in range(args.repeats + WARM):
            for name, contender in named.items():
                began = time.perf_counter()
                await contender(vector)
                times[name].append(1000 * (time.perf_counter() - began))
    taken = {name: statistics.median(values[WARM:]) for name, values in times.items()}
    what = f"{4 * args.numbers / 1e6:.3g} MB to {neighbors} neighbors"
    return [
        row(f"{what}, {own}", taken[own], "ms", name, taken[other])
        for own, other, name in (
            ("shared", "tcp", "raw TCP sockets"),
            ("shared", "inline", "inline"),
            ("inline", "tcp", "raw TCP sockets"),
        )
    ]


def main() -> None:
    """Print a JSON list of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--neighbors", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--numbers", type=int, default=11_250_000)
    args = parser.parse_args()
    memory = SharedMemory(range(1 + args.neighbors), 4 * (4 * args.numbers + 65536), 32 << 10)
    pipes, parent = [], os.getpid()
    for node in range(1, 1 + args.neighbors):
        mine, its = Pipe()
        if os.fork() == 0:
            receiver(parent, node, memory, its)
        pipes.append(mine)
    keep_freed()
    rows = asyncio.run(measure(args.neighbors, memory, pipes, args))
    for pipe in pipes:
        pipe.send(None)
    show(rows, f"medians of {args.repeats}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
