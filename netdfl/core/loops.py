"""Where work with an event loop of its own runs, when there may be one already, as in a notebook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def outside_loops(work: Callable[[], T]) -> T:
    """Do `work` here, or in a thread of its own where an event loop runs in this one; raises what it raises."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()
