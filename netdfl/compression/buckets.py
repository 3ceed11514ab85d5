"""The buckets of a vector, which are groups of numbers that share a scale factor, and operations on several at once.

A long vector is cut along the borders of its buckets into pieces, and spans of several pieces, that fit a core's cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.compression.arrays import empty
from netdfl.compression.scratch import scratch

PIECE = 65536
"""The most numbers in a piece, which share one random draw or are summed together; buffers of this size fit 1 MiB."""
SPAN = 4
"""The number of pieces in a span, on which one element-wise operation works: for fewer, the calls would cost as much as
the arithmetic. torch may divide a span among threads, so only these operations and maxima are torch's; sums are
numpy's, in one thread.
"""


class BucketSpan(NamedTuple):
    """Consecutive buckets (groups of numbers) of a flat vector, and the shape of the matrix with a row for each bucket.

    A bucket of more than `PIECE` numbers has spans of its own, each a matrix of one row.

    Attributes:
        start: The first of the vector's numbers.
        stop: The end of the numbers, not included.
        buckets: The indices of these buckets among all buckets of the vector, as a slice.
        width: The numbers in a row. If the last bucket is shorter, the matrix is longer than the span.
        pieces: The lengths of the span's pieces.
    """

    start: int
    stop: int
    buckets: slice
    width: int
    pieces: tuple[int, ...]

    @property
    def numel(self) -> int:
        """The number of elements of the span's matrix."""
        rows: int = self.buckets.stop - self.buckets.start
        return rows * self.width

    def of(self, vector: Tensor) -> Tensor:
        """Return the numbers of a whole vector that lie in this span; `vector` itself if it is as long as the span."""
        return vector if vector.numel() == self.stop - self.start else vector[self.start : self.stop]

    def matrix(self, buffer: Tensor) -> Tensor:
        """View the beginning of a flat buffer as a matrix of shape (buckets, width)."""
        numel = self.numel
        return (buffer if buffer.numel() == numel else buffer[:numel]).view(-1, self.width)


@lru_cache(maxsize=64)
def spans(dim: int, bucket: int) -> tuple[BucketSpan, ...]:
    """Return spans of consecutive buckets that cover a vector of `dim` numbers, in order.

    A bucket has `bucket` numbers (0: all).
    """
    bucket = min(bucket or dim, dim)
    found: list[BucketSpan] = []
    if bucket > PIECE:
        for number, first in enumerate(range(0, dim, bucket)):
            last = min(first + bucket, dim)
            for start in range(first, last, SPAN * PIECE):
                stop = min(start + SPAN * PIECE, last)
                lengths = _cut(stop - start, PIECE)
                found.append(BucketSpan(start, stop, slice(number, number + 1), stop - start, lengths))
    elif bucket:
        piece, whole = PIECE // bucket * bucket, dim // bucket * bucket
        for start in range(0, dim, SPAN * piece):
            stop = min(start + SPAN * piece, dim)
            lengths = _cut(min(stop, whole) - start, piece) + ((dim - whole,) if whole < stop else ())
            found.append(BucketSpan(start, stop, slice(start // bucket, num_buckets(stop, bucket)), bucket, lengths))
    return tuple(found)


def _cut(length: int, most: int) -> tuple[int, ...]:
    """Cut a length into parts of at most `most`; return the lengths of the parts."""
    return (most,) * (length // most) + ((length % most,) if length % most else ())


def buffer_for(spans: Sequence[BucketSpan], dtype: torch.dtype) -> Tensor:
    """Return an uninitialized flat buffer of this thread that is large enough for each span's matrix."""
    return scratch("span", max((span.numel for span in spans), default=0), dtype)


def num_buckets(dim: int, bucket: int) -> int:
    """Return the number of buckets in a vector of `dim` numbers; `bucket` 0 means one for the whole vector."""
    return -(-dim // bucket) if bucket else min(dim, 1)


def pieces(vector: Tensor, bucket: int) -> list[Tensor]:
    """Return a flat vector's consecutive pieces, in order, as views of shape (buckets, numbers in a bucket).

    A bucket over `PIECE` becomes several pieces of shape (1, numbers); the last bucket may be shorter.
    """
    if not len(vector):
        return []
    bucket = bucket or len(vector)
    if bucket > PIECE:
        return [piece.view(1, -1) for whole in vector.split(bucket) for piece in whole.split(PIECE)]
    whole = len(vector) // bucket * bucket
    result = list(vector[:whole].view(-1, bucket).split(PIECE // bucket)) if whole else []
    return result + [vector[whole:].view(1, -1)] * (whole < len(vector))


def times_scales(numbers: Tensor, scales: Tensor, bucket: int) -> Tensor:
    """Multiply each number by the scale factor of its bucket; return shape (d,), in the dtype of the factors."""
    dim, column = len(numbers), scales.view(-1, 1)
    covering = spans(dim, bucket)
    result = empty(max((span.start + span.numel for span in covering), default=0), scales.dtype)
    for span in covering:
        span.of(result).copy_(span.of(numbers))
        span.matrix(result[span.start :]).mul_(column[span.buckets])
    return result[:dim]


def plus_scaled(base: Tensor, numbers: Tensor, scales: Tensor, bucket: int) -> Tensor:
    """Return `base` plus each number times its bucket's scale factor, bit for bit as in two steps but with less memory.

    Each product is rounded before the addition: a fused operation might round differently on another machine.
    """
    dim, column = len(numbers), scales.view(-1, 1)
    covering = spans(dim, bucket)
    result, buffer = empty(dim, scales.dtype), buffer_for(covering, scales.dtype)
    for span in covering:
        product = buffer[: span.stop - span.start].copy_(span.of(numbers))
        span.matrix(buffer).mul_(column[span.buckets])
        torch.add(span.of(base), product, out=span.of(result))
    return result


def bucket_totals(ufunc: np.ufunc, partial: NDArray[Any], dim: int, bucket: int) -> NDArray[Any]:
    """Combine values of the parts of large buckets into one value per bucket, by a reduction with `ufunc`.

    `partial` has one value for each row of the views that `pieces` returns, such as a sum.
    """
    starts = np.arange(num_buckets(dim, bucket)) * math.ceil(bucket / PIECE)
    totals: NDArray[Any] = ufunc.reduceat(partial, starts)
    return totals
