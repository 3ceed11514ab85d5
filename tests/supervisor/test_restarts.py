"""A node that crashes and returns with its state: no share is owned twice, and none is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.record.judge import WELL
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: restarts
nodes: 6
rounds: 14
task: {kind: consensus, dim: 20}
algorithm: sgp
topology: {kind: random_push, out_neighbors: 3}
failure_detector: {kind: none}
delivery: {kind: acknowledged, timeout: 150ms}
wait: {deadline: none}
links: {default: {latency: 10ms, loss: 20%}}
expect: {weight_sum: {at_least: 0.999999999, at_most: 1.000000001}}
"""


def fleet(out: Path, events: str, *sets: str, on: str = "processes") -> FinishedRun:
    return run(loads(f"{SCENARIO}events: [{events}]\n", sets, on=on), out=out, page=False)


def lives(finished: FinishedRun, node: int) -> list[tuple[int, ...]]:
    """The rounds in which `node` sent data, by life."""
    rows = finished.run.rows(f"SELECT epoch, round FROM messages WHERE src = {node} AND kind = 'data'")
    return [tuple(sorted({r for e, r in rows if e == epoch})) for epoch in sorted({e for e, _ in rows})]


@pytest.mark.parametrize("seed", [0, 5, *(pytest.param(each, marks=pytest.mark.soak) for each in (1, 2, 3, 4, 6, 7))])
def test_acknowledged_mass_survives_crashes_at_any_moment(seed: int, tmp_path: Path) -> None:
    """Three crashes in the middle of rounds, of which one node has two: what was taken and not saved comes again."""
    whens = [(57 + 13 * seed, 1), (171 + 29 * seed, 4), (433 + 17 * seed, 1)]
    events = ", ".join(f"{{at: {ms}ms, crash: {n}, restart_after: 90ms, state: kept}}" for ms, n in whens)
    finished = fleet(tmp_path / "run", events, f"seed={seed}", "world.compute=10ms", on="simulated")
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert [len(lives(finished, node)) for node in (1, 4, 0)] == [3, 2, 1]


@pytest.mark.parametrize(("on", "least"), [("simulated", 0.5), pytest.param("processes", 0.0, marks=pytest.mark.soak)])
def test_plain_push_sum_rejoins_too_and_says_what_mass_it_lost(on: str, least: float, tmp_path: Path) -> None:
    """How much is lost depends on how long a node is down: in real time on how long its process takes to start."""
    events = "{at_round: 4, crash: 2, restart_after: 300ms, state: kept}"
    sets = ["delivery=plain", "wait.deadline=400ms", "links={}", "expect={}"]
    finished = fleet(tmp_path / "run", events, *sets, on=on)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert lives(finished, 2)[1][-1] == 13
    assert least < finished.result["weight_sum"] < 1
