"""The scenario that the documentation prints runs as printed: push-sum that survives loss, a partition and a crash."""

from __future__ import annotations

from pathlib import Path

import netdfl

FILE = Path(__file__).resolve().parents[2] / "scenarios" / "under_loss.yaml"


def test_the_printed_scenario_passes_and_loses_no_mass(tmp_path: Path) -> None:
    scenario = netdfl.load(FILE, on="simulated")
    assert any("delivery: auto is acknowledged here" in notice for notice in scenario.notices)
    run = tmp_path / "run"
    result = netdfl.run(scenario, out=run, page=False).result
    assert (result["verdict"], result["reasons"]) == ("pass", [])
    assert result["test_accuracy"]["average_model"]["last"] > 0.9
    assert result["messages"]["lost"] > 100
    weights = netdfl.open_run(run).query("SELECT sum(value) FROM metrics WHERE name = 'weight' GROUP BY round")
    assert max(sums := [each for (each,) in weights.fetchall()]) <= 16 + 1e-9, "mass was made"
    assert sum(each > 16 - 1e-9 for each in sums) > 40, "mass is missing in most rounds"
