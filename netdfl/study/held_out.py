"""Fashion-MNIST without its test set, used to choose learning rates and SAM radii."""

from __future__ import annotations

from pathlib import Path

from netdfl.core.units import PositiveFloat
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.datasets import FETCHED

HELD_OUT = 10_000


def fashion_mnist(root: Path, /, *, mean: float = 0.2860, std: PositiveFloat = 0.3530) -> Dataset:
    """Return only Fashion-MNIST's training set: 50,000 pictures to train on, and its last 10,000 as the test set."""
    whole = FETCHED["fashion_mnist"](root, mean=mean, std=std)
    x, y = whole.train_x, whole.train_y
    return Dataset(x[:-HELD_OUT], y[:-HELD_OUT], x[-HELD_OUT:], y[-HELD_OUT:], whole.num_classes, whole.mean, whole.std)
