"""Pairwise exchanges over links that lose and double messages: what is sent again moves nobody twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from netdfl.host.blueprint import Blueprint
from netdfl.host.models import read_snapshot
from netdfl.running.run import run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: resent-exchanges
nodes: 6
rounds: 8
world: {kind: simulated}
task: {kind: consensus, dim: 4, dtype: float64}
algorithm: ad_psgd
topology: ring
wait: {deadline: none, on_stall: resend}
links: {default: {latency: 5ms, loss: 15%, duplicate: 50%}}
evaluation: {keep_models: true}
"""


AGAIN = "SELECT DISTINCT kind FROM messages WHERE attempt > 0 AND fate = 'delivered' AND kind != 'data' ORDER BY 1"
ONE_OF_EACH = (
    "rounds=60",
    "world={kind: simulated, compute: 10ms, stragglers: {nodes: [0, 2, 4], factor: 100}}",
    "links={default: {latency: 5ms, duplicate: 50%}}",
    "events=[{at: 30ms, for: 20ms, link: 1->2, state: down_drop}, {at: 30ms, for: 20ms, link: 4->3, state: down_drop}]",
)


@pytest.mark.parametrize("world", ["simulated", pytest.param("processes", marks=pytest.mark.soak)])
def test_lost_requests_and_lost_replies_are_made_up_for(world: str, tmp_path: Path) -> None:
    finished = run(loads(SCENARIO, on=world), out=tmp_path / "run", page=False)
    assert finished.result["stalls"]
    assert all(stall["over"] for stall in finished.result["stalls"])
    assert finished.run.rows(AGAIN) == [("reply",), ("request",)]


def test_the_mean_stays(tmp_path: Path) -> None:
    """Those that answer are so slow that they are in their rounds when the last of the others has its reply."""
    scenario = loads(SCENARIO, ONE_OF_EACH)
    problem = Blueprint.of(scenario).problem
    start = torch.tensor(np.stack([problem.task(node, "cpu").initial() for node in range(scenario.nodes)]))
    finished = run(scenario, out=tmp_path / "run", page=False)
    assert finished.run.rows(AGAIN) == [("reply",), ("request",)]
    end = torch.stack([read_snapshot(file).x for file in sorted((finished.path / "models").iterdir())])
    torch.testing.assert_close(end.mean(0), start.mean(0), rtol=0, atol=1e-12)
