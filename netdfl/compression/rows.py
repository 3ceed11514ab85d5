"""A vector cut into pieces that stay in a core's cache, along the borders of its buckets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE = 65536
"""Coordinates handled at once: what is at hand of them fits a 1 MiB cache. torch may share a piece between
threads, so only maxima and element-wise operations are torch's; sums are numpy's, in one thread."""


def num_buckets(dim: int, bucket: int) -> int:
    """Buckets of a vector of `dim` numbers; `bucket` 0 is one for the whole vector."""
    return -(-dim // bucket) if bucket else min(dim, 1)


def pieces(vector: Tensor, bucket: int) -> list[Tensor]:
    """Views of shape (buckets, numbers), in order, that cover a flat vector.

    A bucket over `PIECE` becomes several pieces of shape (1, numbers); the last bucket may be shorter.
    """
    bucket = bucket or max(1, len(vector))
    if bucket > PIECE:
        return [piece.view(1, -1) for whole in vector.split(bucket) for piece in whole.split(PIECE) if len(piece)]
    whole = len(vector) // bucket * bucket
    result = list(vector[:whole].view(-1, bucket).split(PIECE // bucket)) if whole else []
    return result + [vector[whole:].view(1, -1)] * (whole < len(vector))


def piece_scales(scales: Tensor, dim: int, bucket: int) -> list[Tensor]:
    """The scales of the buckets in each piece, of shape (buckets, 1)."""
    bucket = bucket or max(1, dim)
    column = scales.view(-1, 1)
    if not dim:
        return []
    if bucket > PIECE:
        lengths = [min(bucket, dim - start) for start in range(0, dim, bucket)]
        return [scale for scale, n in zip(column.split(1), lengths, strict=True) for _ in range(math.ceil(n / PIECE))]
    whole = dim // bucket
    result = list(column[:whole].split(PIECE // bucket)) if whole else []
    return result + [column[whole:]] * (whole * bucket < dim)


def bucket_totals(ufunc: np.ufunc, partial: NDArray[Any], dim: int, bucket: int) -> NDArray[Any]:
    """Reduce one figure per row of `pieces` to one per bucket."""
    bucket = bucket or max(1, dim)
    if bucket <= PIECE or not dim:
        return partial
    starts = np.arange(num_buckets(dim, bucket)) * math.ceil(bucket / PIECE)
    totals: NDArray[Any] = ufunc.reduceat(partial, starts)
    return totals


def scratch(views: list[Tensor], dtype: torch.dtype) -> dict[torch.Size, Tensor]:
    """One buffer for each of the few shapes among `views`."""
    return {shape: torch.empty(shape, dtype=dtype) for shape in {view.shape for view in views}}
