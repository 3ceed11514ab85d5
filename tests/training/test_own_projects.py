"""A PyTorch project of one's own, as it is: plain modules, Datasets, tokens, real targets; and its model comes out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import netdfl
from netdfl.cli.commands import make_app
from netdfl.core.errors import ScenarioError
from netdfl.running.judged import FinishedRun

PROJECT = '''
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset
from netdfl import Datasets


class Line(Dataset):
    """y = x1 + 2 x2 + 3 x3, item by item."""

    def __init__(self, num, seed):
        self.x = torch.randn(num, 3, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.x[k] @ torch.tensor([1.0, 2.0, 3.0])


def line():
    return Line(96, 0), Line(32, 1)


def clients():
    each = [Line(24, seed) for seed in range(4)]
    return Datasets(clients=each, client_tests=[Line(8, 10 + seed) for seed in range(4)])


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))).squeeze(1)


class Backbone(Net):
    """Its first layer is frozen, of another type, and used twice."""

    def __init__(self):
        super().__init__(6)
        self.first = self.first.double().requires_grad_(False)
        self.again = self.first

    def forward(self, x):
        return self.last(torch.tanh(self.again(x.double()).float())).squeeze(1)


def worst(outputs, targets, /):
    return (outputs - targets).abs().max()


def tokens():
    text = torch.arange(400).remainder(7)
    return TensorDataset(text.unfold(0, 5, 2), text[1:].unfold(0, 5, 2)[:198])


def words():
    text = np.arange(400) % 7
    x = np.stack([text[k : k + 5] for k in range(390)])
    return x, np.stack([text[k + 1 : k + 6] for k in range(390)])


class Characters(nn.Module):
    """Scores (N, length, classes) of the next token; input and output share their weights."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.out = nn.Linear(8, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.embed(x))


def labels():
    x = np.random.default_rng(0).standard_normal((120, 3)).astype(np.float32)
    return Datasets(train=(x, (x > 0).astype(np.float32)))


class Labels(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 3))


class Task:
    """All of it in one class."""

    def __init__(self, width: int = 4):
        self.width = width

    def model(self):
        return Net(self.width)

    def data(self):
        return line()

    def loss(self, outputs, targets):
        return nn.functional.huber_loss(outputs, targets)

    def metrics(self, outputs, targets):
        return {"bias": float((outputs - targets).mean().abs())}
'''


def project(folder: Path, task: str, **more: Any) -> Path:
    (folder / "mine.py").write_text(PROJECT)
    lines = {
        "schema": "netdfl/1",
        "name": "own",
        "nodes": 4,
        "rounds": 3,
        "world": "simulated",
        "task": task,
        "algorithm": "{name: dfedavg, lr: 0.05, local_steps: 4}",
        "topology": "ring",
    }
    file = folder / "own.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in (lines | more).items()))
    return file


def ran(folder: Path, task: str, *sets: str, out: str = "run", **more: Any) -> FinishedRun:
    scenario = netdfl.load(project(folder, task, **more), sets)
    return netdfl.run(scenario, out=folder / out, page=False)


LINE = (
    '{dataset: {name: "mine:line"}, model: {name: "mine:Net", width: 8}, metrics: [mae, "mine:worst"], batch_size: 8}'
)


def test_a_plain_class_on_a_dataset_is_judged_by_a_figure_of_ones_own(tmp_path: Path) -> None:
    done = ran(tmp_path, LINE, expect="{test_worst: {at_most: 1000}, test_mae: {at_most: 0.0001}}")
    assert done.result["verdict"] == "fail"
    (reason,) = done.result["reasons"]
    assert reason.startswith("test_mae was expected to be at most 0.0001 and is")
    course = done.result["metrics"]["test_worst"]
    assert course["least"] <= course["last"] <= course["most"]


def test_the_model_predicts_what_was_judged_without_netdfl(tmp_path: Path) -> None:
    done = ran(tmp_path, LINE)
    model, node = done.model(), done.model(2)
    x, y = (torch.stack(parts) for parts in zip(*[_line()[1][k] for k in range(32)], strict=True))
    assert float((model(x) - y).abs().mean().detach()) == pytest.approx(done.result["metrics"]["test_mae"]["last"])
    assert not torch.equal(model(x), node(x))
    make_app()(["export", str(done.path), "model", "--out", str(tmp_path / "out")], standalone_mode=False)
    program = """
import sys, torch
from safetensors.torch import load_file
sys.modules["netdfl"] = type(sys)("netdfl"); sys.modules["netdfl"].Datasets = None  # as if it were not installed
from mine import Net, line
for weights in (torch.load("out/model.pt", weights_only=True), load_file("out/model.safetensors")):
    net = Net(8)
    net.load_state_dict(weights)
    x, y = zip(*[line()[1][k] for k in range(32)])
    print(float((net.eval()(torch.stack(x)) - torch.stack(y)).abs().double().mean()))
assert not [name for name in sys.modules if name.startswith("netdfl.")]
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert [float(n) for n in said.stdout.split()] == pytest.approx([done.result["metrics"]["test_mae"]["last"]] * 2)


def _line() -> Any:
    names: dict[str, Any] = {}
    exec(PROJECT, names)
    return names["line"]()


@pytest.mark.parametrize(
    ("task", "figures"),
    [
        ('{dataset: {name: "mine:words"}, model: {name: "mine:Characters"}, metrics: [perplexity]}', ["perplexity"]),
        pytest.param(
            '{dataset: {name: "mine:tokens"}, model: {name: "mine:Characters"}}', ["accuracy"], marks=pytest.mark.soak
        ),
        ('{dataset: {name: "mine:labels"}, model: {name: "mine:Labels"}}', ["f1", "label_accuracy"]),
        ('{dataset: {name: "mine:line"}, model: {name: "mine:Backbone"}}', ["mae", "rmse"]),
        pytest.param(
            '{dataset: {name: "mine:line", client_test: 0.25}, model: {name: "mine:Net"}}',
            ["mae", "rmse"],
            marks=pytest.mark.soak,
        ),
        ('{dataset: {name: "mine:clients"}, model: {name: "mine:Net"}, loss: l1}', ["mae"]),
        ('{kind: "mine:Task", width: 6}', ["bias"]),
    ],
)
def test_tasks_of_all_kinds_learn(tmp_path: Path, task: str, figures: list[str]) -> None:
    done = ran(tmp_path, task, evaluation="{every: 1}")
    metrics = done.result["metrics"]
    loss = [row[0] for row in done.run.rows("SELECT value FROM metrics WHERE name = 'test_loss' ORDER BY round")]
    assert loss[-1] < loss[0]
    assert {f"test_{name}" for name in figures} <= set(metrics)
    assert ("mean_personal_mae" in metrics) == ("client" in task)
    assert isinstance(done.model(1), torch.nn.Module)


def test_what_is_frozen_stays_and_shared_weights_stay_shared(tmp_path: Path) -> None:
    done = ran(tmp_path, '{dataset: {name: "mine:line"}, model: {name: "mine:Backbone"}}')
    one, other = done.model(0), done.model(1)
    assert torch.equal(one.first.weight, other.first.weight)
    assert not torch.equal(one.last.weight, other.last.weight)
    assert one.again is one.first


def test_weights_to_start_from_come_from_a_file(tmp_path: Path) -> None:
    done = ran(tmp_path, LINE)
    weights = {name: value * 0 + 2 for name, value in done.model().state_dict().items()}
    torch.save(weights, tmp_path / "two.pt")
    task = LINE.replace("width: 8", "width: 8, initial: two.pt")
    after = ran(tmp_path, task, "algorithm.lr=1e-9", out="again").model().state_dict()
    assert all(torch.allclose(value, torch.tensor(2.0)) for value in after.values())
    with pytest.raises(ScenarioError, match=r"two.pt is of another model: 'first.weight' has shape \(8, 3\)"):
        netdfl.load(project(tmp_path, task.replace("width: 8", "width: 5")))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ('{dataset: {name: "mine:line"}, model: {name: "mine:Net", wide: 3}}', "unknown key 'wide'"),
        ('{dataset: {name: "mine:line"}, model: {name: "mine:Net", width: many}}', "width is 'many'"),
        ('{dataset: digits, model: {name: "mine:Net"}}', "does not take the data, inputs of float32 (2, 1, 8, 8)"),
        (
            '{dataset: {name: "mine:words"}, model: {name: "mine:Net"}}',
            "does not take the data, inputs of int64 (2, 5)",
        ),
        (
            '{dataset: {name: "mine:line"}, model: {name: "mine:Labels"}}',
            "shape (2, 3) for targets of shape (2,)",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence_with_its_place(tmp_path: Path, task: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        netdfl.load(project(tmp_path, task))
    (problem,) = caught.value.problems
    assert said in str(problem)
    assert problem.line == 6


def test_a_figure_that_nobody_measures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="models are not judged by 'mea', did you mean 'mae'"):
        netdfl.load(project(tmp_path, LINE, expect="{test_mea: {at_most: 1}}"))
