"""Which k of d coordinates are sent: a bitmap, or the sorted list in two arrays, whichever is shorter.

The list keeps the low floor(log2(d / k)) bits of each index as they are and the rest as gaps in unary
(Elias 1974, Fano 1971): at most 2 + log2(d / k) bits an index, half a bit from the least possible.
Which of the two it is follows from (k, d), so a peer can't choose. All or none of d need no array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.arrays import from_numpy
from netdfl.compression.base import Encoded
from netdfl.compression.bits import code_dtype, from_unary, pack, packed_nbytes, unary, unpack
from netdfl.compression.checks import read_numpy
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Array

Indices = NDArray[np.int64]


def _low_bits(count: int, dim: int) -> int:
    return (dim // count).bit_length() - 1


def _list_nbytes(count: int, dim: int) -> tuple[int, int]:
    low = _low_bits(count, dim)
    return packed_nbytes(((dim - 1) >> low) + count, 1), packed_nbytes(count, low)


def names(count: int, dim: int) -> tuple[str, ...]:
    """The arrays that hold `count` positions out of `dim`."""
    if count in (0, dim):
        return ()
    return ("bitmap",) if packed_nbytes(dim, 1) <= sum(_list_nbytes(count, dim)) else ("high", "low")


def nbytes(count: int, dim: int) -> int:
    """Bytes of `count` positions out of `dim`: min(ceil(d / 8), the list), 0 for all or none."""
    return min(packed_nbytes(dim, 1), sum(_list_nbytes(count, dim))) if names(count, dim) else 0


def encode(indices: Indices, dim: int) -> dict[str, Array]:
    """Encode strictly increasing indices below `dim`."""
    kind = names(len(indices), dim)
    if not kind:
        return {}
    if kind == ("bitmap",):
        mask = np.zeros(dim, np.bool_)
        mask[indices] = True
        return {"bitmap": from_numpy(np.packbits(mask, bitorder="little"))}
    low = _low_bits(len(indices), dim)
    high = np.zeros(_list_nbytes(len(indices), dim)[0], np.uint8)
    written = unary(indices >> low)
    high[: len(written)] = written
    rest = np.bitwise_and(indices, (1 << low) - 1).astype(code_dtype(low))
    return {"high": from_numpy(high), "low": from_numpy(pack(rest, low))}


def decode(encoded: Encoded, count: int, dim: int) -> Indices:
    """The strictly increasing indices below `dim`; anything else raises MalformedMessage."""
    kind = names(count, dim)
    if not kind:
        return np.arange(count)
    if kind == ("bitmap",):
        bitmap = read_numpy(encoded, "bitmap", ("uint8",), packed_nbytes(dim, 1))
        indices = np.flatnonzero(np.unpackbits(bitmap, count=dim, bitorder="little").view(np.bool_))
        if len(indices) != count:
            raise MalformedMessage(f"a bitmap with {len(indices)} positions; expected {count}")
        return indices
    high_nbytes, low_nbytes = _list_nbytes(count, dim)
    heights = from_unary(read_numpy(encoded, "high", ("uint8",), high_nbytes), count)
    if heights is None:
        raise MalformedMessage(f"a list of positions that are not {count}")
    low = _low_bits(count, dim)
    heights <<= low
    heights |= unpack(read_numpy(encoded, "low", ("uint8",), low_nbytes), count, low).astype(np.int64)
    if heights[-1] >= dim or not (heights[1:] > heights[:-1]).all():
        raise MalformedMessage(
            f"positions that repeat, go back or reach {heights[-1]}; expected increasing under {dim}"
        )
    return heights
