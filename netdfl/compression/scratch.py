"""Reusable buffers for intermediate results, kept by each thread: new memory costs as much as a pass over it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import local

import torch
from torch import Tensor

from netdfl.compression.arrays import empty

MOST_BYTES = 1 << 21
"""The most bytes of a buffer that is reused. A larger one would not stay in a cache, so it is allocated each time."""
_MOST_KEPT = 32
_STRETCH = 1 << 18


class _ThreadBuffers(local):
    def __init__(self) -> None:
        self.buffers: dict[tuple[str, int, torch.dtype], Tensor] = {}


_kept = _ThreadBuffers()


def scratch(use: str, num: int, dtype: torch.dtype) -> Tensor:
    """Return an uninitialized flat CPU tensor of `num` numbers; this thread's next call for this `use` reuses it."""
    if num * dtype.itemsize > MOST_BYTES:
        return empty(num, dtype)
    found = _kept.buffers.get((use, num, dtype))
    if found is None:
        if len(_kept.buffers) >= _MOST_KEPT:
            _kept.buffers.clear()
        found = _kept.buffers[use, num, dtype] = empty(num, dtype)
    return found


def difference(x: Tensor, y: Tensor) -> Tensor:
    """Return `x` - `y` in a buffer that the next call in this thread overwrites."""
    return torch.sub(x, y, out=scratch("difference", x.numel(), x.dtype)) if x.is_cpu else x - y


def stretches(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield corresponding slices of flat vectors, one after the other, short enough to stay in the processor's cache.

    On a GPU the vectors are yielded whole.
    """
    num = vectors[0].numel()
    if num <= _STRETCH or not vectors[0].is_cpu:
        yield vectors
        return
    for start in range(0, num, _STRETCH):
        yield tuple(vector[start : start + _STRETCH] for vector in vectors)
