"""Scripted faults, failure detectors and emulated links in real processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from netdfl.fleet.run import Finished, run
from netdfl.record.judge import ExitCode
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


def fleet(out: Path, extra: str, sets: Sequence[str] = (), on: str = "processes") -> Finished:
    return run(loads(SCENARIO + extra, sets, on=on), out=out)


def events(finished: Finished, *kinds: str) -> list[tuple[Any, ...]]:
    """(kind, node, round, details) in order of time."""
    rows = finished.run.rows("SELECT kind, node, round, details FROM events ORDER BY at_s")
    return [(kind, node, round, json.loads(details)) for kind, node, round, details in rows if kind in kinds]


def rounds_of(finished: Finished, node: int) -> list[int]:
    rows = finished.run.rows(f"SELECT round FROM metrics WHERE name = 'round_s' AND node = {node} ORDER BY at_s")
    return [round for (round,) in rows]


CRASHES = """
events:
  - {at_round: 2, crash: 1}
  - {at_round: 4, crash: 2, restart_after: 200ms, state: kept, rejoin: replay}
  - {at_round: 5, for: 100ms, pause: 0}
  - {at_round: 5, slow_down: 3, factor: 2.0}
"""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return fleet(tmp_path_factory.mktemp("crashes") / "run", CRASHES)


def test_a_planned_crash_is_no_death_and_the_run_passes(crashed: Finished) -> None:
    assert crashed.exit_code == ExitCode.PASS
    assert crashed.result["died"] == []
    assert events(crashed, "died", "failed") == []
    assert [(node, round) for _, node, round, _ in events(crashed, "crash")] == [(1, 2), (2, 4)]
    phases = {each["node"]: each["phase"] for each in crashed.run.fleet["nodes"]}
    assert phases == {0: "finished", 1: "crashed", 2: "finished", 3: "finished"}


def test_a_crash_ends_its_node_alone_and_the_oracle_tells_the_others(crashed: Finished) -> None:
    assert rounds_of(crashed, 1) == [0, 1]
    assert rounds_of(crashed, 0) == rounds_of(crashed, 3) == list(range(8))
    told = {(node, details["peer"]) for _, node, _, details in events(crashed, "gone")}
    assert told >= {(0, 1), (2, 1), (3, 1), (0, 2), (3, 2)}


def test_a_restart_with_its_state_goes_on_after_the_last_round_that_it_finished(crashed: Finished) -> None:
    assert [(node, details) for _, node, _, details in events(crashed, "restart")] == [(2, {"epoch": 1})]
    assert rounds_of(crashed, 2) == list(range(8))
    epochs = crashed.run.rows("SELECT DISTINCT round, epoch FROM messages WHERE src = 2 ORDER BY round, epoch")
    assert {(round, epoch) for round, epoch in epochs if round < 4} == {(round, 0) for round in range(4)}
    assert {epoch for round, epoch in epochs if round >= 4} <= {1}


def test_pauses_and_slow_downs_happen_to_their_node(crashed: Finished) -> None:
    found = [(kind, node) for kind, node, _, _ in events(crashed, "pause", "resume", "slow_down")]
    assert sorted(found) == [("pause", 0), ("resume", 0), ("slow_down", 3)]
    assert found.index(("pause", 0)) < found.index(("resume", 0))


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
