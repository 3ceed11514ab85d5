"""The targets of distilling, and how far training on what it makes leads from a trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import Role, View
from netdfl.training.classification import Classification
from netdfl.training.data.examples import Samples
from netdfl.training.distill import Distiller
from netdfl.training.flat import FlatModel
from tests.training.built import build

STREAMS, DIM, RATE = Streams(4), 5, 0.2
VIEW = View(8, 5, 8, (), (), 0.0, {}, {}, Role.SERVER, 8)
CURVATURE = torch.linspace(0.5, 1.5, DIM, dtype=torch.float64)
CENTER = torch.linspace(-2, 2, DIM, dtype=torch.float64)


def descent(rounds: int = 6) -> list[Tensor]:
    """Gradient descent on one quadratic."""
    models = [torch.zeros(DIM, dtype=torch.float64)]
    for _ in range(rounds):
        models.append(models[-1] - RATE * CURVATURE * (models[-1] - CENTER))
    return models


def distiller(**options: Any) -> Distiller:
    common = {"per_class": 3, "iterations": 300, "steps": 2, "gap": 2, "optimizer": "adam"}
    return Distiller(**(common | {"input_lr": 0.1, "rate": RATE, "rate_lr": 0.0} | options))


def test_targets_may_be_means_of_later_models() -> None:
    trajectory, rng = descent(4), np.random.default_rng(0)
    for _ in range(50):
        start, target = distiller(gap=3, averaged=True)._segment(trajectory, rng)
        r = next(k for k, model in enumerate(trajectory) if model is start)
        low, high = trajectory[r + 1], trajectory[r + 3]
        assert bool(((target - low) * (target - high) <= 1e-15).all())


def task(model: str = "mlp", shape: tuple[int, ...] = (1, 4, 4)) -> Classification:
    module = build(model, shape, 3, 1).double()
    flat = FlatModel(module)
    rng = STREAMS.rng("samples")
    x, y = torch.from_numpy(rng.standard_normal((8, *shape))), torch.from_numpy(rng.integers(3, size=8))
    return Classification(flat, flat.flat(), Samples(x, y), node=0, streams=STREAMS, batch_size=8, num_labels=3)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("label_lr", [None, 0.05])
def test_a_models_trajectory_can_be_matched(optimizer: str, label_lr: float | None) -> None:
    """Models that SGD went through: after distillation training on the examples leads closer to them."""
    own = task()
    trajectory = [own.initial()]
    for gradient in own.data(0).steps(steps=6):
        trajectory.append(trajectory[-1] - 0.5 * gradient(trajectory[-1]))
    input_lr = 0.05 if optimizer == "adam" else 0.5
    options = {"optimizer": optimizer, "label_lr": label_lr, "input_lr": input_lr, "rate": 0.5}

    def mismatch(iterations: int) -> float:
        tool = distiller(iterations=iterations, **options)
        made = tool.distil(trajectory, own.objective, VIEW)
        segments, rate = zip(trajectory, trajectory[2:], strict=False), torch.tensor(0.5)
        rng = np.random.default_rng(0)
        return sum(tool._mismatch(a, b, own.objective, made, rate, rng).item() for a, b in segments)

    assert mismatch(60) < 0.7 * mismatch(0)
