"""Compressors that keep every coordinate: unchanged, or rounded to 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.arrays import (
    DTYPES,
    FLOATS,
    as_vector,
    check_names,
    copy_finite,
    empty,
    from_numpy,
    read_array,
    refuse_non_finite,
    snapshot,
    to_array,
    to_tensor,
)
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.core.errors import MalformedMessage

_STORED = ("float16", "bfloat16", *FLOATS)


@dataclass(frozen=True, slots=True)
class IdentityCompressor(Compressor):
    """The identity, C(x) = x, exactly and in the vector's own dtype. Its size is d times the size of a number.

    Values from a peer may be NaN or infinite: the node's policy for mixing models decides whether to use them.
    """

    unbiased: ClassVar[bool] = True

    def variance(self, dim: int) -> float:
        """Return 0, because nothing is lost."""
        return 0.0

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Encode `x` of shape (d,) as an unchanged copy. Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        if x.dtype in (torch.float16, torch.bfloat16):
            refuse_non_finite(vector)
            return EncodedVector(len(x), {"values": snapshot(x)})
        return EncodedVector(len(x), {"values": from_numpy(copy_finite(vector))})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Return a copy of the vector, shape (d,). Raises MalformedMessage."""
        dim = check_names(encoded, ("values",))
        array = read_array(encoded, "values", _STORED, dim)
        return to_tensor(snapshot(to_tensor(array)))


@dataclass(frozen=True, slots=True)
class Cast(Compressor):
    """C(x) = x rounded to nearest in 16 bits; decoded as float32. nbytes: 2 d. Biased, deterministic.

    With unit roundoff u, |x_i - C(x_i)| <= u |x_i|, so contraction 1 - u^2: u = 2^-11 for float16 where every
    non-zero magnitude lies in [6.2e-5, 65504], 2^-8 for bfloat16 from 1.2e-38 up (IEEE 754; Higham,
    Accuracy and Stability of Numerical Algorithms, theorem 2.2). Below that range nothing is promised: digits are lost,
    and float16 makes 0 of magnitudes up to 2^-25 = 3e-8. So differences stop shrinking there, but not in bfloat16.
    """

    dtype: Literal["float16", "bfloat16"]

    def variance(self, dim: int) -> float:
        """Return the square of the unit roundoff, within the format's normal range; 1 if a number may become 0."""
        return 2.0**-22 if self.dtype == "float16" else 2.0**-16

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Round `x` of shape (d,) to 16 bits. Raises ValueError if a number is not finite or out of range."""
        vector = as_vector(x)
        refuse_non_finite(vector)
        target = DTYPES[self.dtype]
        rounded = empty(len(vector), target).copy_(torch.from_numpy(vector))
        if rounded.numel() and not torch.isfinite(rounded.abs().amax()):
            largest = np.abs(vector).max()
            what = f"{largest} is beyond {self.dtype}, whose largest is {torch.finfo(target).max}"
            other = "use bfloat16, " if self.dtype == "float16" else ""
            raise ValueError(f"{what}: {other}lower the learning rate or clip the gradient")
        return EncodedVector(len(vector), {"values": to_array(rounded)})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Convert to float32 of shape (d,). Raises MalformedMessage."""
        dim = check_names(encoded, ("values",))
        stored = to_tensor(read_array(encoded, "values", (self.dtype,), dim))
        if dim and not torch.isfinite(stored.abs().amax()):
            raise MalformedMessage("array 'values' holds a NaN or an infinity; expected finite numbers")
        return empty(dim, torch.float32).copy_(stored)
