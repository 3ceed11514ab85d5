"""An algorithm that augments pictures is refused inputs that are none, when the scenario is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core.errors import ScenarioError

DATASET = """
import numpy as np
from pathlib import Path
from netdfl.training.data.dataset import Dataset

def mine(root: Path, /) -> Dataset:
    x, y = np.zeros((8, SHAPE), np.float32), np.arange(8) % 2
    return Dataset(x, y, x, y, 2)
"""
TOY = {"kind": "quadratic"}


def problems(folder: Path, algorithm: dict[str, Any], task: dict[str, Any]) -> str:
    """What loading says; nothing where all is well."""
    file = folder / "scenario.yaml"
    written = {"schema": "netdfl/1", "name": "t", "nodes": 3, "rounds": 2, "task": task, "topology": "star"}
    file.write_text(json.dumps(written | {"algorithm": algorithm}))
    try:
        netdfl.load(file)
    except ScenarioError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({"name": "dynafed"}, "dynafed would augment pictures, and the examples of task quadratic are vectors"),
        ({"name": "dynafed", "augment": []}, ""),
        ({"name": "dynafed_synonly"}, ""),
        ({"name": "dynafed_synonly", "augment": ["crop"]}, "set augment: []"),
        ({"name": "dynafed", "augment": ["blur"]}, "'blur'"),
        ({"name": "fedavg"}, ""),
    ],
)
def test_toy_problems_have_no_pictures(tmp_path: Path, algorithm: dict[str, Any], said: str) -> None:
    found = problems(tmp_path, algorithm, TOY)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(("shape", "refused"), [("6", True), ("4, 4", True), ("1, 4, 4", False)])
def test_own_data_are_looked_at(tmp_path: Path, shape: str, refused: bool) -> None:
    (tmp_path / "vectors.py").write_text(DATASET.replace("SHAPE", shape))
    task = {"dataset": {"name": "vectors:mine"}, "model": "mlp"}
    found = problems(tmp_path, {"name": "dynafed"}, task)
    assert ("an input of the dataset has the shape" in found) == refused
    assert bool(found) == refused
    assert not problems(tmp_path, {"name": "dynafed", "augment": []}, task)


def test_digits_are_pictures(tmp_path: Path) -> None:
    assert not problems(tmp_path, {"name": "dynafed"}, {"dataset": {"name": "digits"}})
