"""A figure that a task defines is a target of the search: what `expect` says of it is judged, found and shrunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.explore.explore import Budget, Exploration, by_rate
from netdfl.explore.findings import FindingScenarios
from netdfl.scenario.loading.resolved import to_plain

OWN = '''
import torch
from torch import nn

X = torch.linspace(-1, 1, 24).unsqueeze(1)


class Slope:
    """y = 3 x."""

    def model(self):
        return nn.Linear(1, 1, bias=False)

    def data(self):
        return (X, 3 * X), (X[::4], 3 * X[::4])

    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def metrics(self, outputs, targets):
        return {"furthest": float((outputs - targets).abs().max())}
'''


@pytest.mark.soak
def test_a_figure_of_ones_own_is_found_where_it_misses_what_is_expected(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys at their defaults stay in the finding: to look for them loads it often, with its task."""
    monkeypatch.setattr("netdfl.explore.shrink.short_plain", to_plain)
    from ruamel.yaml import YAML

    (tmp_path / "slopes.py").write_text(OWN)
    own = {"task": {"kind": "slopes:Slope"}, "algorithm": {"name": "dpsgd", "lr": 0.1}, "nodes": 3, "rounds": 3}

    def scenario(bound: float) -> netdfl.Scenario:
        text = small | own | {"wait": {"deadline": "20ms"}, "expect": {"test_furthest": {"at_most": bound}}}
        with (tmp_path / "own.yaml").open("w") as file:
            YAML(typ="safe").dump(text | {"explore": {"rates": {"crash": 1}, "depth": 0, "luck": False}}, file)
        return netdfl.load(tmp_path / "own.yaml")

    ran = netdfl.run(scenario(1e3), out=tmp_path / "run", page=False).result
    assert ran["verdict"] == "pass"
    furthest = ran["metrics"]["test_furthest"]["last"]
    exploration = Exploration(scenario(furthest * 1.0001), folder=tmp_path / "explored" / "it")
    run = exploration.executor.run(exploration.scenario)
    assert (run.figures["test_furthest"], run.verdict) == (pytest.approx(furthest), "pass")
    explored = exploration.run(Budget(runs=8))
    found = next(each for each in by_rate(explored) if "test_furthest" in each.cause.key)
    assert "test_furthest was expected to be at most" in found.cause.text
    finding = tmp_path / "explored" / "it" / "finding.yaml"
    finding.write_text(FindingScenarios(exploration, explored).shrunk(found, most_runs=10).text)
    shown = netdfl.run(finding, out=tmp_path / "shown", page=False).result
    assert any("test_furthest was expected" in reason for reason in shown["reasons"])
