"""One bit a number: its sign, with the mean magnitude of its bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.arrays import as_vector, check_names, from_numpy, read_numpy, read_scales, refuse_non_finite
from netdfl.compression.base import Compressor, Encoded
from netdfl.compression.bits import packed_nbytes
from netdfl.compression.buckets import bucket_totals, num_buckets, pieces, times_scales


@dataclass(frozen=True, slots=True)
class Sign(Compressor):
    """C(x) = |x|_1 / B * sign(x) in each bucket of B = `bucket` numbers (0: the whole vector).

    |x - C(x)|^2 = |x|^2 - |x|_1^2 / B, so contraction 1 / B at least (Karimireddy et al. 2019, assumption A
    and lemma 8), and 2 / pi for Gaussian x. Biased, deterministic; a 0 counts as positive.

    nbytes: ceil(d / 8) + 4 ceil(d / bucket); 8 a bucket for float64.
    """

    bucket: int

    def variance(self, dim: int) -> float:
        """1 - 1 / B."""
        size = min(self.bucket or dim, dim)
        return 1.0 - 1.0 / size if size else 0.0

    def compress(self, x: Tensor, rng: np.random.Generator) -> Encoded:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        refuse_non_finite(vector)
        dim = len(vector)
        views = [view.numpy() for view in pieces(torch.from_numpy(vector), self.bucket)]
        # numpy sums a row in one thread; torch's sums may depend on how many there are.
        rows = [np.add.reduce(np.abs(view), axis=1, dtype=np.float64) for view in views]
        sums = bucket_totals(np.add, np.concatenate([np.empty(0), *rows]), dim, self.bucket)
        size = self.bucket or dim
        lengths = np.minimum(dim - np.arange(len(sums)) * size, size)
        scales = from_numpy((sums / lengths).astype(vector.dtype))
        return Encoded(dim, {"scales": scales, "signs": from_numpy(np.packbits(vector < 0, bitorder="little"))})

    def decompress(self, encoded: Encoded) -> Tensor:
        """Decode to shape (d,), in the dtype of the scales. Raises MalformedMessage."""
        dim = check_names(encoded, ("scales", "signs"))
        scales = read_scales(encoded, num_buckets(dim, self.bucket))
        signs = read_numpy(encoded, "signs", ("uint8",), packed_nbytes(dim, 1))
        negative = np.unpackbits(signs, count=dim, bitorder="little").view(np.int8)
        negative *= -2
        negative += 1
        return times_scales(torch.from_numpy(negative), torch.from_numpy(scales.copy()), self.bucket)
