"""The parts of a fleet on several machines from inside: sentences, lines of a relayed fork server, resolved hosts."""

from __future__ import annotations

import asyncio
import json
import queue

import pytest

from netdfl.core.errors import MachineError
from netdfl.diagnosis.fidelity import NetworkDelays, _sentence
from netdfl.host.plan import Command
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines.ray import RelayProcess
from netdfl.worlds.machines.slurm import _resolved


def test_late_by_the_network_between_machines_is_said_to_be() -> None:
    ways = NetworkDelays(
        {
            "machines": {"m0": [0], "m1": [1, 2]},
            "network": [{"src": "m0", "dst": "m1", "round_trip_s": 0.04, "rate_bps": 8e6}],
        }
    )
    assert ways.adds_s(0, 1, 1e4) == pytest.approx(0.03)
    assert ways.adds_s(1, 2, 1e4) == 0
    worst = {"src": 0, "dst": 1, "median_error_s": 0.035, "scheduled_delay_s": 0.01, "network_s": 0.03}
    said = _sentence([worst], 1, {"relative": 0.25, "slack_s": 0.01}, ways)
    assert "the network between m0 and m1 takes 30.0 ms of it by itself: place these nodes on one machine" in said


async def test_lines_of_a_relayed_fork_server_go_both_ways_and_its_end_is_seen() -> None:
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    says: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    killed: list[bool] = []
    forks = ForkServer(RelayProcess(heard.put, says.get, lambda: killed.append(True)))
    ended: list[int] = []
    forks.processes[7] = Command(nodes=(3,))
    forks._on_exit = lambda node, how: ended.append(node)
    forks._reading = asyncio.create_task(forks._read())
    forks.kill(7)
    assert json.loads(await asyncio.to_thread(heard.get)) == {"kill": 7}
    says.put(b'{"exited": {"pid": 7, "code": 0}}\n')
    says.put(b"")
    async with asyncio.timeout(10):
        await forks.ended.wait()
    assert ended == [3]
    await forks.aclose()
    assert killed


async def test_a_machine_has_an_address_of_ipv4_where_there_is_one_and_else_of_ipv6() -> None:
    assert await _resolved("localhost") == await _resolved("127.0.0.1") == "127.0.0.1"
    assert await _resolved("fd00::17") == "fd00::17"
    with pytest.raises(MachineError, match=r"the machine no\.such\.invalid has no address here"):
        await _resolved("no.such.invalid")
