"""A child that ends as it starts is told to one who knows it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from netdfl.core.types import NodeId
from netdfl.host.plan import Command
from netdfl.worlds.fork_client import ForkServer


def answering(*lines: str) -> subprocess.Popen[bytes]:
    """A process that answers a command with several lines in one write."""
    answer = "".join(f"{line}\n" for line in lines).encode()
    program = f"import os, sys; sys.stdin.readline(); os.write(1, {answer!r})"
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_a_child_that_ends_as_it_starts_is_told_to_one_who_knows_it() -> None:
    its = ForkServer(answering('{"spawned": {"pid": 7}}', '{"exited": {"pid": 7, "code": 3}}'))
    known: set[int] = set()
    ends: asyncio.Queue[tuple[bool, NodeId, int | None]] = asyncio.Queue()
    its._on_exit = lambda node, how: ends.put_nowait((7 in known, node, how.code))
    its._begin_to_read()
    known.add(await its.spawn(Command(nodes=(0,))))
    assert await asyncio.wait_for(ends.get(), 60) == (True, 0, 3)
    assert not its.processes
    its.close()
