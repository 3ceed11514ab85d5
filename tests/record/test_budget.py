"""The budget of whole runs bounds rows that the benchmark has, and one that costs more is named."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_row_over_its_budget_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    made = run_path(str(ROOT / "benchmarks" / "runs.py"))
    row = made["Row"]("100 nodes, static: a message", 60.0, "us", "a timer on a heap", 5.0, 12.0)
    assert made["over_budget"]([row], {row.name: 12.0}) == []
    (said,) = made["over_budget"]([row], {row.name: 11.0})
    assert said == "100 nodes, static: a message: 12 times a timer on a heap, and may cost 11"
    budget = json.loads((ROOT / "benchmarks" / "runs_budget.json").read_text(encoding="utf-8"))
    titles = {f"{nodes} nodes, {graph}" for nodes in ("8", "100", "1,000") for graph in made["GRAPHS"]} | {"8 nodes"}
    for name in budget:
        title, _, cost = name.partition(": ")
        assert title in titles, name
        assert cost in made["REFERENCES"], name
