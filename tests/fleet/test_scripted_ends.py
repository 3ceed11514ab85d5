"""How a real node crashes as scripted, and how the launcher lets it return: the parts, without processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from netdfl.core.control import Crashed, Gone, Hello, ModelSaved, Order, Peers, Report, Returned, Start
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.fleet import node_process
from netdfl.fleet.evaluation import write_snapshot
from netdfl.fleet.node_life import Life
from netdfl.fleet.node_process import NodeProcess
from netdfl.fleet.returns import Returns
from netdfl.fleet.script import find_return
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.record.status import NodeStatus, Phase
from netdfl.scenario.load import loads

MS = 1_000_000
SCENARIO = """
schema: netdfl/1
name: ends
nodes: 3
rounds: 9
task: {kind: consensus, dim: 3}
algorithm: dpsgd
topology: full
"""


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_ns(self) -> int:
        return self.now


def crashed_life(event: CompiledEvent, clock: Clock) -> Life:
    """The life of node 1, to which `event` has just happened."""
    life = Life(SimpleNamespace(schedule=()), 1, Path(), clock, SimpleNamespace(), SimpleNamespace())
    life.door = SimpleNamespace(close=lambda: None)
    life.crash(event)
    return life


@pytest.mark.parametrize("when", [{"at": "2s"}, {"at_round": 3}])
def test_a_node_that_takes_long_to_leave_still_crashed_when_the_schedule_says(when: dict[str, Any]) -> None:
    """Else the launcher does not find a return that was due while the node settled what was in flight."""
    events = compile_events([{**when, "crash": 1, "restart_after": "300ms"}], Facts(3, Streams(1), rounds=9))
    event = next(event for event in events if event.action == "crash")
    clock = Clock(2001 * MS)  # timers are never early
    life = crashed_life(event, clock)
    clock.now = 2502 * MS
    reports: list[Crashed] = []
    process: Any = object.__new__(NodeProcess)
    vars(process).update(
        life=life,
        clock=clock,
        blueprint=SimpleNamespace(scenario=loads(SCENARIO)),
        node=SimpleNamespace(round=3, held_weight=None),
        report=reports.append,
    )
    process.report_crash(event)
    at_ns = reports[0].at_ns
    assert at_ns == (2000 if event.at_round is None else 2001) * MS
    back = find_return(events, 1, at_ns, source=reports[0].source, at_round=reports[0].at_round)
    assert back is not None
    assert back.at_ns == at_ns + 300 * MS


class CrashingNode(NodeProcess):
    """A node that has ended round 2 and crashes at once; its algorithm, clockwork and launcher are left out."""

    def __init__(self, directory: Path, grace_ns: int) -> None:
        transport = SimpleNamespace(close_grace=grace_ns)
        self.blueprint: Any = SimpleNamespace(scenario=SimpleNamespace(transport=transport))
        self.id, self.directory = 1, directory
        self.life: Any = SimpleNamespace(crashing=asyncio.Event(), background=tuple)
        self.life.crashing.set()
        self.due = asyncio.Queue()
        self.due.put_nowait((2, torch.ones(3), 1.0))
        self.told: list[int] = []

    async def begin(self) -> None:
        await asyncio.Event().wait()

    tick = end = begin

    def report(self, report: Report) -> None:
        assert isinstance(report, ModelSaved)
        self.told.append(report.round)


async def test_a_node_that_crashes_hands_over_the_models_of_rounds_that_it_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(path: Path, x: torch.Tensor, weight: float) -> None:
        time.sleep(0.05)
        write_snapshot(path, x, weight)

    monkeypatch.setattr(node_process, "write_snapshot", slow)
    (tmp_path / "snapshots").mkdir()
    node = CrashingNode(tmp_path, grace_ns=60_000 * MS)
    assert await asyncio.wait_for(node.run(), 60) == 0
    assert node.told == [2]


async def test_a_disk_that_never_answers_holds_a_crash_for_the_grace_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CrashingNode, "snapshots", CrashingNode.begin)
    node = CrashingNode(tmp_path, grace_ns=MS)
    assert await asyncio.wait_for(node.run(), 60) == 0
    assert node.told == []


class Attending:
    """A node's stream as the launcher sees it; keeps its orders."""

    def __init__(self, node: NodeId, epoch: int) -> None:
        self.hello = Hello(node=node, role="client", address=f"here:{node}", epoch=epoch)
        self.orders: list[Order] = []

    def order(self, order: Order) -> None:
        self.orders.append(order)


def test_a_node_returns_in_a_resumed_run_where_another_was_down_from_its_beginning() -> None:
    attendees = {node: Attending(node, 1) for node in (0, 2)}
    status = {node: NodeStatus(node, phase=Phase.RUNNING) for node in range(3)}
    status[1].phase = status[2].phase = Phase.CRASHED
    launcher: Any = SimpleNamespace(
        scenario=loads(SCENARIO),
        status=SimpleNamespace(nodes=status),
        attendees=attendees,
        start_ns=1,
        oracle=True,
        store=SimpleNamespace(event=lambda *args, **details: None),
        note=lambda text: None,
        now_ns=lambda: 5,
        live={0, 2},
    )
    returns = Returns(launcher)
    attendees[2] = back = Attending(2, 2)
    returns.attends(back)
    assert back.orders == [Peers({0: "here:0"}), Gone(1, "gone before"), Start(1)]
    assert attendees[0].orders == [Returned(2, "here:2", 2)]
