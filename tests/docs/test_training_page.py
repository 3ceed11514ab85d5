"""The example of docs/training.md drifts to where theory says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import netdfl
from netdfl.host.blueprint import Blueprint
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
(DRIFT,) = re.findall(r"^```yaml training/drift.yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
RATE = 0.1


def off_by(steps: int, scenario: Scenario) -> float:
    """From the optimum to FedAvg's fixed point, sum (1 - q_i) c_i / sum (1 - q_i) with q_i = (1 - lr h_i)^K."""
    tasks = [Blueprint.of(scenario).problem.task(node, "cpu") for node in range(4)]
    centers = np.stack([np.asarray(task.center) for task in tasks])  # type: ignore[attr-defined]
    pulls = np.array([[0.5], [1.0], [2.0], [4.0]])
    reach = 1 - (1 - RATE * pulls) ** steps
    fixed, best = ((w * centers).sum(0) / w.sum(0) for w in (reach, pulls))
    return float(np.sqrt(np.mean((fixed - best) ** 2)))


@pytest.mark.parametrize(
    ("name", "steps"), [("fedavg", 5), pytest.param("fedavg", 1, marks=pytest.mark.soak), ("scaffold", 5)]
)
def test_clients_drift_as_far_as_their_steps_take_them(name: str, steps: int, tmp_path: Path) -> None:
    scenario = loads(DRIFT, [f"algorithm.name={name}", f"algorithm.local_steps={steps}"])
    error = netdfl.run(scenario, out=tmp_path / "run", page=False).result["error"]
    expected = off_by(steps, scenario) if name == "fedavg" else 0.0
    assert error == pytest.approx(expected, abs=1e-9)
    assert (expected > 0.1) == ((name, steps) == ("fedavg", 5))
