"""The budget of whole runs bounds rows that the benchmark has, and one that costs more is named."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUDGET = json.loads((ROOT / "benchmarks" / "runs_budget.json").read_text(encoding="utf-8"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the benchmark defines."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return run_path(str(ROOT / "benchmarks" / "runs.py"))


def test_a_row_over_its_budget_is_named(made: dict[str, Any]) -> None:
    row = made["Row"]("100 nodes, static: a message", 60.0, "us", "a timer on a heap", 5.0, 12.0)
    assert made["over_budget"]([row], {row.name: 12.0}) == []
    (said,) = made["over_budget"]([row], {row.name: 11.0})
    assert said == "100 nodes, static: a message: 12 times a timer on a heap, and may cost 11"


def test_rows_of_the_budget_are_rows_of_the_benchmark(made: dict[str, Any]) -> None:
    fleets = {f"{nodes} nodes, {graph}" for nodes in ("8", "100", "1,000") for graph in made["GRAPHS"]}
    titles = {*fleets, *(f"{fleet}, rules" for fleet in fleets), "8 nodes", f"{made['COUNTED']} nodes, static"}
    titles |= {f"4 nodes, {nodes} a process" for nodes in made["IN_A_PROCESS"]}
    for name in BUDGET:
        title, _, cost = name.partition(": ")
        assert title in titles, name
        assert cost in made["REFERENCES"], name


def test_the_calls_of_a_message_are_bounded(made: dict[str, Any]) -> None:
    counted = [f"{made['COUNTED']} nodes, static: {kind}" for kind in made["KINDS"].values()]
    assert all(1 < BUDGET[name] < 100 for name in counted)


def test_the_budget_grows_by_new_rows_and_keeps_its_bounds(made: dict[str, Any]) -> None:
    units = {"old": "us", "new": "us", "new: a node and round": "us", "calls": "calls"}
    rows = [made["Row"](name, 20.0, unit, "a timer on a heap", 10.0, 2.0) for name, unit in units.items()]
    assert made["with_new_rows"](rows, {"old": 1.0}) == {"old": 1.0, "new": 2.5, "calls": 2.1}
