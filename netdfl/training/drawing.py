"""What a model draws at random while it trains, as dropout does: from a named stream, not from torch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

_ALONE = RLock()


@contextmanager
def aside(devices: Sequence[int] = ()) -> Iterator[None]:
    """Use torch's own streams within: they are as they were afterwards, and one thread at a time does so."""
    with _ALONE, torch.random.fork_rng(devices=list(devices)):
        yield


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[Callable[[], bool]]:
    """Let torch draw as `seed` says within, on the CPU and on `device`; its own streams are as they were afterwards.

    What is given tells whether anything was drawn so far. Threads share torch's streams, so they take turns.
    """
    index = device.index if device.type == "cuda" else None
    with aside([] if index is None else [index]):
        torch.default_generator.manual_seed(seed)
        if index is not None:
            torch.cuda.default_generators[index].manual_seed(seed)
        first = _states(index)
        yield lambda: not all(map(torch.equal, _states(index), first))


def _states(index: int | None) -> list[Tensor]:
    return [torch.get_rng_state(), *([] if index is None else [torch.cuda.get_rng_state(index)])]
