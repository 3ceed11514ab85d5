"""How a real node crashes as scripted, and how the supervisor lets it return: the parts, without processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from netdfl.core.control import Crashed, Gone, Hello, Life, ModelSaved, Order, Peers, Report, Returned, Start
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.host import models
from netdfl.host.blueprint import Blueprint
from netdfl.host.living import LivingNode, NodeConfig
from netdfl.host.models import ModelFiles, write_snapshot
from netdfl.host.network import Endpoint
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import find_return
from netdfl.links.schedule.when import Facts
from netdfl.record.directory import RunDirectory
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from netdfl.scenario.load import loads
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.restarts import Restarts
from netdfl.testing.loopback import InlineWorker

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


class Silent:
    """A superior that is told nothing worth keeping."""

    launched = True

    def __init__(self) -> None:
        self.told: list[Report] = []

    def report(self, report: Report) -> None:
        self.told.append(report)

    async def dismissed(self) -> None:
        await asyncio.Event().wait()

    async def part(self, code: int, crash: Crashed | None) -> None:
        pass


def node(directory: Path, *sets: str) -> tuple[LivingNode, Silent]:
    """Node 1, as its process makes it; nothing runs yet."""
    superior = Silent()
    birth = NodeConfig(
        node=1,
        life=Life(),
        device="cpu",
        directory=directory,
        worker=InlineWorker(),
        endpoint=Endpoint(listen="127.0.0.1:0", run_id=bytes(8), scenario_hash="00"),
    )
    return LivingNode(Blueprint.of(loads(SCENARIO, sets)), birth, superior), superior


@pytest.mark.parametrize("when", [{"at": "2s"}, {"at_round": 3}])
async def test_a_node_that_takes_long_to_leave_still_crashed_when_the_schedule_says(
    when: dict[str, Any], tmp_path: Path
) -> None:
    """Else the supervisor does not find a return that was due while the node settled what was in flight."""
    events = compile_events([{**when, "crash": 1, "restart_after": "300ms"}], Facts(3, Streams(1), rounds=9))
    event = next(event for event in events if event.action == "crash")
    living, _ = node(tmp_path)
    clock = Clock(2001 * MS)  # timers are never early
    living.host.clock = clock  # type: ignore[assignment]
    living.host.happen(event)
    clock.now = 2502 * MS
    crash = living.host.crash
    assert crash is not None
    assert crash.at_ns == (2000 if event.at_round is None else 2001) * MS
    back = find_return(events, 1, crash.at_ns, source=crash.source, at_round=crash.at_round)
    assert back is not None
    assert back.at_ns == crash.at_ns + 300 * MS


CRASH = CompiledEvent("crash", 0, at_ns=0, nodes=(1,))


async def test_a_node_that_crashes_hands_over_the_models_of_rounds_that_it_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(path: Path, x: torch.Tensor, weight: float, kept: dict[str, torch.Tensor]) -> None:
        time.sleep(0.05)
        write_snapshot(path, x, weight, kept)

    monkeypatch.setattr(models, "write_snapshot", slow)
    (tmp_path / "snapshots").mkdir()
    living, superior = node(tmp_path)
    await living.models.judge(2, torch.ones(3), 1.0)
    living.host.happen(CRASH)
    assert await asyncio.wait_for(living.run(), 60) == 0
    assert [saved.round for saved in superior.told if isinstance(saved, ModelSaved)] == [2]


async def test_a_disk_that_never_answers_holds_a_crash_for_the_grace_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: ModelFiles) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ModelFiles, "write", never)
    living, superior = node(tmp_path, "transport={close_grace: 1ms}")
    await living.models.judge(2, torch.ones(3), 1.0)
    living.host.happen(CRASH)
    assert await asyncio.wait_for(living.run(), 60) == 0
    assert not any(isinstance(report, ModelSaved) for report in superior.told)


async def test_who_moves_before_a_node_begins_is_not_the_only_one_that_is_there(tmp_path: Path) -> None:
    """Two nodes return together: each is told where the other is now, perhaps before its own start."""
    living, _ = node(tmp_path)
    transport = living.host.parts.transport
    gone: list[NodeId] = []
    transport.set_gone = gone.append  # type: ignore[method-assign]
    living.obey(Peers({0: "127.0.0.1:1"}))
    assert gone == [2]  # whom a resumed run left down
    living.obey(Peers({2: "127.0.0.1:2"}))
    assert gone == [2]


class World:
    """Keeps what nodes are ordered."""

    def __init__(self) -> None:
        self.orders: dict[NodeId, list[Order]] = {}
        self.clock = Clock(5)

    def order(self, node: NodeId, order: Order) -> None:
        self.orders.setdefault(node, []).append(order)


def test_a_node_returns_in_a_resumed_run_where_another_was_down_from_its_beginning(tmp_path: Path) -> None:
    world: Any = World()
    status = FleetStatus("ends", "processes", "dpsgd", 9)
    status.nodes = {node: NodeStatus(node, phase=Phase.RUNNING) for node in range(3)}
    status.nodes[1].phase = status.nodes[2].phase = Phase.CRASHED
    store: Any = SimpleNamespace(event=lambda *args, **details: None)
    fleet = FleetState(
        scenario=loads(SCENARIO),
        directory=RunDirectory(tmp_path),
        world=world,
        status=status,
        store=store,
        note=lambda text: None,
        start_ns=1,
    )
    back = Hello(node=2, role="client", address="here:2", epoch=2)
    fleet.hellos = {0: Hello(node=0, role="client", address="here:0", epoch=1), 2: back}
    evaluation: Any = SimpleNamespace(joined={})
    Restarts(fleet, evaluation).attends(back)
    assert world.orders[2] == [Peers({0: "here:0"}), Gone(1, "gone before"), Start(1)]
    assert world.orders[0] == [Returned(2, "here:2", 2)]
