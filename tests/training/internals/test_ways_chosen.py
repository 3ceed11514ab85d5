"""Which way of computing a service chooses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from netdfl.core.rng import Streams
from netdfl.training import service as service_module
from netdfl.training.classification import Classification
from netdfl.training.data.examples import Samples
from netdfl.training.flat import FlatModel
from netdfl.training.service import Service

X, Y = torch.linspace(-1, 1, 36).reshape(12, 3), torch.arange(12) % 2


def perceptron(classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, classes))


def task(model: FlatModel, samples: Any = None, **more: Any) -> Classification:
    given = Samples(X, Y) if samples is None else samples
    return Classification(
        model, model.flat(), given, **({"node": 3, "streams": Streams(1), "batch_size": 4, "num_labels": 2} | more)
    )


def way(model: FlatModel, monkeypatch: pytest.MonkeyPatch, *, worth: int, row: int, **more: Any) -> str:
    monkeypatch.setattr(service_module, "WORTH_A_THREAD", worth)
    monkeypatch.setattr(service_module, "WORTH_A_ROW", row)
    data: Any = task(model, more.pop("samples", None)).data(0)
    data.task.device = SimpleNamespace(type=more.pop("device", "cpu"))
    call: Any = SimpleNamespace(data=data, solve=None)
    return Service(**({"batching": "auto", "threads": 2} | more))._way(call)


def test_small_perceptrons_are_rows_large_models_have_threads_and_all_else_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(make: Any, **more: Any) -> str:
        model = FlatModel(make())
        return way(model, monkeypatch, **({"worth": model.dim * 4, "row": model.dim * 4} | more))

    size = FlatModel(perceptron()).dim * 4
    assert found(perceptron) == "stacked"
    assert found(perceptron, row=size - 1) == "threads"
    assert found(perceptron, batching="exact") == "threads"
    assert found(perceptron, batching="exact", worth=size + 1) == "alone"
    assert found(perceptron, batching="exact", threads=1) == "alone"
    assert found(perceptron, batching="exact", device="cuda") == "alone"
    assert found(perceptron, row=0, device="cuda") == "stacked"
    assert found(perceptron, samples=Samples(X[:0], Y[:0])) == "alone"
    smooth = lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh())  # noqa: E731
    assert found(smooth) == "threads", "no formula: on a CPU not in rows, however small"
    assert found(lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))) == "alone"
    assert Service("auto", 2)._way(lambda: None) == "alone"
