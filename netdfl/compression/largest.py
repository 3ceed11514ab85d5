"""The coordinates of largest magnitude, in time near that of reading the vector once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.checks import Vector, raise_non_finite
from netdfl.compression.positions import Indices
from netdfl.compression.rows import PIECE

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
        keys.append(magnitude[found])
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
    low = keys if most is None else keys[keys <= most]
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
