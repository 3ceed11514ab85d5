"""How this process computes while a simulated fleet lives in it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """One thread and deterministic kernels of torch, so that sums are made in one order whatever the machine."""
    import torch

    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, which loads torch's compiler too
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def rare_collections(fleet: object) -> Iterator[None]:
    """Let the garbage collector look seldom: a fleet keeps many objects, and few of them are in cycles.

    With these thresholds it never looks through what was there before the run. Where the last fleet of this process
    has not been freed since, it goes now, so that there are never two of them.
    """
    global _last
    if _last() is not None:
        gc.collect()
    _last = weakref.ref(fleet)
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _none() -> None:
    """No fleet has lived in this process."""


_last: Callable[[], object] = _none
