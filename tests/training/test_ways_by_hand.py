"""Which way a model is computed: in rows, in threads or alone, and which ways are tried first."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from netdfl.training import trial
from netdfl.training.flat import FlatModel
from netdfl.training.sgd import LocalSgd
from netdfl.training.stacked_model import StackedModel

X, Y = torch.linspace(-1, 1, 36).reshape(12, 3), torch.arange(12) % 2


def perceptron(classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, classes))


def normed(drop: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout(drop))


def test_a_model_whose_gradient_is_zero_agrees_with_itself_in_rows() -> None:
    model = FlatModel(perceptron(classes=1))
    assert StackedModel(model).agrees(model.flat(), X[:4], 0 * Y[:4])


@pytest.mark.parametrize("rows", [True, False])
def test_rows_are_tried_only_where_nodes_may_be_computed_together(rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[tuple[str, ...]]()
    monkeypatch.setattr(trial, "known", lambda key: None)
    monkeypatch.setattr(trial, "remember", lambda key, wrong: None)
    monkeypatch.setattr(trial, "must_be_apart", lambda: False)
    monkeypatch.setattr(trial, "differing", lambda found: tried.append(found.ways) or [])
    for module in (perceptron(), normed()):
        assert trial.fit_ways(FlatModel(module), LocalSgd(lr=0.1, steps=1), X, Y, 4, rows=rows) == []
    assert tried == [("formula", "rows") if rows else ("formula",), ("autograd",)]
