"""How this process computes while a simulated fleet lives in it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from netdfl.core.process import few_collections
from netdfl.core.rng import kept_streams

A_NODE = 1000
"""A node, with what it sends and keeps, is about as many objects: to look for garbage sooner is to look at these."""


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """One thread and deterministic kernels of torch, so that sums are made in one order whatever the machine.

    What is drawn from the process's own streams meanwhile is not missing there afterwards.
    """
    import torch

    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, which loads torch's compiler too
    try:
        with kept_streams():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def rare_collections(fleet: object, num_nodes: int = 0) -> Iterator[None]:
    """Let the garbage collector look seldom while a fleet of `num_nodes` lives, and never have two fleets in memory.

    Where the last fleet of this process has not been freed since, it goes now.
    """
    global _last
    if _last() is not None:
        gc.collect()
    _last = weakref.ref(fleet)
    with few_collections(max(500_000, A_NODE * num_nodes)):
        yield


def _none() -> None:
    """No fleet has lived in this process."""


_last: Callable[[], object] = _none
