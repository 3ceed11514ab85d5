"""How a fleet stands, as it is shown while it runs: no figure goes back, and none is of a clock that nobody watches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.record.status import FleetStatus, NodeStatus, Phase
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: shown
nodes: 4
rounds: 30
world: {kind: WORLD}
task: {kind: consensus, dim: 5}
algorithm: dpsgd
topology: ring
wait: {for: all, deadline: 300ms}
delivery: plain
links: {default: {latency: 60ms}}
events:
  - {at_round: 6, crash: 2, restart_after: 700ms, state: kept}
"""


class Seen:
    """A view that remembers all that it was shown."""

    def __init__(self) -> None:
        self.all: list[FleetStatus] = []

    def __enter__(self) -> Seen:
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def update(self, status: FleetStatus) -> None:
        self.all.append(replace(status, nodes={node: replace(each) for node, each in status.nodes.items()}))

    def note(self, text: str) -> None:
        pass


def test_no_figure_goes_back_where_a_node_crashes_and_returns(tmp_path: Path) -> None:
    seen = Seen()
    finished = netdfl.run(loads(SCENARIO.replace("WORLD", "processes")), out=tmp_path / "run", page=False, view=seen)
    assert any(each.nodes and each.nodes[2].phase is Phase.CRASHED for each in seen.all)
    shown = [(each.elapsed_s, each.rounds_done, each.bytes_sent, each.messages.sent) for each in seen.all]
    for before, after in pairwise(shown):
        assert all(a <= b for a, b in zip(before, after, strict=True)), (before, after)
    assert shown[0][0] >= 0
    assert shown[-1][3] <= finished.result["messages"]["sent"]


def test_who_is_due_back_holds_the_rounds_that_are_done() -> None:
    status = FleetStatus("q", "processes", "dpsgd", rounds=50)
    status.nodes = {
        0: NodeStatus(0, round=39, phase=Phase.RUNNING),
        1: NodeStatus(1, round=30, phase=Phase.CRASHED, returns=True),
        2: NodeStatus(2, round=3, phase=Phase.CRASHED),
    }
    assert status.rounds_done == 30
    assert status.slowest is status.nodes[0]


@pytest.mark.parametrize(("elapsed_s", "wall_s", "left_s"), [(0.0, 5.0, 20.0), (400.0, 5.0, 20.0)])
def test_what_is_left_is_told_by_the_wall_clock(elapsed_s: float, wall_s: float, left_s: float) -> None:
    status = FleetStatus("q", "simulated", "dpsgd", rounds=50, elapsed_s=elapsed_s, wall_s=wall_s)
    status.nodes = {0: NodeStatus(0, round=10, phase=Phase.RUNNING)}
    assert status.left_s == left_s


def test_the_wall_clock_of_a_simulated_fleet_is_the_watchers(tmp_path: Path) -> None:
    seen = Seen()
    text = (
        SCENARIO.replace("WORLD", "simulated")
        .replace("rounds: 30", "rounds: 500")
        .replace("60ms", "60s")
        .replace("300ms", "900s")
    )
    netdfl.run(loads(text), out=tmp_path / "run", page=False, view=seen)
    assert seen.all
    for each in seen.all:
        assert each.wall_s < each.elapsed_s
