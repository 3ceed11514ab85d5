"""Everything at once, again and again: the attacks of strangers and of a member, and floods, by a process of its own.

    python -m tests.hostile.flood < ORDER
goes on until the line after the order, or the end of its input, and prints how often each thing was done, and heard.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import grpc.aio

from netdfl.transport.v1 import data_pb2
from tests.hostile.client import (
    MEMBERS,
    NO_CONNECTION,
    STRANGERS,
    Attacker,
    Known,
    greeting,
    header,
    read_order,
    try_all,
)

PAUSE_S = 0.05
"""Between two turns of an attack, or it would be about processors."""
SILENT = 50
UNHEARD = "nothing to be heard"
Flood = Callable[[Attacker, Known], Awaitable[str]]


async def silent_connections(caller: Attacker, known: Known) -> str:
    """Connect many times, and say nothing for a while."""
    host, _, port = caller.address.rpartition(":")
    opened = [await asyncio.open_connection(host.strip("[]"), int(port)) for _ in range(SILENT)]
    await asyncio.sleep(1)
    for _, writer in opened:
        writer.close()
    return UNHEARD


async def silent_streams(caller: Attacker, known: Known) -> str:
    """Open many streams over one connection, and say nothing."""
    async with caller.channel() as channel:
        push = channel.stream_stream("/netdfl.v1.Node/Push")
        calls = [push(timeout=2, metadata=caller.metadata) for _ in range(SILENT)]
        await asyncio.sleep(1)
        for call in calls:
            call.cancel()
    return UNHEARD


async def rapid_reset(caller: Attacker, known: Known) -> str:
    """Begin many calls, and cancel each at once."""
    async with caller.channel() as channel:
        await asyncio.wait_for(channel.channel_ready(), 10)
        push = channel.stream_stream("/netdfl.v1.Node/Push")
        for number in range(200):
            call = push(timeout=2, metadata=caller.metadata)
            if number % 20 == 0:
                await asyncio.sleep(0)
            call.cancel()
    return UNHEARD


async def requests_that_nobody_reads(caller: Attacker, known: Known) -> str:
    """Send large requests to a method that refuses them unread."""
    asked = [caller.hello(**greeting(known, 1, scenario_hash="x" * (1 << 20))) for _ in range(4)]
    return ", ".join(sorted(set(await asyncio.gather(*asked))))


async def half_a_message(caller: Attacker, known: Known) -> str:
    """Announce a message, send a part of it, and stay."""

    async def chunks() -> AsyncIterator[bytes]:
        head = header(known, 1)
        yield data_pb2.Chunk(header=head, total=64 << 20, data=bytes(1 << 20)).SerializeToString()
        await asyncio.sleep(2)

    async with caller.channel() as channel:
        call = channel.stream_unary("/netdfl.v1.Node/PushChunks")(chunks(), timeout=2, metadata=caller.metadata)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return str(data_pb2.Receipt.FromString(await call).fate)
    return UNHEARD


FLOODS: Mapping[str, Flood] = {
    "silent connections": silent_connections,
    "silent streams": silent_streams,
    "rapid reset": rapid_reset,
    "requests that nobody reads": requests_that_nobody_reads,
    "half a message": half_a_message,
}


class Flooding:
    """All of it, until `over`."""

    def __init__(self, known: Known) -> None:
        self.known, self.over = known, asyncio.Event()
        self.heard: dict[str, Counter[str]] = {}

    async def all_at_once(self, callers: list[Attacker]) -> None:
        flooded = {caller.address: caller for caller in reversed(callers)}.values()
        async with asyncio.TaskGroup() as tasks:
            for caller in callers:
                tasks.create_task(self._table(STRANGERS if caller.mine is None else MEMBERS, caller))
                for name, work in FLOODS.items() if caller.mine is None and caller in flooded else ():
                    tasks.create_task(self._again(name, work, caller))

    async def _again(self, name: str, work: Flood, caller: Attacker) -> None:
        while not self.over.is_set():
            try:
                self._note(name, await work(caller, self.known))
            except (OSError, TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                self._note(name, UNHEARD if isinstance(error, OSError | asyncio.InvalidStateError) else NO_CONNECTION)
            await asyncio.sleep(PAUSE_S)

    async def _table(self, attacks: Iterable[str], caller: Attacker) -> None:
        while not self.over.is_set():
            for name, heard in (await try_all(attacks, caller, self.known)).items():
                self._note(name, heard)
            await asyncio.sleep(PAUSE_S)

    def _note(self, name: str, heard: str) -> None:
        self.heard.setdefault(name, Counter())[heard] += 1


async def main() -> None:
    """Read the order, and go on until something more can be read."""
    order = await asyncio.to_thread(sys.stdin.readline)
    _, callers, known = read_order(order)
    flooding = Flooding(known)

    async def wait() -> None:
        await asyncio.to_thread(sys.stdin.readline)
        flooding.over.set()

    waiting = asyncio.create_task(wait())
    await flooding.all_at_once(callers)
    await waiting
    print(json.dumps(flooding.heard))


if __name__ == "__main__":
    asyncio.run(main())
