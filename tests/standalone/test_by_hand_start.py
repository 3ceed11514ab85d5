"""How a life of a node begins, by what its folder says of the last one; and what is said where it can't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.core.control import Life
from netdfl.core.errors import InputError, MachineError
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.load import loads
from netdfl.standalone.record import NodeRecord, NodeStage
from netdfl.standalone.request import Request
from netdfl.standalone.start import NothingToRun, RunIdentity, StartNegotiation
from netdfl.transport.control.rendezvous import Rendezvous
from netdfl.transport.security.identity import Identity

SCENARIO = """
schema: netdfl/1
name: by-hand
nodes: 3
rounds: 9
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: full
events: [{at_round: 2, crash: 1}]
"""
NOBODY = {0: "localhost:1", 1: "localhost:2", 2: "localhost:3"}
CRASH = {"source": 0, "at_round": 2, "at_ns": 5, "state": "kept"}


def start(folder: Path, node: int = 1) -> StartNegotiation:
    scenario = loads(SCENARIO)
    request = Request(
        scenario=scenario,
        node=node,
        host="127.0.0.1",
        port=4,
        peers=NOBODY,
        directory=folder,
        start_timeout_ns=200_000_000,
    )
    return StartNegotiation(request, "h", compile_schedule(scenario))


def record(folder: Path, **changes: Any) -> None:
    words: dict[str, Any] = {"node": 1, "run_id": "07" * 8, "epoch": 4, "scenario_hash": "h", "round": 3}
    NodeRecord(**words | changes).write(folder)


async def test_the_first_node_draws_the_run_anew(tmp_path: Path) -> None:
    one, two = [await start(tmp_path, 0).find_beginning() for _ in range(2)]
    assert one.life == Life()
    assert len(one.run_id) == 8
    assert one.run_id != two.run_id


async def test_the_first_node_keeps_a_run_that_has_not_begun(tmp_path: Path) -> None:
    record(tmp_path, node=0, epoch=0)
    assert await start(tmp_path, 0).find_beginning() == RunIdentity(bytes([7] * 8))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"stage": NodeStage.FINISHED}, InputError, "a run that has ended; name a new --out, or empty it"),
        ({"stage": NodeStage.RUNNING, "node": 2}, InputError, "is the directory of node 2; name another --out"),
        (
            {"stage": NodeStage.FAILED, "reason": "no memory"},
            NothingToRun,
            "failed in round 3 .* begin again: no memory",
        ),
        (
            {"stage": NodeStage.CRASHED, "crash": CRASH},
            NothingToRun,
            "crashed in round 3, as scripted, and never returns",
        ),
        ({"stage": NodeStage.RUNNING}, MachineError, r"gave up after 0\.2 s: no other node runs the run 0707"),
        ({"stage": NodeStage.GATHERING}, MachineError, r"gave up after 0\.2 s: node 0 \(localhost:1\) does not answer"),
    ],
)
async def test_what_can_not_begin_says_why(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    record(tmp_path, **changes)
    with pytest.raises(error, match=words):
        await start(tmp_path).find_beginning()


async def test_who_does_not_come_is_named_by_the_first(tmp_path: Path) -> None:
    rendezvous = Rendezvous(Identity(0, 0, bytes(8), "h"), NOBODY)
    rendezvous.ready.add(1)
    rendezvous.refused[2] = "node 2 comes with another scenario x, expected h"
    with pytest.raises(MachineError, match=r"node 2 \(localhost:3\) did not come; node 2 comes with another scenario"):
        await start(tmp_path, 0).agree(rendezvous, [], again=False)


async def test_neighbors_out_of_reach_are_named(tmp_path: Path) -> None:
    rendezvous = Rendezvous(Identity(1, 0, bytes(8), "h"), NOBODY)
    rendezvous.refused[2] = "node 2 is on numpy 1"
    words = r"nodes 0 \(localhost:1\), 2 \(localhost:3\) did not come, or can't be .*; node 2 is on numpy 1; start what"
    with pytest.raises(MachineError, match=words):
        await start(tmp_path).agree(rendezvous, [0, 2], again=False)
