"""The sign compressor: one bit a number, with the mean magnitude of each bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression.arrays import as_vector, check_names, from_numpy, read_numpy, read_scales, refuse_non_finite
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.compression.bits import packed_nbytes
from netdfl.compression.buckets import bucket_totals, num_buckets, pieces, times_scales

_ROOM = 64
"""The exponent by which magnitudes are scaled down where their sum overflows: memory holds fewer than 2^64 numbers."""


@dataclass(frozen=True, slots=True)
class Sign(Compressor):
    """C(x) = |x|_1 / B * sign(x) in each bucket of B = `bucket` numbers (0: the whole vector).

    |x - C(x)|^2 = |x|^2 - |x|_1^2 / B, so contraction 1 / B at least (Karimireddy et al. 2019, assumption A
    and lemma 8), and 2 / pi for Gaussian x. Biased, deterministic; a 0 counts as positive.

    nbytes: ceil(d / 8) + 4 ceil(d / bucket); 8 a bucket for float64.
    """

    bucket: int

    def variance(self, dim: int) -> float:
        """Return 1 - 1 / B, with B the numbers in a bucket."""
        size = min(self.bucket or dim, dim)
        return 1.0 - 1.0 / size if size else 0.0

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        refuse_non_finite(vector)
        dim = len(vector)
        views = [view.numpy() for view in pieces(torch.from_numpy(vector), self.bucket)]
        # numpy sums a row in one thread; torch's sums may depend on how many there are.
        sums = self._sums(views, dim)
        size = self.bucket or dim
        lengths = np.minimum(dim - np.arange(len(sums)) * size, size)
        means = sums / lengths
        if not np.isfinite(means).all():  # a mean is no larger than the largest of its numbers, however large their sum
            less = self._sums([np.ldexp(view, -_ROOM) for view in views], dim) / lengths
            means = np.ldexp(np.minimum(less, np.ldexp(np.finfo(np.float64).max, -_ROOM)), _ROOM)
        scales = from_numpy(means.astype(vector.dtype))
        return EncodedVector(dim, {"scales": scales, "signs": from_numpy(np.packbits(vector < 0, bitorder="little"))})

    def _sums(self, views: Sequence[NDArray[Any]], dim: int) -> NDArray[np.float64]:
        """Return the sum of the magnitudes of each bucket's numbers; `views` cover the vector of `dim` numbers."""
        with np.errstate(over="ignore"):
            rows = [np.add.reduce(np.abs(view), axis=1, dtype=np.float64) for view in views]
            return bucket_totals(np.add, np.concatenate([np.empty(0), *rows]), dim, self.bucket)

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode to shape (d,), in the dtype of the scales. Raises MalformedMessage."""
        dim = check_names(encoded, ("scales", "signs"))
        scales = read_scales(encoded, num_buckets(dim, self.bucket))
        signs = read_numpy(encoded, "signs", ("uint8",), packed_nbytes(dim, bits=1))
        negative = np.unpackbits(signs, count=dim, bitorder="little").view(np.int8)
        negative *= -2
        negative += 1
        return times_scales(torch.from_numpy(negative), torch.from_numpy(scales.copy()), self.bucket)
