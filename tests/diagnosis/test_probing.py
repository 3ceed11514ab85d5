"""Nodes that ask each other find the planted stalls without a supervisor, and leave healthy fleets alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netdfl.record.judge import WELL
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import load

FAULTS = Path(__file__).resolve().parents[2] / "scenarios" / "faults"


def fleet(name: str, out: Path, *sets: str, on: str = "simulated") -> FinishedRun:
    busy = ["world.fidelity={relative: 100, slack: 100s}"] if on == "processes" else []
    return run(load(FAULTS / f"{name}.yaml", [*sets, *busy], on=on), out=out, page=False)


def probed(finished: FinishedRun) -> dict[int, dict[str, Any]]:
    """What each node found."""
    rows = finished.run.rows("SELECT node, details FROM events WHERE kind = 'probed' ORDER BY at_s DESC")
    return {node: json.loads(details) for node, details in rows}


def num_probes(finished: FinishedRun) -> int:
    return int(finished.run.rows("SELECT count(*) FROM messages WHERE kind = 'probe'")[0][0])


@pytest.mark.parametrize(("world", "after"), [("simulated", "100ms"), ("processes", "200ms")])
def test_the_ring_that_waits_in_a_circle_is_found_by_each_of_its_nodes(world: str, after: str, tmp_path: Path) -> None:
    finished = fleet("rendezvous_ring", tmp_path / "run", f"wait.probes={after}", on=world)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    (deadlock,) = finished.result["deadlocks"]
    found = probed(finished)
    assert set(found) == set(range(8))
    for each in found.values():
        assert (each["cause"], each["roots"], each["suspected"]) == ("deadlock", deadlock["roots"], False)
    assert num_probes(finished) >= 2 * 8 * 8


def test_who_waits_for_any_suspects_a_loss_once_all_have_sent(tmp_path: Path) -> None:
    lost = "links.default={latency: 5ms, loss: {model: drop_list, messages: [{round: 5, kind: data}]}}"
    sets = ["events=[]", "wait.probes=100ms", "nodes=4", "expect={stall: some}"]
    finished = fleet("quorum_survives", tmp_path / "run", *sets, lost)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    culprits = {node: (each["cause"], each["culprits"]) for node, each in probed(finished).items()}
    assert culprits == {node: ("lost_message", sorted([(node - 1) % 4, (node + 1) % 4])) for node in range(4)}


def test_who_has_sent_says_so_and_the_loss_is_suspected(tmp_path: Path) -> None:
    finished = fleet("lost_message", tmp_path / "run", "wait.probes=100ms", "expect={stall: some}")
    (node, found), *others = probed(finished).items()
    assert others == []
    assert (node, found["cause"], found["roots"], found["culprits"]) == (3, "lost_message", [3], [2])
    assert found["suspected"]
    assert [f["roots"] for f in finished.result["stalls"] if f["cause"] == "lost_message"] == [[3]]
    assert all(each["text"].endswith("`wait.deadline: auto` would go on.") for each in probed(finished).values())


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("straggler", ()),
        ("rendezvous_ring", ("algorithm.bipartite=true", "algorithm.order=random", "links.default.latency=150ms")),
        ("lost_message", ("events=[]", "links.default.latency=400ms")),
        ("quorum_survives", ("links.default.latency=400ms",)),
        ("message_on_its_way", ()),
    ],
)
def test_a_fleet_that_is_only_slow_is_left_alone(name: str, sets: tuple[str, ...], tmp_path: Path) -> None:
    finished = fleet(name, tmp_path / "run", *sets, "wait.probes=100ms", "expect={}")
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert num_probes(finished) > 0
    assert [each for each in probed(finished).values() if not each["suspected"]] == []


def test_heartbeats_and_probes_do_not_hide_that_nothing_else_moves(tmp_path: Path) -> None:
    """They go on in a deadlock: a supervisor that counted them would never see the same twice."""
    beats = "failure_detector={kind: heartbeat, every: 50ms, misses: 40}"
    finished = fleet("rendezvous_ring", tmp_path / "run", beats, on="processes")
    assert [deadlock["roots"] for deadlock in finished.result["deadlocks"]] == [list(range(8))]
