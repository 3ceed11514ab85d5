"""Memory of a thread for what is computed on the way: it is at hand, where fresh memory costs as much as a pass."""

from __future__ import annotations

from collections.abc import Iterator
from threading import local

import torch
from torch import Tensor

from netdfl.compression.arrays import empty

MOST_BYTES = 1 << 21
"""What is larger is allocated anew each time: it does not stay in a cache anyway."""
_MOST_KEPT = 32
_STRETCH = 1 << 18


class _Kept(local):
    def __init__(self) -> None:
        self.buffers: dict[tuple[str, int, torch.dtype], Tensor] = {}


_kept = _Kept()


def scratch(use: str, num: int, dtype: torch.dtype) -> Tensor:
    """A flat CPU tensor of `num` numbers, not set; the same one for the next who asks in this thread for that `use`."""
    if num * dtype.itemsize > MOST_BYTES:
        return empty(num, dtype)
    found = _kept.buffers.get((use, num, dtype))
    if found is None:
        if len(_kept.buffers) >= _MOST_KEPT:
            _kept.buffers.clear()
        found = _kept.buffers[use, num, dtype] = empty(num, dtype)
    return found


def difference(x: Tensor, y: Tensor) -> Tensor:
    """`x` - `y`, until the next difference in this thread."""
    return torch.sub(x, y, out=scratch("difference", x.numel(), x.dtype)) if x.is_cpu else x - y


def stretches(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same part of each flat vector, which stays in a cache from one pass to the next; all of them on a GPU."""
    num = vectors[0].numel()
    if num <= _STRETCH or not vectors[0].is_cpu:
        yield vectors
        return
    for start in range(0, num, _STRETCH):
        yield tuple(vector[start : start + _STRETCH] for vector in vectors)
