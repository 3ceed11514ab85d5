"""How this process computes while a simulated fleet lives in it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """One thread and deterministic kernels, so that sums are made in one order whatever the machine."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector look seldom: a fleet keeps many objects, and few of them are in cycles.

    What is there already it leaves alone, unless the caller has frozen that before.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    if not frozen:
        gc.collect()
        gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
