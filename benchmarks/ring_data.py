"""Synthetic images in MNIST's shape, so that the ring needs no download: ten blurred prototypes with noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from netdfl.training.data.dataset import Dataset


def blobs(root: Path, /, *, samples: int = 6400) -> Dataset:
    """`samples` training and 1,000 test images of shape (1, 28, 28) in ten classes."""
    rng = np.random.default_rng(0)
    prototypes = rng.random((10, 1, 28, 28), dtype=np.float32)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count, dtype=np.int64) % 10
        noise = rng.standard_normal((count, 1, 28, 28), dtype=np.float32)
        return prototypes[labels] + noise, labels

    return Dataset(*draw(samples), *draw(1000), num_classes=10)
