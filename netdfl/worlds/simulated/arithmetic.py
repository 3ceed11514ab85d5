"""Settings of this process for a simulated fleet: exact arithmetic, and rare garbage collections."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from netdfl.core.process import few_collections
from netdfl.core.rng import kept_streams

A_NODE = 1000
"""Rough number of Python objects of a node and its messages; collecting garbage before so many are new frees little."""


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Set torch to one thread and deterministic kernels inside the context, so that sums have a fixed order.

    On leaving, the random generators of the process are set back to their states from before.
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
    """Let Python collect garbage rarely inside the context, in which the simulated `fleet` of `num_nodes` runs.

    An earlier fleet of this process is freed first if it is still in memory.
    """
    global _last
    if _last() is not None:
        gc.collect()
    _last = weakref.ref(fleet)
    with few_collections(max(500_000, A_NODE * num_nodes)):
        yield


def _none() -> None:
    """Return None: the value of the weak reference `_last` to the last fleet, as long as this process has had none."""


_last: Callable[[], object] = _none
