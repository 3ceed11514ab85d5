"""What a loss and figures can't be taken of, and figures that go by another's name, are told before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import netdfl
from netdfl.core.errors import NetdflError, ScenarioError

SCENARIO: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "fits",
    "nodes": 2,
    "rounds": 2,
    "world": "simulated",
    "algorithm": {"name": "dfedavg", "lr": 0.1},
    "topology": "full",
}
X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
OWN = """
from torch.nn.functional import cross_entropy, mse_loss
def squared(outputs, targets, /): return mse_loss(outputs, targets.movedim(1, -1))
def accuracy(outputs, targets, /): return 0.5
def loss(outputs, targets, /): return 7.0
"""


def refusal(folder: Path, model: Any, data: Any, **task: Any) -> str:
    """Return why a scenario with this task can't be run."""
    (folder / "mine.py").write_text(OWN)
    with pytest.raises(NetdflError) as raised:
        netdfl.run(SCENARIO | {"task": task}, model=model, data=data, out=folder / "run", page=False)
    return str(raised.value)


SERIES = torch.randn(64, 3, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("task", [{}, {"loss": "l1"}, {"loss": "mine:squared", "metrics": ["rmse"]}])
def test_a_loss_and_figures_of_other_axes_are_refused(
    task: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = (SERIES, SERIES.movedim(1, 2).contiguous())
    said = refusal(tmp_path, nn.Conv1d(3, 3, 1), (data, data), **task)
    assert "outputs of shape (2, 3, 8) for targets of shape (2, 8, 3)" in said


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (["accuracy", "mine:accuracy"], "two figures are named 'accuracy', and one would hide the other"),
        (["accuracy", "mine:loss"], "a figure is named 'loss'"),
    ],
)
def test_figures_that_go_by_anothers_name_are_refused(
    metrics: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    with pytest.raises(ScenarioError, match=said):
        netdfl.load(SCENARIO | {"task": {"metrics": metrics}})


class Sums:
    """A task of one's own, one of whose figures goes by the name of the loss."""

    def model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def data(self) -> Any:
        return X, X.sum(1, keepdim=True)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"loss": 7.0}


def test_a_tasks_figure_that_goes_by_the_name_of_the_loss_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the task's metrics have a figure named 'loss'"):
        netdfl.load(SCENARIO | {"task": {"kind": f"{__name__}:Sums"}})
