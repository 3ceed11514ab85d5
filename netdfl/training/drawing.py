"""What a model draws at random while it trains, as dropout does: from a named stream, not from torch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[Callable[[], bool]]:
    """Let torch draw as `seed` says within, on the CPU and on `device`; its own streams are as they were afterwards.

    What is given tells whether anything was drawn so far. Not for several threads at once: they share torch's streams.
    """
    index = device.index if device.type == "cuda" else None
    with torch.random.fork_rng(devices=[] if index is None else [index]):
        torch.default_generator.manual_seed(seed)
        if index is not None:
            torch.cuda.default_generators[index].manual_seed(seed)
        first = _states(index)
        yield lambda: not all(map(torch.equal, _states(index), first))


def _states(index: int | None) -> list[Tensor]:
    return [torch.get_rng_state(), *([] if index is None else [torch.cuda.get_rng_state(index)])]
