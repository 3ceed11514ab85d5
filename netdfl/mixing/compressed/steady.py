"""A compressor made a contraction, so that a reference that follows its differences never runs away.

A reference follows by h <- h + C(x - h), and |x - h|^2 is multiplied by 1 - omega, omega as in `step_size`. Where
C adds more energy than it keeps, that grows, and no step size of the mixing helps. h <- h + a C(x - h) shrinks
it again, with a = 1 / (1 + variance) for an unbiased C (Koloskova, Stich, Jaggi 2019, section 2.2). Error
feedback, with what is left of x + e in place of x - h, is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, sqrt

import numpy as np
from torch import Tensor

from netdfl.compression.base import Compressor, Encoded
from netdfl.mixing.compressed.step_size import trial


@dataclass(frozen=True, slots=True)
class Steady(Compressor):
    """a C(x), with the power of two nearest to the best a on a normal vector; C itself where that is 1.

    Both ends find a by the same trial. A power of two, because it is then exact, and because two machines
    whose rounding differs still find the same.
    """

    inner: Compressor

    def part(self, dim: int) -> float:
        """The a for vectors of `dim` numbers, at most 1."""
        return float(2.0 ** min(0, round(log2(trial(self.inner, dim).part))))

    def variance(self, dim: int) -> float:
        """((1 - a) + a sqrt(v))^2 with v the inner one's, for |x - a C(x)| <= (1 - a)|x| + a|x - C(x)|."""
        part = self.part(dim)
        return float(((1.0 - part) + part * sqrt(self.inner.variance(dim))) ** 2)

    def compress(self, x: Tensor, rng: np.random.Generator) -> Encoded:
        """As the inner one; the receiver knows a."""
        return self.inner.compress(x, rng)

    def decompress(self, encoded: Encoded) -> Tensor:
        """A times what the inner one decodes."""
        said, part = self.inner.decompress(encoded), self.part(encoded.dim)
        return said if part == 1.0 else said * part
