"""Golomb-Rice coding of small signed integers: an entropy code whose decoding needs no loop.

Rice and Plaunt 1971, in the family of Elias's universal codes. Of an integer z, z >> k is written in unary and the low
k bits unchanged, in two arrays. The best k is found by computing the length for every k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.bits import Bytes, code_dtype, from_unary, pack, packed_nbytes, unary, unpack

LevelArray = NDArray[Any]


def fold(codes: LevelArray, bits: int) -> NDArray[np.uint16]:
    """Map quantized codes, which stand for levels 0, 1, -1, 2, -2, ..., to 0, 1, 2, 3, 4, ..."""
    levels = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    table: NDArray[np.uint16] = np.where(levels > 0, 2 * levels - 1, -2 * levels).astype(np.uint16)
    return table.take(codes)


def unfold(folded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map 0, 1, 2, 3, 4, ... back to the levels 0, 1, -1, 2, -2, ..."""
    half: NDArray[np.int64] = (folded + 1) >> 1
    return np.where(folded & 1, half, -half)


def shortest(folded: NDArray[np.uint16], bits: int) -> tuple[int, int]:
    """Return the Rice parameter k below `bits` that gives the shortest code of all integers, and its size in bytes."""
    counts = np.bincount(folded)
    values = np.arange(len(counts))
    unary_bits = [len(folded) + int(counts @ (values >> k)) for k in range(bits)]
    lengths = [-(-unary_bits[k] // 8) + packed_nbytes(len(folded), bits=k) for k in range(bits)]
    best = int(np.argmin(lengths))
    return best, lengths[best]


def encode(folded: NDArray[np.uint16], k: int) -> tuple[Bytes, Bytes]:
    """Return two arrays: the quotients z >> k of the integers in unary, and their low `k` bits."""
    remainders = (folded & np.uint16((1 << k) - 1)).astype(code_dtype(k))
    return unary(np.cumsum(folded >> k, dtype=np.int64)), pack(remainders, k)


def decode(quotients: Bytes, remainders: Bytes, num: int, k: int) -> NDArray[np.int64] | None:
    """Return the `num` integers that `encode` encoded, or None if the number of quotients differs."""
    heights = from_unary(quotients, num)
    if heights is None:
        return None
    return (np.diff(heights, prepend=0) << k) | unpack(remainders, num, k).astype(np.int64)
