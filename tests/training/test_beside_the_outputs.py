"""What a loss uses beside the model's outputs, and layers that a model makes when it first runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import ScenarioError
from netdfl.record.run import Run
from netdfl.running.run import run

MODULE = '''"""Losses that go by more than the outputs."""
import torch
from torch import nn
from torch.nn.functional import cross_entropy

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
STEPS = 0


def linear():
    return nn.Linear(4, 2)


def data():
    return (X, Y), (X, Y)


class Task:
    def model(self):
        self.net = linear()
        return self.net

    def data(self):
        return data()

    def loss(self, outputs, targets):
        return cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {}


class Penalty(Task):
    def loss(self, outputs, targets):
        return super().loss(outputs, targets) + sum(p.square().sum() for p in self.net.parameters())


class Learned(Task):
    def __init__(self):
        self.weight = nn.Parameter(torch.zeros(3))

    def loss(self, outputs, targets):
        return super().loss(outputs, targets) * self.weight.exp().sum()


class Counting(Task):
    def __init__(self):
        self.steps = 0

    def loss(self, outputs, targets):
        self.steps += 1
        return super().loss(outputs, targets) * min(1, self.steps / 40)


class First(Task):
    def __init__(self):
        self.weight = None

    def loss(self, outputs, targets):
        if self.weight is None:
            self.weight = torch.ones(2)
        return cross_entropy(outputs, targets, self.weight)


def counting(outputs, targets, /):
    global STEPS
    STEPS += 1
    return cross_entropy(outputs, targets)


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4)]
        self.last = linear()

    def forward(self, x):
        return self.last(self.layers[0](x))


class Grown(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 32), None

    def forward(self, x):
        x = torch.relu(self.body(x))
        if self.head is None:
            self.head = nn.Linear(x.shape[1], 2)
        return self.head(x)


class GrownInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.more = nn.Linear(4, 2), None

    def forward(self, x):
        if self.training and self.more is None:
            self.more = nn.Linear(4, 2)
        return self.body(x)
'''


def loaded(folder: Path, task: str, more: str = "") -> netdfl.Scenario:
    (folder / "own.py").write_text(MODULE)
    text = f"schema: netdfl/1\nname: beside\nnodes: 2\ntopology: ring\nworld: simulated\ntask: {task}\n"
    (folder / "s.yaml").write_text(text + (more or "rounds: 1\nalgorithm: dfedavg\n"))
    return netdfl.load(folder / "s.yaml")


def of(model: str = "linear", loss: str = "") -> str:
    return f"{{dataset: 'own:data', model: 'own:{model}'{loss and f', loss: own:{loss}'}}}"


def test_a_loss_that_reaches_the_model_by_another_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the loss reaches the model's parameter 'bias' otherwise than by"):
        loaded(tmp_path, "{kind: 'own:Penalty'}")


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("{kind: 'own:Learned'}", r"a tensor of shape \(3,\) that wants a gradient and is no parameter of the model"),
        (of("Hidden"), r"a tensor of shape \(4, 4\) that wants a gradient and is no parameter of the model"),
        ("{kind: 'own:Counting'}", "the loss changes Counting.steps, and one loss serves all nodes of a process"),
        (of(loss="counting"), "the loss changes own.STEPS, and one loss serves all nodes of a process"),
    ],
)
def test_what_a_loss_uses_beside_the_outputs_is_noted(task: str, told: str, tmp_path: Path) -> None:
    (notice,) = loaded(tmp_path, task).notices
    assert re.search(told, notice)


@pytest.mark.parametrize("task", ["{kind: 'own:Task'}", "{kind: 'own:First'}", of(), of("Grown")])
def test_of_an_ordinary_loss_nothing_is_said(task: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, task).notices == ()


def test_layers_that_are_made_at_the_first_call_are_trained(tmp_path: Path) -> None:
    more = "rounds: 20\nalgorithm: {name: dfedavg, lr: 0.5, local_steps: 10}\n"
    found = run(loaded(tmp_path, of("Grown"), more), out=tmp_path / "run", page=False)
    assert isinstance(found.run, Run)
    assert found.result["test_accuracy"]["average_model"]["last"] > 0.9
    assert "head.weight" in found.model().state_dict()


def test_layers_that_training_makes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the model makes parameters, or sets requires_grad, as it trains"):
        loaded(tmp_path, of("GrownInTraining"))
