"""Gossip that mixes what has arrived, up to so many rounds old: by hand, to consensus, and after a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_scenario import Run, small

from netdfl.host.blueprint import Blueprint
from netdfl.host.models import read_snapshot
from netdfl.record.judge import WELL
from netdfl.running.run import resume, run

PAIR = (
    "nodes=2",
    "rounds=9",
    "topology=full",
    "task={kind: consensus, dim: 5, dtype: float64}",
    "world.compute=10ms",
    "links={default: {latency: 25ms}}",
)
SLOW = (
    "rounds=60",
    "nodes=6",
    "task={kind: consensus, dim: 5, dtype: float64}",
    "world.compute={kind: uniform, low: 2ms, high: 12ms}",
    "links={default: {latency: 15ms}}",
)


def waiting(stale: int) -> str:
    return f"wait={{for: none, stale: {stale}}}"


@pytest.mark.parametrize(("stale", "age"), [(0, None), (2, None), (3, 3), (7, 3)])
def test_two_nodes_mix_what_was_sent_three_rounds_ago(stale: int, age: int | None, tmp_path: Path) -> None:
    """Round t ends at 10 (t + 1) ms and is heard of 25 ms later: after round t + 2 is mixed, before t + 3 is."""
    scenario = small(*PAIR, waiting(stale), "evaluation.keep_models=true")
    problem = Blueprint.of(scenario).problem
    start = torch.tensor(np.stack([problem.task(node, "cpu").initial() for node in range(2)]))
    rounds = [start]
    for t in range(scenario.rounds):
        mixes = age is not None and t >= age
        rounds.append((rounds[t] + rounds[t - 3].flip(0)) / 2 if mixes else rounds[t])
    finished = run(scenario, out=tmp_path / "run", page=False)
    found = [read_snapshot(file).x for file in sorted((finished.path / "models").iterdir())]
    torch.testing.assert_close(torch.stack(found), rounds[-1], rtol=0, atol=1e-15)


def test_with_links_slower_than_rounds_only_stale_gossip_agrees(simulated: Run) -> None:
    fresh, stale, again = (simulated(*SLOW, waiting(s)) for s in (0, 20, 20))
    assert fresh.result["messages"]["late"] > 0
    assert stale.result["messages"]["late"] == 0
    assert stale.result["consensus_distance"] < 0.01 < 0.5 < fresh.result["consensus_distance"]
    assert stale.result["event_log_hash"] == again.result["event_log_hash"]


def test_how_old_it_was_is_recorded(simulated: Run) -> None:
    finished = simulated(*PAIR, waiting(3))
    rows = finished.run.rows("SELECT node, round, value FROM metrics WHERE name = 'staleness' ORDER BY ALL")
    assert rows == [(node, round, 3.0) for node in range(2) for round in range(3, 9)]


def test_a_killed_run_goes_on_with_the_vectors_that_it_had_heard(tmp_path: Path) -> None:
    sets = (*SLOW, waiting(3), "rounds=10", "checkpoint.every=3")
    first = run(small(*sets), out=tmp_path / "run", page=False)
    (first.path / "result.json").unlink()
    for file in sorted((first.path / "checkpoints").glob("*-000002.safetensors"))[:3]:
        file.unlink()
    assert resume(first.path).result["event_log_hash"] == first.result["event_log_hash"]


def test_nodes_in_processes_mix_stale_vectors_too(tmp_path: Path) -> None:
    """They give up after 30 ms on what takes 80 ms. A busy machine makes vectors older yet, hence the many rounds."""
    sets = ("world.kind=processes", "rounds=99", "links={default: {latency: 80ms}}", "wait={deadline: 30ms, stale: 20}")
    finished = run(small(*sets), out=tmp_path / "run", page=False)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    ((oldest,),) = finished.run.rows("SELECT max(value) FROM metrics WHERE name = 'staleness'")
    assert oldest >= 1
    assert finished.result["consensus_distance"] < 0.1
