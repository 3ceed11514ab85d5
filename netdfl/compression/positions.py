"""The encoding of k positions out of d coordinates: a bitmap, or a sorted list in two arrays, whichever is shorter.

The coordinates of largest magnitude are found in about the time of reading the vector once. The list keeps the low
floor(log2(d / k)) bits of each index unchanged and the rest as gaps in unary (Elias 1974, Fano 1971): at most 2 +
log2(d / k) bits an index, half a bit from the least possible. Bitmap or list follows from (k, d), so a sender can't
choose. If all of the d coordinates or none are sent, no array is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.arrays import Vector, from_numpy, read_numpy
from netdfl.compression.base import EncodedVector
from netdfl.compression.bits import code_dtype, from_unary, pack, packed_nbytes, unary, unpack
from netdfl.compression.buckets import PIECE
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Array

Indices = NDArray[np.int64]


def _low_bits(count: int, dim: int) -> int:
    return (dim // count).bit_length() - 1


def _list_nbytes(count: int, dim: int) -> tuple[int, int]:
    low = _low_bits(count, dim)
    return packed_nbytes(((dim - 1) >> low) + count, bits=1), packed_nbytes(count, bits=low)


def names(count: int, dim: int) -> tuple[str, ...]:
    """Return the names of the arrays that encode `count` positions out of `dim`."""
    if count in (0, dim):
        return ()
    return ("bitmap",) if packed_nbytes(dim, bits=1) <= sum(_list_nbytes(count, dim)) else ("high", "low")


def nbytes(count: int, dim: int) -> int:
    """Return the size in bytes of `count` encoded positions out of `dim`."""
    return min(packed_nbytes(dim, bits=1), sum(_list_nbytes(count, dim))) if names(count, dim) else 0


def encode(indices: Indices, dim: int) -> dict[str, Array]:
    """Encode strictly increasing indices below `dim` as the arrays that `names` lists."""
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
    rest = indices.astype(code_dtype(low))
    rest &= rest.dtype.type((1 << low) - 1)
    return {"high": from_numpy(high), "low": from_numpy(pack(rest, low))}


def decode(encoded: EncodedVector, count: int, dim: int) -> Indices:
    """Decode the `count` strictly increasing indices below `dim` that `encode` encoded. Raises MalformedMessage."""
    kind = names(count, dim)
    if not kind:
        return np.arange(count)
    if kind == ("bitmap",):
        bitmap = read_numpy(encoded, "bitmap", ("uint8",), packed_nbytes(dim, bits=1))
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


def _sample(x: Vector, where: Indices | slice) -> Vector:
    """Return the magnitudes of the coordinates at `where`, largest first."""
    magnitudes: Vector = np.sort(np.abs(x[where]))[::-1]
    return magnitudes


def _passing(x: Vector, threshold: Any, most: int) -> tuple[Indices | None, Vector]:
    """Return the indices and values of the numbers with a magnitude of at least `threshold`.

    If they are more than `most`, it returns None and the whole vector. A NaN passes every threshold.
    """
    indices, numbers = np.empty(most, np.int64), np.empty(most, x.dtype)
    magnitudes, chosen = np.empty(min(PIECE, len(x)), x.dtype), np.empty(min(PIECE, len(x)), np.bool_)
    num = 0
    for start in range(0, len(x), PIECE):
        piece = x[start : start + PIECE]
        magnitude, large = magnitudes[: len(piece)], chosen[: len(piece)]
        np.abs(piece, out=magnitude)
        np.less(magnitude, threshold, out=large)
        np.logical_not(large, out=large)
        at = np.flatnonzero(large)
        first, num = num, num + len(at)
        if num > most:
            return None, x
        piece.take(at, out=numbers[first:num], mode="clip")
        np.add(at, start, out=indices[first:num])
    return indices[:num], numbers[:num]


def largest(x: Vector, count: int) -> tuple[Indices, Vector]:
    """Return the indices, in increasing order, and values of the `count` numbers of largest magnitude.

    A sample gives a threshold that almost surely more than `count` numbers pass, but few more; the selection is made
    among these. If fewer pass, the selection is made among all numbers. A NaN is larger than every number.
    """
    dim = len(x)
    if count == 0:
        return np.arange(0), x[:0]
    sample = _sample(x, slice(None, None, max(1, dim // min(max(dim // 64, 1024), 65536))))
    middle = count * len(sample) / dim
    beside = 4 * math.sqrt(middle) + 4
    rank, most = int(middle + beside), int((middle + 2 * beside) * dim / len(sample))
    indices, numbers = _passing(x, sample[rank], most) if most < dim else (None, x)  # so the rank is in the sample
    if indices is None or len(indices) < count:
        indices, numbers = np.arange(dim), x
    integer = np.int32 if x.dtype == np.float32 else np.int64
    keys: NDArray[Any] = numbers.view(integer)
    keys = keys & np.iinfo(integer).max  # the order of magnitudes, and sooner to select from
    smallest = np.partition(keys, len(keys) - count)[len(keys) - count]
    keep = keys > smallest
    ties = np.flatnonzero(keys == smallest)
    keep[ties[: count - int(np.count_nonzero(keep))]] = True
    places = np.flatnonzero(keep)
    return indices.take(places), numbers.take(places)


def above(x: Vector, count: int, bounds: tuple[int, int], rng: np.random.Generator) -> tuple[Indices, Vector] | None:
    """Return indices and values of about `count` numbers, those with magnitudes above a threshold found by sampling.

    Returns None if the number of them is outside `bounds` (least, most).
    """
    dim = len(x)
    if count == 0:
        return None
    sample = _sample(x, rng.integers(0, dim, min(dim, max(640 * dim // count, 4096), 2**17)))
    indices, numbers = _passing(x, sample[min(int(count * len(sample) / dim), len(sample) - 1)], bounds[1])
    return None if indices is None or len(indices) < bounds[0] else (indices, numbers)
