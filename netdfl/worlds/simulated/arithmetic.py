"""Settings of this process for a simulated fleet: exact arithmetic, and rare garbage collections."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from netdfl.core.process import few_collections
from netdfl.core.rng import kept_streams

A_NODE = 1000
"""The objects of a node with its messages, roughly; a collection before so many new ones finds little garbage."""


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Set torch to one thread and deterministic kernels inside the context, so that sums have a fixed order.

    Draws from the process's own random streams inside are undone at the end.
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
    """Collect garbage rarely while a fleet of `num_nodes` lives; free an earlier fleet of this process first.

    The last fleet of this process is freed first if it is still there.
    """
    global _last
    if _last() is not None:
        gc.collect()
    _last = weakref.ref(fleet)
    with few_collections(max(500_000, A_NODE * num_nodes)):
        yield


def _none() -> None:
    """Return None, because this process has had no fleet yet."""


_last: Callable[[], object] = _none
