"""The class of labeled datasets: plain arrays, the numbers that standardize them, and the folder of their files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.errors import DatasetError

Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Missing: TypeAlias = Literal["refuse", "drop", "mean"]
"""The treatment of a table's empty cells: refused, their rows dropped, or inputs set to their column's mean."""


def data_root() -> Path:
    """Return the folder of datasets: `NETDFL_DATA`, else `~/.cache/netdfl/data`."""
    return Path(os.environ.get("NETDFL_DATA") or "~/.cache/netdfl/data").expanduser()


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Labeled inputs for training and testing; the arrays may be read-only maps of files.

    `train_x` and `test_x` have shape (N, *shape): uint8, read as value / 255, or float32, read unchanged. `train_y` and
    `test_y` are int64 of shape (N,), from 0 to `num_classes` - 1. `mean` and `std` hold one number, or one per entry of
    the first axis of `shape` (the channels).

    Raises:
        DatasetError: An array has another dtype or length, or a label is out of range.
    """

    train_x: Pixels
    train_y: Labels
    test_x: Pixels
    test_y: Labels
    num_classes: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        _check_split("train", self.train_x, self.train_y, self.num_classes)
        _check_split("test", self.test_x, self.test_y, self.num_classes)
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise DatasetError(f"train_x holds inputs of shape {self.shape}, test_x of {self.test_x.shape[1:]}")
        sizes = {1} | set(self.shape[:1])
        if len(self.mean) not in sizes or len(self.std) not in sizes or min(self.std) <= 0:
            raise DatasetError(
                f"mean {self.mean} and std {self.std} do not fit inputs of shape {self.shape}: "
                "give one number or one per channel, and std above 0"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train_x.shape[1:])

    def standardized(self, x: Pixels) -> NDArray[np.float32]:
        """Return inputs (N, *shape) as fresh, contiguous float32: (x - mean) / std, uint8 scaled first."""
        axes = (-1,) + (1,) * max(len(self.shape) - 1, 0)
        scale = 255.0 if x.dtype == np.uint8 else 1.0
        mean = (np.asarray(self.mean) * scale).astype(np.float32).reshape(axes)
        factor = (1 / (np.asarray(self.std) * scale)).astype(np.float32).reshape(axes)
        out = np.array(x, dtype=np.float32, order="C")
        out -= mean
        out *= factor
        return out


def _check_split(split: str, x: NDArray[Any], y: NDArray[Any], num_classes: int) -> None:
    if x.dtype not in (np.uint8, np.float32) or y.dtype != np.int64 or y.ndim != 1:
        raise DatasetError(
            f"{split}_x is {x.dtype}, {split}_y is {y.dtype} with {y.ndim} axes: "
            "expected uint8 or float32 inputs and int64 labels in one axis"
        )
    if len(x) != len(y) or len(y) == 0:
        raise DatasetError(
            f"{split}_x has {len(x)} inputs, {split}_y {len(y)} labels: expected as many, and one at least"
        )
    if y.min() < 0 or y.max() >= num_classes:
        raise DatasetError(f"{split}_y goes from {y.min()} to {y.max()}: expected 0 to {num_classes - 1}")
