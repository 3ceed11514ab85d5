"""The scenario that the documentation prints: push-sum that survives loss, a partition and a crash.

CI plays all that happens to its network, with a toy problem; training as it is printed is for `tests.soak.in_full`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from netdfl.running.judged import FinishedRun

FILE = Path(__file__).resolve().parents[2] / "scenarios" / "under_loss.yaml"


def assert_no_mass_is_lost(finished: FinishedRun) -> None:
    assert (finished.result["verdict"], finished.result["reasons"]) == ("pass", [])
    assert finished.result["messages"]["lost"] > 100
    weights = finished.run.query("SELECT sum(value) FROM metrics WHERE name = 'weight' GROUP BY round")
    assert max(sums := [each for (each,) in weights.fetchall()]) <= 16 + 1e-9, "mass was made"
    assert sum(each > 16 - 1e-9 for each in sums) > len(sums) - 10, "mass is missing in most rounds"


def test_what_happens_to_its_network_loses_no_mass(tmp_path: Path) -> None:
    toy = ["task={kind: quadratic, dim: 10}", "expect={deadlock: none}", "rounds=36"]
    scenario = netdfl.load(FILE, toy, on="simulated")
    assert any("delivery: auto is acknowledged here" in notice for notice in scenario.notices)
    assert_no_mass_is_lost(netdfl.run(scenario, out=tmp_path / "run", page=False))


@pytest.mark.soak
def test_the_printed_scenario_passes_and_loses_no_mass(tmp_path: Path) -> None:
    finished = netdfl.run(netdfl.load(FILE, on="simulated"), out=tmp_path / "run", page=False)
    assert finished.result["test_accuracy"]["average_model"]["last"] > 0.9
    assert_no_mass_is_lost(finished)
