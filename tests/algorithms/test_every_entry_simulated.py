"""Every algorithm of the catalog runs in the simulated world on digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from algorithm_fleets import SMALL

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS

GRAPHS = {"server": "star", "average": "full", "column": "random_push", "both_ways": "ring", "doubly": "ring"}
QUICK: dict[str, dict[str, Any]] = {
    "oledfl_sgd": {"beta": 0.4},
    "oledfl_sam": {"beta": 0.4},
    "dfedsgpsm_s": {"neighbors": 2},
    "slowmo": {"every": 2},
    "dispfl": {"density": 0.5},
}


def scenario(name: str, **more: Any) -> dict[str, Any]:
    """Six clients, two rounds of two small batches."""
    entry = ALGORITHMS[name]
    graph = next(GRAPHS[need] for need in GRAPHS if need in entry.needs)
    parameters = {"lr": 0.05, "local_steps": 2} | SMALL.get(name, {}) | QUICK.get(name, {})
    return {
        "schema": "netdfl/1",
        "name": name,
        "nodes": 6,
        "rounds": 2,
        "world": {"kind": "simulated"},
        "task": {"dataset": {"name": "digits"}, "model": "mlp", "batch_size": 16},
        "algorithm": {"name": name} | parameters,
        "topology": {"kind": "full" if entry.selects else graph},
        "evaluation": {"every": 2, "local": "none"},
    } | more


def run(scenario: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The run's result."""
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(scenario))
    return netdfl.run(netdfl.load(file), out=folder / "run").result


def test_a_loss_that_became_nan_ends_its_node_by_name_and_the_run_with_fail(tmp_path: Path) -> None:
    exploding = scenario("dfedavg") | {"algorithm": {"name": "dfedavg", "lr": 1e12, "local_steps": 5}}
    result = run(exploding, tmp_path)
    assert result["verdict"] == "fail"
    assert {death["node"] for death in result["died"]} == set(range(6))
    assert all("local step" in death["reason"] and "loss became" in death["reason"] for death in result["died"])
    assert any("had a loss that is not finite in round 0" in reason for reason in result["reasons"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_runs_on_digits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.report.html.write_report", lambda folder: None)  # a second each, tested elsewhere
    result = run(scenario(name), tmp_path)
    assert result["verdict"] == "pass", result["reasons"]
    assert result["messages"]["sent"] > 0
    assert 0.0 <= result["test_accuracy"]["average_model"]["last"] <= 1.0
