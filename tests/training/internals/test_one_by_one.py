"""Minibatches that are drawn at once are those drawn one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.rng import Streams
from netdfl.training.classification import Classification
from netdfl.training.data.examples import ReadSamples, Samples
from netdfl.training.flat import FlatModel

X, Y = torch.linspace(-1, 1, 30).reshape(10, 3), torch.arange(10) % 2
SAMPLES = Samples(X, Y)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def task(model: FlatModel | None = None, samples: Any = SAMPLES, **more: Any) -> Classification:
    model = FlatModel(perceptron()) if model is None else model
    more = {"node": 3, "streams": Streams(1), "batch_size": 4, "num_labels": 2} | more
    return Classification(model, model.flat(), samples, **more)


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("steps", [None, 1, 4])
@pytest.mark.parametrize("augmented", [False, True])
def test_minibatches_at_once_are_those_one_by_one(epochs: int, steps: int | None, augmented: bool) -> None:
    augment = (lambda x, rng: x + rng.random()) if augmented else None
    made = task(augment=augment)
    drawn = made.data(1).drawn(epochs=epochs, steps=steps)  # type: ignore[attr-defined]
    one_by_one = [batch() for batch in made.data(1)._batches(epochs, steps)]  # type: ignore[attr-defined]
    assert len(drawn.sizes) == len(one_by_one)
    assert drawn.places.max() < len(drawn.x)
    for places, size, (x, y) in zip(drawn.places, drawn.sizes, one_by_one, strict=True):
        assert torch.equal(drawn.x[places[:size]], x)
        assert torch.equal(drawn.y[places[:size]], y)
    for epoch in range(0 if steps else epochs):
        seen = torch.cat([y for _, y in one_by_one[3 * epoch : 3 * epoch + 3]])
        assert sorted(seen.tolist()) == sorted(Y.tolist()), "an epoch is all examples once"


class Two(nn.Linear):
    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        return super().forward(x)


def test_examples_that_draw_as_they_are_read_draw_by_node_round_and_step() -> None:
    noisy = ReadSamples(lambda k: (X[k] + torch.rand(1), Y[k]), np.arange(10))

    def drawn(node: int, round: int) -> list[Tensor]:
        data: Any = task(FlatModel(Two(3, 2)), noisy, node=node).data(round)
        return [batch()[0] for batch in data._batches(1, None)]

    torch.manual_seed(1)
    first = drawn(0, 0)
    torch.manual_seed(2)
    again = drawn(0, 0)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    sums = [float(batch.sum()) for batch in (*first, *drawn(0, 1), *drawn(1, 0))]
    assert len(set(sums)) == len(sums)
