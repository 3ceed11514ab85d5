"""A receiver in a process of its own that is stopped and killed; prints what became of each message, and what is left.

Its mailbox has room for three messages. The fork comes before grpc is imported.
"""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np

from netdfl.core.types import unicasts
from netdfl.transport.shared_memory.memory import PAGE, SharedMemory


async def read(memory: SharedMemory, pipe: Connection) -> None:
    from grpc_fleet import make

    from netdfl.testing.transports import KeptSink

    node = make(1, memory=memory)
    pipe.send(await node.start())
    node.set_peer(0, await asyncio.to_thread(pipe.recv))
    node.attach(sink := KeptSink(capacity=3))
    await sink.until(3)
    pipe.send("took three")
    await asyncio.Event().wait()


async def write(memory: SharedMemory, pipe: Connection, reader: int) -> None:
    from grpc_fleet import make

    from netdfl.testing.transports import KeptLedger, data_message, vector_payload

    ledger = KeptLedger()
    node = make(0, ledger, memory=memory)
    address = await asyncio.to_thread(pipe.recv)
    pipe.send(await node.start())
    node.set_peer(1, address)
    messages = [data_message((0, 1), t, vector_payload(np.full(3000, t, np.float32))) for t in range(6)]
    await node.send(unicasts(messages[:1]))
    await ledger.until_settled(1)
    await node.send(unicasts(messages[1:4]))
    assert await asyncio.to_thread(pipe.recv) == "took three"
    os.kill(reader, signal.SIGSTOP)
    await node.send(unicasts(messages[4:]))
    os.kill(reader, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, reader, 0)
    await ledger.until_settled(6)
    for row in ledger.rows:
        print(f"{row.message.round}:{row.fate.text}")
    buffers = node.buffers
    assert buffers is not None
    print(f"buffers:{sum(not buffer.is_free for buffer in buffers.pool.buffers)}")
    await node.aclose()


def main() -> None:
    before = set(os.listdir("/dev/shm"))
    memory = SharedMemory(range(2), 64 * PAGE, least_bytes=0)
    mine, its = Pipe()
    reader = os.fork()
    if reader == 0:
        asyncio.run(read(memory, its))
    asyncio.run(write(memory, mine, reader))
    print(f"shm:{len(set(os.listdir('/dev/shm')) - before)}")


if __name__ == "__main__":
    main()
