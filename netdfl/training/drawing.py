"""What a user's code draws at random, as dropout and noisy data do: from named streams, whichever generator it asks.

Those of torch, of numpy and of Python belong to the whole process. Within `seeded` they draw as its seed says, and go
on afterwards where they were.
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
"""Generators of numpy's that nobody uses at present: to make one takes as long as to draw."""


@contextmanager
def aside(devices: Sequence[int] = ()) -> Iterator[None]:
    """Use the process's own streams within: they are as they were afterwards, and one thread at a time does so."""
    with ALONE, torch.random.fork_rng(devices=list(devices)), kept_streams():
        yield


@contextmanager
def seeded(
    seed: int, device: torch.device, sources: frozenset[Source] = EVERY
) -> Iterator[Callable[[], frozenset[Source]]]:
    """Let `sources` draw as `seed` says within, torch's on the CPU and on `device`.

    They go on afterwards where they were. What is given tells which of them drew so far. Threads share them, so they
    take turns. Of numpy's, half a pair of normal numbers that was drawn before is forgotten: `kept_streams`, which
    keeps it, takes longer than a short step.
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
    """Seed torch's generators; what is returned undoes it."""
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
    """Put another generator, seeded, in the place of numpy's; what is returned undoes it."""
    numpy: Any = np.random
    before, ours = numpy.get_bit_generator(), _SPARE.pop() if _SPARE else np.random.MT19937(0)
    numpy.set_bit_generator(ours)
    np.random.seed(seed % 2**32)

    def undo() -> None:
        numpy.set_bit_generator(before)
        _SPARE.append(ours)

    return undo


def _drew(source: Source, seed: int, index: int | None) -> bool:
    """Whether a source that was seeded is no longer as it was then."""
    if source == "python":
        return random.getstate() != random.Random(seed).getstate()
    if source == "numpy":
        now, then = np.random.get_state(), np.random.RandomState(seed % 2**32).get_state()
        return any(not np.array_equal(a, b) for a, b in zip(now, then, strict=True))
    devices = ["cpu", *([] if index is None else [f"cuda:{index}"])]
    seeds = [torch.Generator(device).manual_seed(seed).get_state() for device in devices]
    return any(not torch.equal(a, b) for a, b in zip(_states(index), seeds, strict=True))


def beside_others() -> None:
    """Called in a thread that trains at the same time as others, whose draws must not be its own."""
    _THREAD.beside = True


def is_beside_others() -> bool:
    """Whether this thread is such a one."""
    return getattr(_THREAD, "beside", False)
