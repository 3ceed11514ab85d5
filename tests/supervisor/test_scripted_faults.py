"""Scripted faults, failure detectors and emulated links in real processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdfl.record.judge import ExitCode
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: faults
nodes: 4
rounds: 8
task: {kind: consensus, dim: 10}
algorithm: dpsgd
topology: full
wait: {deadline: 300ms}
evaluation: {every: 8}
"""


def fleet(out: Path, extra: str, sets: Sequence[str] = (), on: str = "processes") -> FinishedRun:
    return run(loads(SCENARIO + extra, sets, on=on), out=out, page=False)


def events(finished: FinishedRun, *kinds: str) -> list[tuple[Any, ...]]:
    """(kind, node, round, details) in order of time."""
    rows = finished.run.rows("SELECT kind, node, round, details FROM events ORDER BY at_s")
    return [(kind, node, round, json.loads(details)) for kind, node, round, details in rows if kind in kinds]


def rounds_of(finished: FinishedRun, node: int) -> list[int]:
    rows = finished.run.rows(f"SELECT round FROM metrics WHERE name = 'round_s' AND node = {node} ORDER BY at_s")
    return [round for (round,) in rows]


def test_of_nodes_that_share_a_process_only_the_crashed_one_ends(tmp_path: Path) -> None:
    extra = "events: [{at_round: 2, crash: 1}, {at_round: 3, crash: 2, restart_after: 100ms, state: lost}]"
    finished = fleet(tmp_path / "run", extra, ["world.nodes_per_process=2"])
    assert finished.exit_code == ExitCode.PASS
    assert rounds_of(finished, 0) == rounds_of(finished, 3) == list(range(8))
    assert rounds_of(finished, 1) == [0, 1]
    again = rounds_of(finished, 2)[3:]
    assert rounds_of(finished, 2)[:3] == [0, 1, 2]
    assert again == list(range(again[0], 8)) if again else True
    assert [details["epoch"] for _, _, _, details in events(finished, "restart")] == [1]


def test_heartbeats_name_the_dead_where_no_deadline_ends_a_wait(tmp_path: Path) -> None:
    extra = (
        "failure_detector: {kind: heartbeat, every: 50ms, misses: 20}\n"
        "links: {default: {latency: 5ms}}\nevents: [{at_round: 2, crash: 1}]"
    )
    finished = fleet(tmp_path / "run", extra, ["wait.deadline=60s"])
    assert finished.exit_code == ExitCode.PASS
    gone = {(node, details["peer"]) for _, node, _, details in events(finished, "gone")}
    assert {(0, 1), (2, 1), (3, 1)} <= gone
    assert all(details["detector"] == "heartbeat" for _, _, _, details in events(finished, "gone"))
    assert rounds_of(finished, 0) == list(range(8))
    beats = finished.run.rows("SELECT count(*), min(nbytes) FROM messages WHERE kind = 'heartbeat'")[0]
    assert beats[0] > 10
    assert beats[1] > 0


LINKS = "links: {default: {loss: 20%, latency: 5ms, rate: 10Mbit}}"
LOST = "SELECT src, dst, round, fate FROM messages WHERE fate LIKE 'dropped%' ORDER BY src, dst, round"


def test_the_same_messages_are_lost_as_in_the_simulated_world_and_a_missed_bound_is_unknown(tmp_path: Path) -> None:
    real = fleet(tmp_path / "real", LINKS, ["world.fidelity={relative: 0, slack: 0s}", "rounds=16"])
    simulated = fleet(tmp_path / "simulated", LINKS, ["rounds=16"], on="simulated")
    assert real.run.rows(LOST) == simulated.run.rows(LOST)
    assert len(real.run.rows(LOST)) > 5
    assert real.exit_code == ExitCode.UNKNOWN
    assert real.result["verdict"] == "unknown"
    assert real.result["fidelity"]["links_missed"] > 0
    assert "emulation missed its bound" in real.result["reasons"][0]
