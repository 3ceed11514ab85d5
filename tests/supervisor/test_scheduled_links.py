"""Real nodes under a schedule of links: its events and the time that it costs are told as in the simulated world."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.report.words import PARTS
from netdfl.running.run import run
from netdfl.scenario.load import load

HOLDS = Path(__file__).parents[2] / "scenarios/faults/partition_that_holds.yaml"


def test_a_partition_is_an_event_of_a_real_fleet_and_its_time_is_on_links(tmp_path: Path) -> None:
    held = "events=[{at: 100ms, for: 2s, partition: [[0..2], [3..5]], mode: down_hold}]"
    finished = run(load(HOLDS, [held, "rounds=40"], on="processes"), out=tmp_path / "run", page=False)
    rows = finished.run.rows("SELECT at_s, kind FROM events WHERE kind LIKE 'partition%' ORDER BY at_s")
    assert rows == [(0.1, "partition"), (2.1, "partition_ends")]
    spent = finished.result["time"]
    assert spent["links_s"] > 0
    assert sum(spent[key] for key in PARTS) == pytest.approx(spent["total_s"], rel=1e-6)
