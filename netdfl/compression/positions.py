"""Which k of d coordinates are sent, and how that is said: a bitmap, or the sorted list in two arrays, the shorter one.

The coordinates of largest magnitude are found in time near that of reading the vector once. The list keeps the low
floor(log2(d / k)) bits of each index as they are and the rest as gaps in unary (Elias 1974, Fano 1971): at most
2 + log2(d / k) bits an index, half a bit from the least possible. Which of the two it is follows from (k, d), so a peer
can't choose. All or none of d need no array.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.arrays import Vector, from_numpy, raise_non_finite, read_numpy
from netdfl.compression.base import Encoded
from netdfl.compression.bits import code_dtype, from_unary, pack, packed_nbytes, unary, unpack
from netdfl.compression.buckets import PIECE
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
    rest = indices.astype(code_dtype(low))
    rest &= rest.dtype.type((1 << low) - 1)
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


Keys = NDArray[Any]
"""Magnitudes as the integers of their bits without the sign: same order, and infinity and NaN above all."""


def _as_integers(x: Vector) -> tuple[Keys, Any, Any]:
    """The bits of `x`, the mask that drops signs, and the key of infinity."""
    integer = np.int32 if x.dtype == np.float32 else np.int64
    return x.view(integer), np.iinfo(integer).max, np.array(np.inf, x.dtype).view(integer)


def _candidates(x: Vector, at_least: int) -> tuple[Indices, Keys]:
    """Indices and keys of all magnitudes whose key is `at_least` that; increasing."""
    bits, mask, _ = _as_integers(x)
    indices, keys = [], []
    magnitudes = np.empty(min(PIECE, len(x)), bits.dtype)
    chosen = np.empty(len(magnitudes), np.bool_)
    for start in range(0, len(x), PIECE):
        piece = bits[start : start + PIECE]
        magnitude, large = magnitudes[: len(piece)], chosen[: len(piece)]
        np.bitwise_and(piece, mask, out=magnitude)
        np.greater_equal(magnitude, at_least, out=large)
        found = np.flatnonzero(large)
        keys.append(magnitude.take(found))
        found += start
        indices.append(found)
    return np.concatenate(indices), np.concatenate(keys)


def _refuse_non_finite(x: Vector, keys: Keys) -> None:
    if len(keys) and keys.max() >= _as_integers(x)[2]:
        raise_non_finite(x)


def _sample(x: Vector, where: Indices | slice) -> Keys:
    """Keys of some coordinates, largest first."""
    bits, mask, _ = _as_integers(x)
    keys: Keys = np.sort(bits[where] & mask)[::-1]
    return keys


def largest(x: Vector, count: int) -> Indices:
    """The `count` indices of largest magnitude, increasing; of equal ones the lower index.

    A sample gives a threshold that `count` numbers pass almost surely; only those are then selected from. If
    fewer pass, all are. The smallest that is kept is looked for below another, which almost surely fewer pass.
    Raises ValueError where a number is not finite.
    """
    dim = len(x)
    if count == 0:
        return np.arange(0)
    sample = _sample(x, slice(None, None, max(1, dim // min(max(dim // 64, 1024), 65536))))
    middle = count * len(sample) / dim
    beside = 4 * math.sqrt(middle) + 4
    rank = middle + beside
    indices, keys = _candidates(x, sample[int(rank)] if rank < len(sample) else 0)
    if len(indices) < count:
        indices, keys = _candidates(x, 0)
    _refuse_non_finite(x, keys)
    smallest = _at_rank(keys, count, sample[int(middle - beside)] if middle > beside else None)
    keep = keys > smallest
    ties = np.flatnonzero(keys == smallest)
    keep[ties[: count - int(np.count_nonzero(keep))]] = True
    chosen: Indices = indices[keep]
    return chosen


def _at_rank(keys: Keys, count: int, most: Any) -> Any:
    """The `count`-th largest key; looked for among those up to `most`, if that is one of them."""
    low = keys if most is None else keys.take(np.flatnonzero(keys <= most))  # few: sooner than by a mask
    count -= len(keys) - len(low)
    if count <= 0:
        return _at_rank(keys, count + len(keys) - len(low), None)
    return np.partition(low, len(low) - count)[len(low) - count]


def above(x: Vector, count: int, bounds: tuple[int, int], rng: np.random.Generator) -> Indices | None:
    """The indices above a threshold estimated from a random sample; None where their number is out of `bounds`.

    Raises ValueError where a number is not finite.
    """
    dim = len(x)
    if count == 0:
        return None
    sample = _sample(x, rng.integers(0, dim, min(dim, max(640 * dim // count, 4096), 2**17)))
    indices, keys = _candidates(x, sample[min(int(count * len(sample) / dim), len(sample) - 1)])
    _refuse_non_finite(x, keys)
    return indices if bounds[0] <= len(indices) <= bounds[1] else None
