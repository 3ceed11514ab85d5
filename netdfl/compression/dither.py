"""Random fractions for stochastic rounding, drawn faster than the rounding itself.

Drawing 16 random bits for each coordinate takes longer than all other work. So one block R of random bits is drawn, and
piece m of the vector uses u = R_i xor c_m, with a fresh c_m for each piece. Each u is uniform, and any two are
independent: for different i by R_i and R_j, for equal i by the c. So the mean, the variance and every covariance of the
rounded numbers equal those with independent draws.

The u lie on the grid (2j + 1) / 2^16, j < 2^15. So floor(y + u) rounds y to the nearest multiple of 2^-15 first:
P(up) is off by at most 2^-16. With 8 bits that is 1.2e-7 of the norm, the spacing of float32 there; 2^32 draws would
be needed to see it at one standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression.buckets import BucketSpan, buffer_for


def fractions(rng: np.random.Generator, spans: Sequence[BucketSpan], offset: int, *, double: bool) -> Iterator[Tensor]:
    """Yield, for each span of a vector, a buffer with `2^e + offset + u` for each number, for stochastic rounding.

    u is random, uniform in [0, 1). The flat buffer may be longer than the span, and is used again for the next span.
    The integer part is `offset` modulo 2^7 in float32 (e = 7), modulo 2^20 in float64 (`double`, e = 20). The 16 bits
    of the float that represent u are set as an integer, so drawing needs no floating-point operation.
    """
    dtype, low, exponent = ("f8", 16, 20) if double else ("f4", 0, 7)
    word = np.dtype("u8" if double else "u4")
    num = max((length for span in spans for length in span.pieces), default=0)
    block: NDArray[Any] = _random16(rng, num).astype(word)
    if low:
        block <<= word.type(low)
    block |= np.array(2**exponent + offset % 2**exponent, dtype).view(word) | word.type(1 << low)
    shifts = rng.integers(0, 2**15, sum(len(span.pieces) for span in spans), np.uint16).astype(word)
    shifts <<= word.type(low + 1)
    drawn = iter(shifts)
    floats = buffer_for(spans, torch.float64 if double else torch.float32)
    shifted = floats.numpy().view(word)
    for span in spans:
        at = 0
        for length in span.pieces:
            np.bitwise_xor(block[:length], next(drawn), out=shifted[at : at + length])
            at += length
        yield floats


def _random16(rng: np.random.Generator, num: int) -> NDArray[np.uint16]:
    """Draw `num` random 16-bit integers, as 64-bit words where possible, which is faster."""
    if num % 4 or sys.byteorder == "big":
        return rng.integers(0, 2**16, num, np.uint16)
    return rng.integers(0, 2**64 - 1, num // 4, np.uint64, endpoint=True).view(np.uint16)
