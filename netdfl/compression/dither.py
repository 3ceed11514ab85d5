"""Random fractions for stochastic rounding, almost for free.

Drawing 16 random bits a coordinate takes longer than all the rest of the quantizer. So one block of
them is drawn, and piece m of the vector uses u = R_i xor c_m, with a fresh c_m a piece. Each u is
uniform, and any two are independent: R_i and R_j are, and for i = j the c are. The mean, the
variance and every covariance of what is rounded with them are those of independent draws.

The u lie on the grid (2j + 1) / 2^16, j < 2^15. So floor(y + u) rounds y to the nearest multiple of
2^-15 first: P(up) is off by at most 2^-16. With 8 bits that is 1.2e-7 of the norm, the spacing of
float32 there; 2^32 draws would be needed to see it at one standard error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def fractions(rng: np.random.Generator, shapes: Sequence[torch.Size], offset: int, *, double: bool) -> Iterator[Tensor]:
    """Yield `2^e + offset + u` of each shape, the consumer's to overwrite, until the next one.

    The integer part is `offset` modulo 2^8 in float32 (e = 7) and modulo 2^16 in float64 (e = 20). The bits of
    that float that stand for u are 16 zeros; u is put there as an integer, so no float operation is needed.
    """
    dtype, low, exponent = ("f8", 16, 20) if double else ("f4", 0, 7)
    word = np.dtype("u8" if double else "u4")
    num = max((shape.numel() for shape in shapes), default=0)
    block: NDArray[Any] = np.full(num, 2**exponent + offset % 2**exponent, dtype).view(word)
    block |= (rng.integers(0, 2**16, num, np.uint16) | np.uint16(1)).astype(word) << word.type(low)
    shifts: NDArray[Any] = (rng.integers(0, 2**15, len(shapes), np.uint16) << np.uint16(1)).astype(word)
    shifts <<= word.type(low)
    shifted = np.empty_like(block)
    floats = torch.from_numpy(shifted.view(dtype))
    views = {shape: floats[: shape.numel()].view(shape) for shape in set(shapes)}
    for shape, shift in zip(shapes, shifts, strict=True):
        np.bitwise_xor(block, shift, out=shifted)
        yield views[shape]
