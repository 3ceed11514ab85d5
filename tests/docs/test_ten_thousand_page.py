"""The page on ten thousand nodes shows what was measured, and its scenario runs, smaller, by both methods."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path

import pytest

import netdfl
from netdfl.scenario.load import load

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "studies" / "ten_thousand.md"
SCENARIO = ROOT / "scenarios" / "studies" / "ten_thousand.yaml"


def test_the_table_is_what_the_benchmark_makes_of_its_figures() -> None:
    made = run_path(str(ROOT / "benchmarks" / "ten_thousand.py"))
    figures = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert made["table"](figures) in PAGE.read_text(encoding="utf-8")
    nodes = load(SCENARIO).nodes
    for method in figures.values():
        assert method["nodes"] == nodes
        assert method["verdict"] == "pass"


@pytest.mark.parametrize("algorithm", ["dpsgd", "sgp"])
def test_the_scenario_runs_smaller(algorithm: str, tmp_path: Path) -> None:
    churn = tmp_path / "churn.csv"
    churn.write_text("node,leave_s,join_s\n3,7000,9000\n5,30000,31000\n")
    sets = [f"algorithm={algorithm}", "nodes=30", "rounds=3", f"events.0.file={churn}"]
    finished = netdfl.run(load(SCENARIO, sets=sets), out=tmp_path / "run", page=False)
    assert finished.result["verdict"] == "pass"
    assert finished.result["messages"]["sent"] >= 30 * 10 * 3
    assert finished.result["bytes_sent"] > 1e7 * finished.result["messages"]["sent"]
    assert finished.result["recorded"]["messages"] < 0.5 * finished.result["messages"]["sent"]
