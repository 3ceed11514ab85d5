"""Losses and figures go by all targets and outputs, and what they can't be taken of is told before anything runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import netdfl
from netdfl.core.errors import NetdflError, ScenarioError
from netdfl.running.prepare import check_ready
from netdfl.training.classification import outcome
from netdfl.training.data.examples import Samples
from netdfl.training.data.own import Datasets, shared
from netdfl.training.flat import FlatModel

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
def tags(outputs, targets, /): return cross_entropy(outputs.movedim(-1, 1), targets)
def of_pairs(outputs, targets, /): return cross_entropy(outputs[0], targets) + cross_entropy(outputs[1], targets)
def of_one(outputs, targets, /): return cross_entropy(outputs, targets)
def of_both(outputs, targets, /): return (of_pairs if isinstance(outputs, tuple) else of_one)(outputs, targets)
def accuracy(outputs, targets, /): return 0.5
def loss(outputs, targets, /): return 7.0
"""


def refusal(folder: Path, model: Any, data: Any, **task: Any) -> str:
    """Return why a scenario with this task can't be run."""
    (folder / "mine.py").write_text(OWN)
    with pytest.raises(NetdflError) as raised:
        netdfl.run(SCENARIO | {"task": task}, model=model, data=data, out=folder / "run", page=False)
    return str(raised.value)


def last_figures(folder: Path, model: Any, data: Any, **task: Any) -> dict[str, float]:
    """Return the last value of each metric of a run."""
    done = netdfl.run(SCENARIO | {"task": task}, model=model, data=data, out=folder / "run", page=False)
    assert done.result["verdict"] == "done"
    return {name: course["last"] for name, course in done.result["metrics"].items()}


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


# targets


class Read(Dataset[Any]):
    """Examples that are read anew each time, their inputs never quite the same."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> Any:
        x = self.x[place]
        return x + torch.randn(4) * 1e-3 if x.is_floating_point() else torch.randint(0, 6, x.shape), self.y[place]


AMOUNTS = torch.cat([torch.zeros(40, 2), 5 * torch.rand(24, 2, generator=torch.Generator().manual_seed(1))])


@pytest.mark.parametrize("form", [TensorDataset, Read])
@pytest.mark.parametrize(("y", "figure"), [(AMOUNTS, "test_rmse"), ((AMOUNTS > 2).float(), "test_label_accuracy")])
def test_columns_are_labels_only_where_all_of_them_are_0_or_1(
    form: Any, y: Tensor, figure: str, tmp_path: Path
) -> None:
    assert figure in last_figures(tmp_path, nn.Linear(4, 2), (form(X, y), form(X, y)))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ((X[:, :1] > 0).float(), "as integers of shape (N,), or set task.loss: binary_cross_entropy"),
        ((X[:, 0] > 0).float(), "as integers, or set task.loss: binary_cross_entropy"),
        ((X[:, 0] > 0).float() * 2, "give them as integers"),
        ((X[:, :2] > 0).float(), ""),
        (X[:, :1], ""),
    ],
)
def test_a_note_says_where_one_column_of_classes_is_learned_as_numbers(y: Tensor, said: str) -> None:
    told = [note for note in check_ready(netdfl.load(SCENARIO, data=(X, y))) if "learned as numbers" in note]
    assert len(told) == bool(said)
    assert "".join(told).endswith(said)


def test_targets_of_several_tensors_need_a_loss_of_ones_own(tmp_path: Path) -> None:
    data = X, (X[:, :1], X[:, 1:2])
    assert "the targets are tuple, where netdfl's own losses take one" in refusal(tmp_path, nn.Linear(4, 1), data)


class Apart(nn.Module):
    """A model of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.last(torch.cat([a, b], 1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("inputs", [(X[:, :2], X[:, 2:]), {"b": X[:, 2:], "a": X[:, :2]}])
def test_several_inputs_are_judged_by_their_classes(inputs: Any, tmp_path: Path) -> None:
    data = inputs, (X[:, 0] > 0).long()
    found = last_figures(tmp_path, Apart, (data, data), batch_size=4, eval_batch=7)
    assert found["test_accuracy"] > 0.8


TOKENS = torch.arange(320).view(64, 5) % 6
RARE = TOKENS.clone()
RARE[-1, 0] = 6


def reader(num: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, num))


@pytest.mark.parametrize("where", ["test", "train", "client_tests"])
@pytest.mark.parametrize("form", [TensorDataset, Read])
def test_classes_are_counted_in_all_parts_of_the_data(where: str, form: Any) -> None:
    parts: dict[str, Any] = {"train": form(TOKENS, TOKENS), "test": form(TOKENS, TOKENS)}
    parts[where] = [form(TOKENS, RARE)] if where == "client_tests" else form(TOKENS, RARE)
    assert shared(Datasets(**parts)).num_classes == 7


def test_a_class_that_only_a_clients_test_has_is_counted() -> None:
    y = torch.arange(64) % 2
    assert shared(Datasets(train=(X, y), test=(X, y), client_tests=[(X, 3 * y)])).num_classes == 4


def test_a_model_with_too_few_scores_for_the_classes_is_refused(tmp_path: Path) -> None:
    data = (TOKENS, RARE), (TOKENS, TOKENS)
    said = refusal(tmp_path, reader(6), data)
    assert "scores for 6 classes, and there are 7: let its last layer give num_classes" in said


def test_a_target_below_0_that_is_not_left_out_is_refused(tmp_path: Path) -> None:
    data = (TOKENS, TOKENS), (TOKENS, TOKENS - 1)
    assert "the test set has a target below 0: number the classes from 0" in refusal(tmp_path, reader(6), data)


@pytest.mark.parametrize("y", [torch.arange(64) % 2, torch.arange(320).view(64, 5) % 6])
def test_a_class_that_is_only_read_while_a_model_is_judged_ends_in_a_sentence(
    y: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdfl.training.data.own.MOST_READ", 8)
    more = y.clone()
    more[-1] = 9
    x, model = (X, nn.Linear(4, 2)) if y.dim() == 1 else (TOKENS, reader(6))
    said = refusal(tmp_path, model, (Read(x, y), Read(x, more)))
    assert "a target is of class 9, and the model has scores for" in said


@pytest.mark.parametrize(("labeled", "last"), [(50, 64), (60, 64), (50, 61)])
def test_a_minibatch_of_tests_weighs_by_its_targets_that_are_not_left_out(labeled: int, last: int) -> None:
    y = (X[:, 0] > 0).long()
    y[labeled:last] = -100
    model = FlatModel(nn.Linear(4, 2), nn.functional.cross_entropy)
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(model.module(X), y))
    assert outcome(model, model.flat(), Samples(X, y), 10).loss == pytest.approx(expected, rel=1e-6)


# outputs


class Tags(nn.Module):
    """A model with class scores for each of six tokens: on the last axis or the second, and by their places or not."""

    def __init__(self, second: bool, placed: bool) -> None:
        super().__init__()
        self.tokens, self.last, self.second = nn.Embedding(6, 8), nn.Linear(8, 6), second
        self.places = nn.Parameter(torch.randn(6, 8)) if placed else None

    def forward(self, x: Tensor) -> Tensor:
        found = self.last(self.tokens(x) + (0 if self.places is None else self.places))
        return found.movedim(-1, 1) if self.second else found


SIX = torch.randint(0, 6, (64, 6), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("metrics", [[], ["accuracy", "perplexity", "mean_iou"]])
def test_sequences_as_long_as_there_are_classes_are_learned_on_the_axis_that_keeps_its_length(
    second: bool, metrics: list[str], tmp_path: Path
) -> None:
    made = partial(Tags, second=second, placed=False)
    found = last_figures(tmp_path, made, ((SIX, SIX), (SIX, SIX)), batch_size=4, metrics=metrics)
    assert found["test_accuracy"] > 0.9


@pytest.mark.parametrize("task", [{}, {"loss": "mine:tags", "metrics": ["accuracy"]}])
def test_where_no_other_length_tells_the_class_axis_a_loss_of_ones_own_is_asked_for(
    task: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = partial(Tags, second=False, placed=True)
    said = refusal(tmp_path, made, ((SIX, SIX), (SIX, SIX)), **task)
    assert "classes may lie on any axis of length 6: give sequences of another length, or name a loss and" in said
    own = {"loss": "mine:tags", "metrics": ["mine:accuracy"]}
    assert last_figures(tmp_path, made, ((SIX, SIX), (SIX, SIX)), **own)["test_accuracy"] == 0.5


class Auxiliary(nn.Module):
    """A model that gives a second head's scores in training, as GoogLeNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(2))

    def forward(self, x: Tensor) -> Any:
        return (self.heads[0](x), self.heads[1](x)) if self.training else self.heads[0](x)


@pytest.mark.parametrize("loss", ["auto", "mine:of_pairs", "mine:of_one"])
def test_a_loss_that_takes_the_outputs_of_one_mode_alone_is_refused(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = X, (X[:, 0] > 0).long()
    said = refusal(tmp_path, Auxiliary, (data, data), loss=loss)
    pair = "(float32 (2, 2), float32 (2, 2))"
    assert f"the model gives {pair} in training mode and float32 (2, 2) in evaluation mode, and the loss takes" in said
    assert "but one of them: name a loss of your own that takes both" in said


def test_a_loss_that_takes_the_outputs_of_both_modes_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    data = X, (X[:, 0] > 0).long()
    found = last_figures(tmp_path, Auxiliary, (data, data), loss="mine:of_both", metrics=["accuracy"], batch_size=4)
    assert found["test_accuracy"] > 0.8


@pytest.mark.parametrize("client_tests", [False, True])
def test_classes_that_are_real_numbers_in_a_test_set_are_refused(client_tests: bool, tmp_path: Path) -> None:
    y = torch.arange(64) % 2
    real = (X, y.float())
    data = Datasets(clients=[(X, y), (X, y)], client_tests=[real, real]) if client_tests else ((X, y), real)
    told = refusal(tmp_path, nn.Linear(4, 2), data)
    assert "the test set has targets of torch.float32, and those of the training set are whole numbers" in told
