"""A compressor is tried on a sample where its bound is the same at any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.compression.base import Compressor, EncodedVector
from netdfl.mixing.compressed import step_size
from netdfl.mixing.compressed.step_size import trial


class Halving(Compressor):
    """Says half of everything; it can't be a key of a dictionary."""

    def __init__(self, factor: float = 0.5, bound: Any = lambda dim: 0.25) -> None:
        self.factor, self.bound = factor, bound

    __hash__ = None  # type: ignore[assignment]

    def variance(self, dim: int) -> float:
        return float(self.bound(dim))

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        return EncodedVector(x.numel(), {}, {"x": tuple(x.tolist())})  # type: ignore[dict-item]

    def decompress(self, encoded: EncodedVector) -> Tensor:
        return torch.tensor(encoded.meta["x"], dtype=torch.float64) * self.factor


def test_a_trial_takes_a_sample_where_the_bound_is_the_same_at_any_length() -> None:
    most = step_size._SAMPLE
    assert step_size.sample_size(Halving(), 10**6) == most
    assert step_size.sample_size(Halving(), 7) == 7
    assert step_size.sample_size(Halving(bound=lambda dim: 1 - 1 / dim), 10**6) == 10**6
    assert step_size.sample_size(Halving(bound=lambda dim: dim), 10**6) == 10**6
    assert step_size.sample_size(Halving(bound=lambda dim: 0.5 + 1e-9 * dim), most + 1) == most
    assert trial(Halving(), 0).kept == pytest.approx(0.75)
    with pytest.raises(ValueError, match="of 1 number"):
        trial(Refusing(), 0)


class Refusing(Halving):
    """Takes no vector at all."""

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        raise ValueError(f"got a vector of {x.numel()} number")
