"""Named random streams for a user's code, such as dropout or noisy data, whichever global generator it draws from.

The generators of torch, numpy and Python belong to the whole process. Within `seeded` they draw from the given seed;
afterwards they continue from their earlier state.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from netdfl.core.rng import ALONE, kept_streams

Source: TypeAlias = Literal["torch", "numpy", "python"]
EVERY: frozenset[Source] = frozenset(("torch", "numpy", "python"))
_THREAD = threading.local()
_SPARE: list[Any] = []
"""Unused random generators of numpy, kept for reuse, because creating one takes as long as drawing."""


@contextmanager
def aside(devices: Sequence[int] = ()) -> Iterator[None]:
    """Restore the process's global random generators after the context, which only one thread at a time can enter."""
    with ALONE, torch.random.fork_rng(devices=list(devices)), kept_streams():
        yield


@contextmanager
def seeded(
    seed: int, device: torch.device, sources: frozenset[Source] = EVERY
) -> Iterator[Callable[[], frozenset[Source]]]:
    """Seed the generators `sources` inside the context, torch's on the CPU and on `device`.

    Afterwards they continue from their earlier state. The yielded function returns the generators that were used so
    far. Threads share the generators, so only one thread is in such a context at a time. If numpy's generator had the
    second of a pair of normal numbers in store, that number is lost: `kept_streams`, which restores it, takes longer
    than a short step.
    """
    index = device.index if device.type == "cuda" else None
    with ALONE, ExitStack() as stack:
        if "torch" in sources:
            stack.callback(_seed_torch(seed, index))
        if "numpy" in sources:
            stack.callback(_seed_numpy(seed))
        if "python" in sources:
            stack.callback(random.setstate, random.getstate())
            random.seed(seed)
        yield lambda: frozenset(source for source in sources if _drew(source, seed, index))


def _seed_torch(seed: int, index: int | None) -> Callable[[], None]:
    """Seed torch's generators; return a function that restores them."""
    before = _states(index)
    torch.default_generator.manual_seed(seed)
    if index is not None:
        torch.cuda.default_generators[index].manual_seed(seed)

    def undo() -> None:
        torch.set_rng_state(before[0])
        if index is not None:
            torch.cuda.set_rng_state(before[1], index)

    return undo


def _states(index: int | None) -> list[Tensor]:
    return [torch.get_rng_state(), *([] if index is None else [torch.cuda.get_rng_state(index)])]


def _seed_numpy(seed: int) -> Callable[[], None]:
    """Replace numpy's generator by a seeded one; return a function that restores it."""
    numpy: Any = np.random
    before, ours = numpy.get_bit_generator(), _SPARE.pop() if _SPARE else np.random.MT19937(0)
    numpy.set_bit_generator(ours)
    np.random.seed(seed % 2**32)

    def undo() -> None:
        numpy.set_bit_generator(before)
        _SPARE.append(ours)

    return undo


def _drew(source: Source, seed: int, index: int | None) -> bool:
    """Return whether a generator has been used since it got `seed`; `index` is the number of the GPU, if any."""
    if source == "python":
        return random.getstate() != random.Random(seed).getstate()
    if source == "numpy":
        now, then = np.random.get_state(), np.random.RandomState(seed % 2**32).get_state()
        return any(not np.array_equal(a, b) for a, b in zip(now, then, strict=True))
    devices = ["cpu", *([] if index is None else [f"cuda:{index}"])]
    seeds = [torch.Generator(device).manual_seed(seed).get_state() for device in devices]
    return any(not torch.equal(a, b) for a, b in zip(_states(index), seeds, strict=True))


def beside_others() -> None:
    """Mark this thread as one of several that train at once: none of them may use the process's random generators."""
    _THREAD.beside = True


def is_beside_others() -> bool:
    """Return whether `beside_others` marked this thread as training concurrently with others."""
    return getattr(_THREAD, "beside", False)
