"""Two compressors in a row: choose coordinates, then compress their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.arrays import as_vector
from netdfl.compression.base import Compressor, Encoded
from netdfl.compression.sparsify import Sparsifier, scatter

_PREFIX = "values."


@dataclass(frozen=True, slots=True)
class Chain(Compressor):
    """Q(S(x)), with S that keeps some coordinates as they are and Q on the vector of what is kept.

    What S drops and what Q loses are orthogonal, so variance max(v_Q, 1 - w + w v_Q): w the contraction of S,
    v_Q the variance of Q on k numbers (the larger end of a share of |x|^2 from w to 1 that S keeps). Biased.

    nbytes: those of the positions and of Q on k numbers. Raises ValueError where S rescales.
    """

    sparsifier: Sparsifier
    values: Compressor

    def __post_init__(self) -> None:
        if self.sparsifier.unbiased:
            raise ValueError("chain got a rescaled random_k, expected a sparsifier that keeps values as they are")

    def variance(self, dim: int) -> float:
        """max(v_Q, 1 - w + w v_Q)."""
        kept = self.sparsifier.contraction(dim)
        lost = self.values.variance(self.sparsifier.num_kept(dim))
        return max(lost, 1.0 - kept + kept * lost)

    def compress(self, x: Tensor, rng: np.random.Generator) -> Encoded:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        indices, arrays = self.sparsifier.select(vector, rng)
        inner = self.values.compress(torch.from_numpy(vector[indices]), rng)
        prefixed = {_PREFIX + name: array for name, array in inner.arrays.items()}
        meta = {_PREFIX + name: value for name, value in inner.meta.items()}
        return Encoded(len(vector), {**arrays, **prefixed}, {"count": len(indices), **meta})

    def decompress(self, encoded: Encoded) -> Tensor:
        """Decode to shape (d,). Raises MalformedMessage."""
        mine = [name for name in encoded.arrays if name.startswith(_PREFIX)]
        indices = self.sparsifier.positions(encoded, *mine)
        inner = Encoded(
            len(indices),
            {name.removeprefix(_PREFIX): encoded.arrays[name] for name in mine},
            {n.removeprefix(_PREFIX): v for n, v in encoded.meta.items() if n.startswith(_PREFIX)},
        )
        return scatter(self.values.decompress(inner).numpy(), indices, encoded.dim)
