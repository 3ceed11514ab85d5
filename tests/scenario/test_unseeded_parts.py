"""A dataset, a task or a model of the user's that no seed reaches is named with its place before anything trains."""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from netdfl.scenario.model.schema import Scenario

MODULE = '''"""Parts that take chance."""
import random
import tempfile
import numpy as np
import torch
from torch import nn


def linear():
    return nn.Linear(4, 2)


def examples(draw):
    return torch.as_tensor(draw(size=(40, 4)), dtype=torch.float32), torch.arange(40) % 2


def unseeded():
    return examples(np.random.default_rng().normal)


def seeded():
    return examples(np.random.default_rng(1).normal)


def as_usual():
    return examples(np.random.normal)


def by_way_of_a_file():
    with tempfile.NamedTemporaryFile() as file:  # its name takes chance, the examples do not
        np.save(file, np.arange(160).reshape(40, 4))
        file.seek(0)
        return examples(lambda size: np.load(file))


class Lazy:
    def __init__(self):
        self.rng = np.random.default_rng()

    def __len__(self):
        return 40

    def __getitem__(self, k):
        return torch.as_tensor(self.rng.normal(size=4), dtype=torch.float32), k % 2


class Task:
    def model(self):
        return linear()

    def data(self):
        return unseeded()

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {}


def other_weights():
    made = linear()
    nn.init.constant_(made.bias, random.Random().random())
    return made


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = linear()

    def forward(self, x):
        return self.last(x + np.random.default_rng().normal())


class Dropout(Noise):
    def forward(self, x):
        return self.last(nn.functional.dropout(x, training=self.training))
'''


def line(of: str) -> int:
    return 1 + next(k for k, each in enumerate(MODULE.splitlines()) if of in each)


def loaded(folder: Path, task: str) -> Scenario:
    (folder / "own.py").write_text(MODULE)
    text = f"schema: netdfl/1\nname: chance\nnodes: 2\nrounds: 1\ntopology: ring\nalgorithm: dfedavg\ntask: {task}\n"
    (folder / "s.yaml").write_text(text)
    return netdfl.load(folder / "s.yaml")


@pytest.mark.parametrize(
    ("task", "told", "place"),
    [
        ("{dataset: 'own:unseeded', model: 'own:linear'}", "dataset makes other examples", "default_rng().normal)"),
        ("{dataset: 'own:Lazy', model: 'own:linear'}", "dataset makes other examples", "self.rng = "),
        ("{kind: 'own:Task'}", "task makes other examples", "default_rng().normal)"),
        ("{dataset: 'own:seeded', model: 'own:other_weights'}", "begins with other weights", "random.Random()"),
    ],
)
def test_what_differs_each_time_is_named_with_its_place(task: str, told: str, place: str, tmp_path: Path) -> None:
    (notice,) = loaded(tmp_path, task).notices
    assert told in notice
    assert f"{tmp_path / 'own.py'}:{line(place)} draws" in notice


def test_steps_that_differ_each_time_are_told(tmp_path: Path) -> None:
    (notice,) = loaded(tmp_path, "{dataset: 'own:seeded', model: 'own:Noise'}").notices
    assert "'own:Noise': the same local steps end elsewhere each time" in notice
    assert not notice.endswith("; ")


@pytest.mark.parametrize("dataset", ["seeded", "as_usual", "by_way_of_a_file"])
def test_nothing_is_told_of_what_a_seed_reaches(dataset: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, f"{{dataset: 'own:{dataset}', model: 'own:Dropout'}}").notices == ()
