"""A machine's connection to the supervisor: what ends it, and what does not."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from unittest import mock

import pytest

from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines import lifeline
from netdfl.worlds.machines.lifeline import Lifeline, Lifelines, hold
from netdfl.worlds.machines.machine import Machine
from netdfl.worlds.machines.ray import RelayProcess
from tests.machines.separated import Separated, ip, missing

PATIENCE_S = 60
HOLDS = """
import sys, time
from netdfl.worlds.machines.lifeline import hold
line = hold(sys.argv[1], int(sys.argv[2]), sys.argv[3])
print("held", flush=True)
line.recv(1)
"""
NOT_OURS = r"whoever listens there is not of this run|reset"
on_machines = pytest.mark.skipif(bool(missing()), reason=missing() or "they can be made here")


class Holding:
    """Machines on each of which a process holds a lifeline."""

    def __init__(self, machines: Separated) -> None:
        self.machines = machines
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, name: str, *arguments: str) -> None:
        command = [*self.machines.through(name), sys.executable, "-c", HOLDS, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"

    def close(self) -> None:
        for name in self.machines.names:
            self.machines.kill(name)
        for process in self._processes:
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def holding() -> Iterator[Holding]:
    with Separated(3) as machines, closing(Holding(machines)) as holding:
        yield holding


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Lifelines, int]]:
    lines = Lifelines(2_000_000_000)
    port = await lines.start()
    yield lines, port
    lines.close()


@on_machines
async def test_a_machine_is_gone_that_vanishes_or_is_killed_and_not_one_that_is_stopped(holding: Holding) -> None:
    """Nothing runs on the machine that is stopped for as long as the other takes to be gone, and its system answers."""
    machines, ended = holding.machines, list[str]()

    async def held_by(name: str) -> Lifeline:
        line = lines.expect(lambda: ended.append(name))
        await asyncio.to_thread(holding.begin, name, machines.here, str(port), line.token)
        return line

    stopped, cut, killed = machines.names
    async with listening() as (lines, port), asyncio.timeout(PATIENCE_S):
        held = {name: await held_by(name) for name in machines.names}
        for pid in ip("netns", "pids", stopped).split():
            os.kill(int(pid), signal.SIGSTOP)
        machines.unplug(cut)
        machines.kill(killed)
        await held[killed].ended.wait()
        await held[cut].ended.wait()
        assert ended == [killed, cut]
        assert held[cut].why == "its system has answered nothing for 2 s"
        assert held[killed].why == "the connection that it kept to here ended"
        machines.kill(stopped)
        await held[stopped].ended.wait()


async def test_a_lifeline_is_held_once_by_who_knows_its_token_and_nobody_else_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[bool] = []
    async with listening() as (lines, port), asyncio.timeout(PATIENCE_S):
        line = lines.expect(lambda: ended.append(True))
        with pytest.raises(OSError, match=NOT_OURS):
            await asyncio.to_thread(hold, "127.0.0.1", port, "0" * lifeline.TOKEN_BYTES)
        held = await asyncio.to_thread(hold, "127.0.0.1", port, line.token)
        with pytest.raises(OSError, match=NOT_OURS):
            await asyncio.to_thread(hold, "127.0.0.1", port, line.token)
        monkeypatch.setattr(lifeline, "CONNECT_S", 0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)  # who says nothing
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert not ended
        line.let_go()
        assert await asyncio.to_thread(held.recv, 1) == b""
        assert not ended
        held.close()
        await line.ended.wait()
        assert ended == [True]


async def test_what_an_engine_says_of_a_machine_is_no_news_while_its_connection_stands() -> None:
    """It may have given up one that is only slow; which is asked to end, and counts as gone once it has."""
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    says: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    engine = mock.Mock(start=lambda name: ForkServer(RelayProcess(heard.put, says.get, lambda: None)))
    machine = Machine("slow", "127.0.0.1", [0])
    async with listening() as (lines, port), asyncio.timeout(PATIENCE_S):
        machine.start(engine)
        holding = asyncio.create_task(machine.hold(lines, "127.0.0.1", port))
        asked = json.loads(await asyncio.to_thread(heard.get))["hold"]
        held = await asyncio.to_thread(hold, asked["host"], asked["port"], asked["token"])
        says.put(b'{"held": ""}\n')
        await holding
        lost = asyncio.create_task(machine.lost())
        says.put(b"")
        assert await asyncio.to_thread(held.recv, 1) == b""
        assert not lost.done()
        held.close()
        assert await lost == ("the connection that it kept to here ended", [])
        await machine.aclose(0)
