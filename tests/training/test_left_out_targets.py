"""Targets of -100 are left out of figures as of PyTorch's cross-entropy, and the summary shows all figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import netdfl
from netdfl.core.errors import DatasetError
from netdfl.report.data.head import head
from netdfl.report.live import summary
from netdfl.training.classification import outcome
from netdfl.training.data.examples import Samples
from netdfl.training.flat import FlatModel
from netdfl.training.tasks.losses import LOSSES, METRICS


def _tokens(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens whose class is whether they are odd, of sequences that get ever shorter: what is behind is padding."""
    x = torch.arange(1, 1 + num * 6).view(num, 6) % 9
    return x, torch.where(torch.arange(6) < 1 + torch.arange(num)[:, None] % 6, x % 2, -100)


def _scores(x: torch.Tensor, right: bool = True) -> torch.Tensor:
    return nn.functional.one_hot((x + (not right)) % 2, 2).float() * 9


@pytest.mark.parametrize("name", ["accuracy", "mean_iou"])
def test_what_is_left_out_is_neither_right_nor_wrong(name: str) -> None:
    x, y = _tokens(6)
    assert METRICS[name](_scores(x), y) == 1
    assert METRICS[name](_scores(x, right=False), y) == 0
    half = torch.where((torch.arange(6) % 2 == 0)[:, None, None], _scores(x), _scores(x, right=False))
    counted = y != -100
    assert METRICS[name](half, y) == pytest.approx(METRICS[name](half[counted], y[counted]))
    assert METRICS["accuracy"](half, y) == pytest.approx(float((half.argmax(2) == y)[counted].double().mean()))


def test_with_nothing_left_there_is_no_figure() -> None:
    x, y = _tokens(2)
    assert all(
        METRICS[name](_scores(x), y * 0 - 100) != METRICS[name](_scores(x), y * 0 - 100)
        for name in ("accuracy", "mean_iou")
    )


@pytest.mark.parametrize("batch", [1, 4, 5, 12])
def test_the_loss_of_a_test_set_is_that_of_its_targets_however_it_is_cut(batch: int) -> None:
    model = FlatModel(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), LOSSES["cross_entropy"])
    x, y = _tokens(12)
    y[3] = -100  # a minibatch of one that counts nothing
    found = outcome(model, model.flat(), Samples(x, y), batch)
    with torch.no_grad():
        expected = cross_entropy(model.module(x).movedim(-1, 1), y)
    assert found.loss == pytest.approx(float(expected), rel=1e-6)


PROJECT = """
import torch
from torch import nn

def data():
    x = torch.arange(1, 361).view(60, 6) % 9
    y = torch.where(torch.arange(6) < 1 + torch.arange(60)[:, None] % 6, x % 2, -100)
    return (x[:40], y[:40]), (x[40:], y[40:])

def below():
    x = torch.rand(20, 3)
    return (x, torch.arange(20) % 2), (x, torch.arange(20) % 2 * -100)

def net(shape, num_classes, /):
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, num_classes))

def right(outputs, targets, /):
    keep = targets != -100
    return float((outputs.argmax(-1) == targets)[keep].double().mean())

def spoils(outputs, targets, /):
    found = right(outputs, targets)
    outputs.neg_()
    return found
"""


def _scenario(folder: Path, task: str) -> Path:
    (folder / "tagging.py").write_text(PROJECT)
    path = folder / "s.yaml"
    path.write_text(
        "schema: netdfl/1\nname: tagging\nnodes: 2\nrounds: 3\nworld: simulated\ntopology: ring\n"
        f"algorithm: {{name: dfedavg, lr: 1.0, local_epochs: 2}}\ntask: {{batch_size: 8, {task}}}\n"
    )
    return path


def test_a_run_is_judged_by_what_counts_and_its_summary_shows_every_figure(tmp_path: Path) -> None:
    task = (
        'dataset: {name: "tagging:data"}, model: {name: "tagging:net"}, metrics: [accuracy, mean_iou, "tagging:right"]'
    )
    done = netdfl.run(_scenario(tmp_path, task), out=tmp_path / "run", page=False)
    last = {name: course["last"] for name, course in done.result["metrics"].items()}
    assert last["test_accuracy"] == last["test_right"] > 0.9
    _, _, rows = summary(done.result, tmp_path / "run")
    assert [name for name in rows if name in ("accuracy", "test mean iou", "test right", "test loss")] == [
        "accuracy",
        "test mean iou",
        "test right",
    ]
    assert {"test accuracy, average model", "test mean iou", "test right"} <= {
        name for name, *_ in head(done.run)["numbers"]
    }


def test_a_class_below_0_in_the_test_set_is_refused_where_each_example_has_one(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the test set has a target below 0"):
        netdfl.run(_scenario(tmp_path, 'dataset: {name: "tagging:below"}, model: mlp'), out=tmp_path / "run")


def test_a_figure_that_writes_to_what_it_is_given_changes_no_other(tmp_path: Path) -> None:
    task = 'dataset: {name: "tagging:data"}, model: {name: "tagging:net"}, metrics: ["tagging:spoils", accuracy]'
    done = netdfl.run(_scenario(tmp_path, task), out=tmp_path / "run", page=False)
    last = {name: course["last"] for name, course in done.result["metrics"].items()}
    assert last["test_spoils"] == last["test_accuracy"] > 0.9
